# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu genkey`: a new key for the hosts of a link with peers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "genkey",
        help="make a key for --peer-key-file",
        description="Make a key of 64 hexadecimal digits for the option --peer-key-file: in FILE, which its"
        " owner alone may read, or on standard output. All hosts of the link need the same key.",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", type=Path, help="the new file; it must not be there yet"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.fabric.mesh.peer_key import new_key, write_new

    if options.file is None:
        print(new_key())
    else:
        write_new(options.file)
    return 0
