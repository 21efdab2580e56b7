# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu import`: configuration files of ours from those of other programs (docs/use/import.md)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.base.errors import UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser
    from ipoibu.importer.assembly import ImportedInterface


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "import",
        help="read other programs' configuration of IPoIB",
        description="Write configuration files for `ipoibu up` from those of NetworkManager (keyfiles),"
        " systemd-networkd (.network, .netdev, .link), network-scripts of Red Hat and SUSE (ifcfg-ib0, with"
        " its routes), ifupdown (interfaces), nmstate, netplan and cloud-init (YAML), RHEL's system role"
        " network (playbooks) and openib.conf. A line on stderr names each setting that is not carried"
        " over.",
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", type=Path, help="a file to read, or a directory of them"
    )
    parser.add_argument(
        "--device",
        metavar="[NAME=]DEV",
        action="append",
        default=[],
        help="the device of the interface NAME, or of all; by default the file has a comment instead",
    )
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="write DIR/NAME.toml for each interface, instead of one interface to standard output",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; print what would not be carried over: exit code 1 if there is something",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.importer.assembly import assemble
    from ipoibu.importer.document import document
    from ipoibu.importer.sources import read_files

    devices = _devices(options.device)
    reading = read_files(options.files, [name for name in devices if name])
    made = assemble(reading, devices)
    if options.output is None and len(made) > 1 and not options.check:
        names = ", ".join(each.name for each in made)
        raise UsageError(f"the files describe {names}: give --output DIR, for a file each")
    notes = [*reading.notes, *(note for each in made for note in each.notes)]
    for note in notes:
        print(note, file=sys.stderr)
    if not made:
        raise UsageError("none of the files describes an IPoIB interface")
    if options.check:
        return int(any(note.is_loss for note in notes))
    if options.output is None:
        print(document(made[0]), end="")
    else:
        _write(options.output, made)
    return 0


def _devices(arguments: list[str]) -> dict[str, str]:
    """The device by the interface's name, "" for all others."""
    devices: dict[str, str] = {}
    for text in arguments:
        name, _, device = text.rpartition("=")
        if name in devices:
            raise UsageError(f"--device {text}: {name or 'the device'} is given twice")
        devices[name] = device
    return devices


def _write(directory: Path, made: list[ImportedInterface]) -> None:
    """Write a file for each interface, or none if one of them exists."""
    from ipoibu.importer.document import document

    files = {directory / f"{each.name}.toml": document(each) for each in made}
    for path in files:
        if path.exists():
            raise UsageError(f"{path} exists: remove it, or give another directory to --output")
    directory.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        with open(path, "x", encoding="utf-8") as file:
            file.write(content)
        print(path)
