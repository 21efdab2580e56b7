# SPDX-License-Identifier: BSD-2-Clause
"""Reads a configuration file, and collects every fault with the line and the key of its statement."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from ipoibu.base.addr import PKey
from ipoibu.base.errors import IpoibuError, NotPermitted, UsageError
from ipoibu.base.limits import CHILDREN_MAX
from ipoibu.daemon.config.options import Option, options_of

CONFIG_FILE_MAX_BYTES: Final = 1 << 20

# A longer statement, such as a list, has no line in a message: each line costs one attempt to parse.
STATEMENT_MAX_LINES: Final = 256

# The table of the children: [child.0x8001]
CHILD: Final = "child"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of the file `path`; `line` is 0 and `key` empty where the fault has none."""

    path: Path
    line: int
    key: str
    text: str
    kind: type[IpoibuError] = UsageError

    def error(self) -> IpoibuError:
        """What `up` ends with."""
        return self.kind(str(self))

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else f"{self.path}"
        return ": ".join(part for part in (place, self.key, self.text) if part)


class ConfigFile:
    """The values of a file by option name, those of each child by its P_Key, and the faults."""

    def __init__(self, path: Path) -> None:
        """Read the file; `UsageError` if it is not readable, or not TOML."""
        self.path = path
        self.faults: list[Fault] = []
        self.values: dict[str, object] = {}
        self.children: dict[PKey, dict[str, object]] = {}
        self._child_places: dict[PKey, tuple[str, ...]] = {}
        self._content = read_text(path)
        table = self._parse()
        children = table.pop(CHILD, {})
        self.values = self._values(table, (), options_of("up"))
        if isinstance(children, dict):
            self._read_children(children)
        else:
            self._fault((CHILD,), "a table for each child is expected, such as [child.0x8001]")

    def add_contradiction(self, error: IpoibuError, child: PKey | None = None) -> None:
        """Add a contradiction between options, at the first option that it names."""
        table = self._child_places.get(child, ()) if child is not None else ()
        for key in re.findall(r"--([a-z0-9-]+)", str(error)):
            if (*table, key) in self._lines:
                self._fault((*table, key), str(error), type(error))
                return
        self._fault(table, str(error), type(error))

    def add_at(self, key: str, error: IpoibuError, child: PKey | None = None) -> None:
        """Add a fault of the option `key`, which a child may have from its parent; each once."""
        own = (*self._child_places.get(child, ()), key) if child is not None else (key,)
        place = own if own in self._lines else (key,)
        if all(fault.text != str(error) for fault in self.faults):
            self._fault(place, str(error), type(error))

    def _parse(self) -> dict[str, Any]:
        try:
            return tomllib.loads(self._content)
        except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
            found = re.search(r"at line (\d+)", str(error))
            line = int(found[1]) if found else 0
            raise UsageError(
                str(Fault(self.path, line, "", f"not a TOML file: {error}"))
            ) from error

    def _read_children(self, tables: Mapping[str, Any]) -> None:
        for text, table in tables.items():
            place = (CHILD, text)
            try:
                pkey = PKey.parse(text[:16]).full
            except UsageError as error:
                self._fault(place, str(error))
                continue
            if pkey in self.children:
                self._fault(place, f"another child has the partition {pkey}")
            elif not isinstance(table, dict):
                self._fault(place, f"a table is expected: [child.{pkey}]")
            elif len(self.children) >= CHILDREN_MAX:
                self._fault(place, f"an interface has at most {CHILDREN_MAX} children")
                return
            else:
                self._child_places[pkey] = place
                self.children[pkey] = self._values(table, place, options_of("child"))

    def _values(
        self, table: Mapping[str, Any], place: tuple[str, ...], options: Iterable[Option]
    ) -> dict[str, object]:
        known = {option.name: option for option in options}
        values: dict[str, object] = {}
        for key, value in table.items():
            if key not in known:
                names = sorted(known if place else [*known, CHILD])
                self._fault((*place, key), f"unknown key (known: {', '.join(names)})")
                continue
            try:
                values[key] = read_value(known[key], _texts(value, known[key]))
            except UsageError as error:
                self._fault((*place, key), str(error))
        return values

    def _fault(
        self, place: tuple[str, ...], text: str, kind: type[IpoibuError] = UsageError
    ) -> None:
        self.faults.append(Fault(self.path, self._line(place), ".".join(place), text, kind))

    def _line(self, place: tuple[str, ...]) -> int:
        while place and place not in self._lines:
            place = place[:-1]
        return self._lines.get(place, 0)

    @cached_property
    def _lines(self) -> dict[tuple[str, ...], int]:
        """The first line of each key's statement, and of each table's header."""
        lines: dict[tuple[str, ...], int] = {}
        table: tuple[str, ...] = ()
        for number, text, tree in _statements(self._content.split("\n")):
            path = _path(tree)
            if text.startswith("["):
                table = path
            else:
                path = (*table, *path)
            for depth in range(1, len(path) + 1):
                lines.setdefault(path[:depth], number)
        return lines


def read_value(option: Option, value: str | Sequence[str]) -> object:
    """Read the text of an option, or each of its texts."""
    if not option.several:
        if not isinstance(value, str):
            raise UsageError("one value is expected")
        return option.read(value)
    texts = [value] if isinstance(value, str) else value
    return tuple(option.read(text) for text in texts)


def read_text(path: Path) -> str:
    """Return the text of a configuration file; `UsageError` if it is not readable, or too large."""
    try:
        if os.stat(path).st_size > CONFIG_FILE_MAX_BYTES:
            raise UsageError(f"{path}: too large for a configuration file")
        return path.read_text(encoding="utf-8")
    except PermissionError as error:
        raise NotPermitted(f"{path}: not readable for this user") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path}: {reason}") from error


def _statements(lines: Sequence[str]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each statement's first line, text and content: a statement ends where its lines are TOML."""
    start = 0
    for end in range(1, len(lines) + 1):
        text = "\n".join(lines[start:end])
        try:
            tree = tomllib.loads(text)
        except (ValueError, RecursionError):
            if end - start >= STATEMENT_MAX_LINES:
                start = end
            continue
        if tree:
            yield start + 1, text.lstrip(), tree
        start = end


def _path(tree: Any) -> tuple[str, ...]:
    """The key of a statement, down to its value."""
    path: list[str] = []
    while isinstance(tree, dict) and len(tree) == 1:
        ((key, tree),) = tree.items()
        path.append(key)
    return tuple(path)


def _texts(value: Any, option: Option) -> str | list[str]:
    if option.name == "pkey" and type(value) is int and 0 < value <= 0xFFFF:
        return hex(value)  # a number of TOML is not ambiguous
    if isinstance(value, bool) and option.metavar.startswith("on|off"):
        return "on" if value else "off"
    if isinstance(value, list) and option.several:
        return [_text(item) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        return str(value)  # pkey = 0x8001, mtu = 2044
    raise UsageError("a string or a number is expected")
