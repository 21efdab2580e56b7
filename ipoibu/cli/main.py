# SPDX-License-Identifier: BSD-2-Clause
"""The `ipoibu` command: run the command's module, turn every error into one line and an exit code.

Exit codes: 0 done, 1 failed at run time, 2 usage, 3 no such device, 4 not permitted.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import Final

INTERRUPTED: Final = 130  # as a shell reports SIGINT


_PACKAGES: Final = {
    "libibverbs": "libibverbs1",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; never raises. IPOIBU_TRACEBACK=1 shows where an error came from."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # our parent process has closed it
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone (`ipoibu stats | head`). The interpreter must not try to
        # flush its buffer at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:
        return _report(error)


def _run(argv: list[str]) -> int:
    # Import here: `main` then catches an interrupt while modules load.
    from ipoibu.cli.parser import COMMANDS, build

    arguments, rest = argv, []
    if argv[:1] in (["lab"], ["run"]) and "--" in argv:  # other commands leave it to argparse
        at = argv.index("--")
        arguments, rest = argv[:at], argv[at + 1 :]
    commands = [name for name in COMMANDS if [name] == arguments[:1]]
    if not commands and arguments[:1] != ["--version"]:
        commands = list(COMMANDS)
    options = build(commands).parse_args(arguments)
    options.rest = rest
    code = options.run(options)
    sys.stdout.flush()
    assert isinstance(code, int)
    return code


def _missing_library(error: ImportError) -> str | None:
    """Return the loader's text about a shared library that an extension module needs, and the remedy."""
    match = re.match(r"(?:/[^:]*/)?((lib[^:/ ]+?)\.so[^:/ ]*: [^:]*)", str(error))
    if match is None:
        return None
    package = _PACKAGES.get(match[2])
    install = f"install it again (Debian: {package})" if package else "install it again"
    return f"{match[1]}: {install}, or build ipoibu again without it"


def _report(error: Exception) -> int:
    from ipoibu.base.errors import IpoibuError
    from ipoibu.cli.log_format import priority

    if os.environ.get("IPOIBU_TRACEBACK"):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, IpoibuError):
        text, code = str(error), error.exit_code
    elif isinstance(error, ImportError) and (library := _missing_library(error)):
        text, code = library, 1
    elif isinstance(error, ImportError) and (error.name or "").startswith("ipoibu."):
        text, code = f"{error.name} is not built: run `make build` or `pip install .`", 1
    elif isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        text, code = f"{where}{error.strerror}", 1
    elif isinstance(error, MemoryError):
        text, code = "there is no more memory", 1
    else:
        text = f"internal error: {type(error).__name__}: {error}; please report it"
        code = 1
    print(f"{priority(logging.ERROR)}ipoibu: {' '.join(text.split())}", file=sys.stderr)
    return code
