# SPDX-License-Identifier: BSD-2-Clause
"""The command line of the scripts that make a page from the code: without arguments the script writes
the page, with `--check` it exits with status 1 if the page is out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def write_or_check(path: Path, make: Callable[[], str], usage: str, arguments: list[str]) -> int:
    """Return the script's exit status; `usage` goes to stderr if the arguments are wrong."""
    if arguments == ["--check"]:
        current = path.read_text(encoding="utf-8") if path.exists() else ""
        if current != make():
            print(f"{path} is out of date: run {sys.argv[0]}", file=sys.stderr)
            return 1
        return 0
    if arguments:
        print(usage, file=sys.stderr)
        return 2
    path.write_text(make(), encoding="utf-8")
    return 0
