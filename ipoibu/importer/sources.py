# SPDX-License-Identifier: BSD-2-Clause
"""Recognises the files of other programs, by their names or else by their contents."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.config_file import read_text
from ipoibu.importer import ifcfg, ifupdown, openib, suse
from ipoibu.importer.draft import Draft, Note, Place, Reading
from ipoibu.importer.ifcfg import read_ifcfg
from ipoibu.importer.ifupdown import read_interfaces
from ipoibu.importer.keyfile import read_keyfile
from ipoibu.importer.networkd import place_patterns, read_networkd
from ipoibu.importer.openib import read_openib
from ipoibu.importer.yaml_file import read_yaml

# In this order, because a file that matches interfaces has to know their names
_NETWORKD: Final = (".netdev", ".network", ".link")
_YAML: Final = (".yml", ".yaml", ".json", ".cfg")
_YAML_BEGINNING: Final = re.compile(
    r"^(network|version|interfaces|network_\w+|desiredState):", re.MULTILINE
)
_READERS: Final[tuple[tuple[re.Pattern[str], Callable[[Path], Reading]], ...]] = (
    (re.compile(r"^\s*\[connection\]", re.MULTILINE), read_keyfile),
    (openib.BEGINNING, read_openib),
    (_YAML_BEGINNING, read_yaml),
    (ifupdown.BEGINNING, read_interfaces),
)


class _UnknownKind(UsageError):
    """Nobody knows what the file is."""


def read_files(paths: Iterable[Path], names: Collection[str] = ()) -> Reading:
    """Read each file once, and those of a directory; `UsageError` if one is not readable, or none is of a
    known kind. `names` are those of interfaces that exist."""
    reading = Reading()
    once = {path.resolve(): path for each in paths for path in map(_owner, _files(each))}
    unknown: list[_UnknownKind] = []
    for path in once.values():
        if path.suffix in _NETWORKD:
            continue
        try:
            reading.add(_read(path))
        except _UnknownKind as error:
            unknown.append(error)
            reading.notes.append(Note(Place(path), "not read: a file of no known kind"))
    reading.add(_read_networkd([path for path in once.values() if path.suffix in _NETWORKD]))
    if unknown and len(unknown) == len(once):
        raise unknown[0]
    place_patterns(reading, names)
    if reading.defaults and not reading.drafts:
        made = Draft(reading.defaults[0].place, "ib0")
        made.leave(made.place, "the settings of all interfaces: here of ib0")
        reading.drafts.append(made)
    return reading


def _files(path: Path) -> Iterator[Path]:
    """The file, or those of a directory."""
    if not path.is_dir():
        yield path
        return
    try:
        yield from sorted(each for each in path.iterdir() if each.is_file())
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def _read_networkd(paths: Iterable[Path]) -> Reading:
    """Read networkd's files. One may be about an interface only another one says to be ours: a second look
    finds these."""
    reading = Reading()
    waiting = sorted(paths, key=lambda path: _NETWORKD.index(path.suffix))
    for _ in range(2):
        others, waiting = waiting, []
        rest: list[Reading] = []
        for path in others:
            found = read_networkd(path, {draft.name for draft in reading.drafts})
            if found.drafts:
                reading.add(found)
            else:
                waiting.append(path)
                rest.append(found)
    for found in rest:
        reading.add(found)
    return reading


def _owner(path: Path) -> Path:
    """The file that a file belongs to: routes to their ifcfg file, a drop-in to its unit."""
    for prefix in (*ifcfg.ROUTES, *ifcfg.RULES, suse.ROUTES):
        if path.name.startswith(prefix):
            owner = path.with_name(ifcfg.PREFIX + path.name.removeprefix(prefix))
            if not owner.exists():
                raise UsageError(f"{path}: {owner.name}, to which it belongs, is not beside it")
            return owner
    if path.name == suse.COMMON_ROUTES:
        return next(iter(sorted(path.parent.glob(f"{ifcfg.PREFIX}*"))), path)
    if path.suffix == ".conf" and path.parent.suffix == ".d":
        owner = path.parent.with_suffix("")
        if not owner.exists():
            raise UsageError(f"{path}: {owner}, to which it belongs, does not exist")
        return owner
    return path


def _read(path: Path) -> Reading:
    if path.name.startswith(ifcfg.PREFIX):
        return read_ifcfg(path)
    if path.suffix in _YAML or path.name == "network-config":
        return read_yaml(path)
    if path.suffix == ".nmconnection":
        return read_keyfile(path)
    if path.name in openib.NAMES:
        return read_openib(path)
    if path.name == "interfaces" or path.parent.name == "interfaces.d":
        return read_interfaces(path)
    content = read_text(path)
    for beginning, read in _READERS:
        if beginning.search(content):
            return read(path)
    raise _UnknownKind(
        f"{path}: not the name of a keyfile (NAME.nmconnection), of networkd (NAME.network,"
        " NAME.netdev, NAME.link), of an ifcfg-NAME file, of interfaces, of openib.conf, or of YAML"
        " (NAME.yml: a playbook, nmstate, cloud-init, netplan)"
    )
