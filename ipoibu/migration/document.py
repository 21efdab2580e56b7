# SPDX-License-Identifier: BSD-2-Clause
"""Writes an interface as a configuration file of ours."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from ipoibu.daemon.options import BY_NAME
from ipoibu.migration.assembly import Interface, option_texts

_COLUMNS: Final = 100


def document(made: Interface) -> str:
    """The whole file. Without a device it is one that `ipoibu config check` refuses in words."""
    return "\n".join([*_head(made), *_device(made), *_tables(made)]) + "\n"


def _head(made: Interface) -> Iterator[str]:
    sources = dict.fromkeys(str(place.path) for place in made.sources)
    yield from _comment(f"{made.name}: `ipoibu import` wrote this from {', '.join(sources)}", "")
    if made.notes:
        yield "# Not carried over:"
        for note in made.notes:
            yield from _comment(str(note), "  ")


def _device(made: Interface) -> Iterator[str]:
    if made.device is None:
        yield from _comment(
            f"Name the device: `ls /sys/class/net/{made.name}/device/infiniband` on a host with the"
            " kernel's interface",
            "",
        )
        yield '# device = "mlx5_0/1"'
    else:
        yield f"device = {_string(made.device)}"


def _tables(made: Interface) -> Iterator[str]:
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
