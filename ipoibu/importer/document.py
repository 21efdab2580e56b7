# SPDX-License-Identifier: BSD-2-Clause
"""Writes an interface as a configuration file of ours."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ipoibu.daemon.config.options import BY_NAME
from ipoibu.importer.assembly import ImportedInterface, option_texts

_COLUMNS: Final = 100


def document(made: ImportedInterface) -> str:
    """The whole file. Without a device it is one that `ipoibu config check` refuses in words."""
    return "\n".join([*_head(made), *_device(made), *_tables(made)]) + "\n"


def _head(made: ImportedInterface) -> Iterator[str]:
    sources = dict.fromkeys(str(place.path) for place in made.sources)
    yield from _comment(f"{made.name}: `ipoibu import` wrote this from {', '.join(sources)}", "")
    if made.notes:
        yield "# Not carried over:"
        for note in made.notes:
            yield from _comment(str(note), "  ")


def _device(made: ImportedInterface) -> Iterator[str]:
    devices = made.devices
    if not devices:
        examples = [f"mlx5_{number}/1" for number in range(len(made.ports))]
        names = "{" + ",".join(made.ports) + "}" if len(made.ports) > 1 else next(iter(made.ports))
        yield from _comment(
            f"Name the device{'s' * (len(made.ports) > 1)}: `ls /sys/class/net/{names}/device/infiniband` on"
            f" a host with the kernel's interface; `cat /sys/class/net/{names}/dev_port` counts the device's"
            " ports from 0, we from 1",
            "",
        )
        yield f"# device = {_list(examples)}"
    else:
        yield f"device = {_list(devices)}"
    if made.primary:
        primary = made.rail_primary
        note = "" if primary else f"  # the device of {made.primary}"
        number = list(made.ports).index(made.primary)
        yield f"{'' if primary else '# '}rail-primary = {_string(primary or f'mlx5_{number}')}{note}"
    if made.needs_pkey:
        yield from _comment(
            f"Name the partition of {made.name}, as the kernel's interface has it", ""
        )
        yield '# pkey = "0x8001"'


def _list(texts: Sequence[str]) -> str:
    """One text, or a list of several."""
    return _string(texts[0]) if len(texts) == 1 else f"[{', '.join(map(_string, texts))}]"


def _tables(made: ImportedInterface) -> Iterator[str]:
    yield from _settings(made.texts)
    for pkey, table in made.children.items():
        yield f"\n[child.{pkey}]"
        yield from _settings(table)


def _settings(texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    values = option_texts(texts)
    for option in (key for key in BY_NAME if key in values):
        value = values[option]
        if isinstance(value, str):
            yield f"{option} = {value if value.isdigit() else _string(value)}"
            continue
        line = f"{option} = [{', '.join(map(_string, value))}]"
        if len(line) <= _COLUMNS:
            yield line
        else:
            yield f"{option} = ["
            yield from (f"    {_string(text)}," for text in value)
            yield "]"


def _comment(text: str, indent: str) -> list[str]:
    printable = "".join(c if c.isprintable() else "?" for c in text)
    return textwrap.wrap(
        printable,
        _COLUMNS,
        initial_indent=f"# {indent}",
        subsequent_indent=f"# {indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _string(text: str) -> str:
    """A basic string of TOML, which knows the escapes of JSON."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
