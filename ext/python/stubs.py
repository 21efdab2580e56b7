# SPDX-License-Identifier: BSD-2-Clause
"""Writes the type stubs of the extension modules from their sources; `--check` compares only.

A `def` of a .pyx file carries its types: C types before an argument, annotations behind it and
behind the arguments. `#: TYPE` at the end of a line gives an attribute's type where C has none.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
PACKAGE: Final = HERE.parents[1] / "ipoibu"
STUBS: Final = {
    "fabric.pyx": PACKAGE / "_core" / "fabric.pyi",
    "device.pyx": PACKAGE / "_core" / "device.pyi",
    "pump.pyx": PACKAGE / "_core" / "pump.pyi",
    "libc.pyx": PACKAGE / "sandbox" / "_libc.pyi",
    "ceiling.pyx": PACKAGE / "bench" / "_ceiling.pyi",
    "verbs.pyx": PACKAGE / "_verbs.pyi",
}
NATIVE: Final = """\
class _Native(Protocol):
    @property
    def native(self) -> object: ...
"""
PREAMBLES: Final = {
    "fabric.pyx": f"""\
from typing import Final, Protocol

from ipoibu.base.ib import Destination, RcAttributes

{NATIVE}""",
    "device.pyx": """\
from collections.abc import Iterable
from typing import Final, Self
""",
    "pump.pyx": f"""\
from typing import Final, Protocol

from ipoibu.base.ib import Destination

{NATIVE}""",
    "libc.pyx": "",
    "ceiling.pyx": "import socket\n",
    "verbs.pyx": """\
from typing import Final, Protocol

class _QueuePair(Protocol):
    @property
    def qp_num(self) -> int: ...
""",
}
# Constants that a module makes of the lines of a C table: after which constant they come, the table,
# and what stands before their names.
TABLES: Final = {"EVENTS": ("pump/records/pump_abi.h", "IPU_EVENTS", "EVENT_")}
C_TYPES: Final = {"bint": "bool", "double": "float", "str": "str", "bytes": "bytes"}
HIDDEN: Final = {"__dealloc__", "__releasebuffer__", "__init__"}
BUFFER: Final = "    def __buffer__(self, flags: int, /) -> memoryview: ..."

CLASS: Final = re.compile(r"(?:cdef )?class (\w+)(?:\((\w+)\))?:")
ATTRIBUTE: Final = re.compile(r"    cdef readonly ([\w ]+?) (\w+)(?:\s+#(:?)\s*(.*))?$")
CONSTANT: Final = re.compile(r"(\s*)(\w+) = [^#]*(?:#: (.*))?$")
DEF: Final = re.compile(r"( *)def (\w+)\((.*)\)(?: -> (.*))?:$", re.DOTALL)


def python_type(c_type: str) -> str:
    """`uint32_t` -> `int`; the names of classes stay."""
    c_type = c_type.removesuffix(" not None").strip()
    if c_type in C_TYPES or c_type[0].isupper():
        return C_TYPES.get(c_type, c_type)
    return "object" if c_type == "object" else "int"


def argument(text: str) -> str:
    text = " ".join(text.split()).replace(" not None", "")
    if text in ("self", "*") or ":" in text:
        return re.sub(r" ?= ?.*$", " = ...", text)
    declared, _, default = text.partition("=")
    c_type, _, name = declared.strip().rpartition(" ")
    kind = python_type(c_type)
    if default.strip() == "None":
        kind += " | None"
    return f"{name}: {kind}" + (" = ..." if default else "")


def arguments(text: str) -> str:
    """Split at the commas outside of brackets."""
    parts, depth, part = [], 0, ""
    for char in text:
        depth += (char in "([") - (char in ")]")
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    return ", ".join(argument(part) for part in [*parts, part] if part.strip())


def lines(name: str) -> Iterator[str]:
    """Return the lines of a source, with those of the files that it includes."""
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        included = re.match(r'include "(.*)"$', line)
        if included:
            yield from lines(included[1])
        else:
            yield line


def statements(name: str) -> Iterator[str]:
    """Return the lines of the source; a `def` over several lines is one line."""
    held = ""
    for line in lines(name):
        held = f"{held}\n{line}" if held else line
        if held.lstrip().startswith("def ") and not held.rstrip().endswith(":"):
            continue
        yield held
        held = ""


def stub_of(name: str) -> str:
    out = ["# SPDX-License-Identifier: BSD-2-Clause", f"# Made by ext/python/stubs.py from {name}."]
    out += ["", PREAMBLES[name]]
    decorators: list[str] = []
    of_class = False
    for line in statements(name):
        if match := CLASS.match(line):
            base = f"({match[2]})" if match[2] else ""
            out += ["", f"class {match[1]}{base}:"]
            of_class = True
        elif of_class and (match := ATTRIBUTE.match(line)):
            declared = match[4].split(";")[0] if match[3] else python_type(match[1])
            out += ["    @property", f"    def {match[2]}(self) -> {declared}: ..."]
        elif re.match(r"\s*@(property|\w+\.setter)", line):
            decorators.append(line)
        elif match := DEF.match(line):
            out += definition(match, decorators)
            decorators = []
        elif (match := CONSTANT.match(line)) and (match[2].isupper() or match[3]):
            out.append(f"{match[1]}{match[2]}: Final[{match[3] or 'int'}]")
            out += lines_of_table(*TABLES[match[2]]) if match[2] in TABLES else []
        elif line and not line.startswith((" ", "#", "@")):
            of_class = False
    return "\n".join(filled(out)) + "\n"


def lines_of_table(header: str, table: str, prefix: str) -> list[str]:
    """Return a constant for each X(NAME, ...) of the table."""
    text = (HERE.parent / header).read_text(encoding="utf-8")
    rows = text.split(f"#define {table}(X)")[1].split("\n\n")[0]
    return [f"{prefix}{name}: Final[int]" for name in re.findall(r"\bX\((\w+)", rows)]


def definition(match: re.Match[str], decorators: list[str]) -> list[str]:
    indent, name, given, result = match.groups()
    if name in HIDDEN:
        return []
    if name == "__getbuffer__":
        return [BUFFER]
    if name == "__cinit__":
        name, result = "__init__", "None"
    if result is None:
        raise SystemExit(f"{name}: it has no return type")
    gap = [] if indent else [""]
    return [*gap, *decorators, f"{indent}def {name}({arguments(given)}) -> {result}: ..."]


def filled(lines: list[str]) -> Iterator[str]:
    """A class without members gets three dots."""
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        is_empty = line.startswith("class ") and not following.startswith(" ")
        yield f"{line} ..." if is_empty else line


def main() -> int:
    stale = []
    for name, path in STUBS.items():
        text = stub_of(name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(PACKAGE.parent)))
    if stale:
        print(f"out of date, run ext/python/stubs.py: {', '.join(stale)}", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
