# SPDX-License-Identifier: BSD-2-Clause
"""Recognises the files of other programs, by their names or else by their sections."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from pathlib import Path

from ipoibu.daemon.config_file import read_text
from ipoibu.errors import UsageError
from ipoibu.migration import ifcfg
from ipoibu.migration.draft import Reading
from ipoibu.migration.ifcfg import read_ifcfg
from ipoibu.migration.keyfile import read_keyfile
from ipoibu.migration.networkd import read_networkd
from ipoibu.migration.playbook import read_playbook


def read_files(paths: Iterable[Path]) -> Reading:
    """Read each file once; `UsageError` if one is not readable, or of no known kind."""
    reading = Reading()
    once = {path.resolve(): path for path in map(_owner, paths)}
    for path in sorted(once.values(), key=lambda path: path.suffix != ".netdev"):
        reading.add(_read(path, {draft.name for draft in reading.drafts}))
    return reading


def _owner(path: Path) -> Path:
    """The file that a file belongs to: routes to their ifcfg file, a drop-in to its unit."""
    for prefix in (*ifcfg.ROUTES, *ifcfg.RULES):
        if path.name.startswith(prefix):
            owner = path.with_name(ifcfg.PREFIX + path.name.removeprefix(prefix))
            if not owner.exists():
                raise UsageError(f"{path}: {owner.name}, to which it belongs, is not beside it")
            return owner
    if path.suffix == ".conf" and path.parent.suffix == ".d":
        owner = path.parent.with_suffix("")
        if not owner.exists():
            raise UsageError(f"{path}: {owner}, to which it belongs, does not exist")
        return owner
    return path


def _read(path: Path, known: Collection[str]) -> Reading:
    """Read one file; `known` are the names of the interfaces of others."""
    if path.name.startswith(ifcfg.PREFIX):
        return read_ifcfg(path)
    if path.suffix in (".network", ".netdev"):
        return read_networkd(path, known)
    if path.suffix in (".yml", ".yaml"):
        return read_playbook(path)
    if path.suffix == ".nmconnection" or re.search(
        r"^\[connection\]", read_text(path), re.MULTILINE
    ):
        return read_keyfile(path)
    raise UsageError(
        f"{path}: not the name of a keyfile (NAME.nmconnection), of networkd (NAME.network,"
        " NAME.netdev), of an ifcfg-NAME file, or of a playbook (NAME.yml)"
    )
