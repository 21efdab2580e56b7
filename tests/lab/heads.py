# SPDX-License-Identifier: BSD-2-Clause
"""The heads of scripts in examples: lines "KEY: VALUE" in the first comment.

A line with two more blanks goes on with the one before.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path


def head(file: Path, keys: Collection[str]) -> dict[str, list[str]]:
    """Return the values of each key, and of "About" the lines before them."""
    comment = re.match(r"#!/bin/bash\n((?:#.*\n)*)", file.read_text())
    assert comment is not None, file
    found: dict[str, list[str]] = {"About": []}
    for line in comment[1].replace("\n#   ", " ").splitlines():
        key, separator, value = line.removeprefix("# ").partition(": ")
        if separator and key in keys:
            found.setdefault(key, []).append(value)
        elif len(found) == 1 and not line.startswith("# SPDX"):
            found["About"].append(line.removeprefix("#").strip())
    return found
