# SPDX-License-Identifier: BSD-2-Clause
"""The pairs of hosts that meet in machines, and the table of docs/understand/conformance.md.

`python -m tests.lab.judge` runs every pair (ten minutes) and writes the table.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.judge import (
    COMMON,
    KERNEL,
    LARGE,
    LIMITED_KERNEL,
    LIMITED_RXE,
    ROCE,
    RXE,
    RXE_CM,
    SOFT,
    SOFT_IB,
    judge,
)
from ipoibu.lab.machines.kernels import find_kernel
from ipoibu.lab.machines.mounts import ROOT

PAIRS = [
    ("datagram", KERNEL, KERNEL),
    ("connected", KERNEL, KERNEL),
    ("datagram", RXE, KERNEL),
    ("datagram", KERNEL, RXE),
    ("datagram", ROCE, KERNEL),
    ("datagram", KERNEL, ROCE),
    ("datagram", SOFT, KERNEL),
    ("datagram", KERNEL, SOFT),
    ("mixed", RXE, KERNEL),
    ("mixed", SOFT, KERNEL),
    ("connected", RXE_CM, KERNEL),
    ("connected", KERNEL, RXE_CM),
    ("connected", SOFT, KERNEL),
    ("connected", KERNEL, SOFT),
    ("asking", RXE, KERNEL),
    ("datagram", SOFT_IB, KERNEL),
    ("connected", SOFT_IB, KERNEL),
    ("partition", SOFT_IB, KERNEL),
    ("partition", RXE, KERNEL),
    ("partition", RXE, LIMITED_KERNEL),
    ("partition", LIMITED_RXE, KERNEL),
    ("partition", SOFT, KERNEL),
]

PAGE: Final = ROOT / "docs/understand/conformance.md"
BEGIN: Final = "<!-- python -m tests.lab.judge: what is below was seen in lab machines -->\n"
END: Final = "<!-- end of what was seen in lab machines -->\n"
LARGEST: Final = "it pings up to the MTU, and beyond what the other receives, over IPv4 and IPv6"


def table(seen: list[tuple[tuple[str, str, str], list[dict[str, str]]]]) -> str:
    """Return the numbered behaviours, and for each pair those that work in both directions."""
    behaviours = dict(enumerate((*COMMON, LARGEST), 1))
    lines = [f"{number}. {behaviour}" for number, behaviour in behaviours.items()]
    lines += ["", "| hosts | mode | works both ways | fails |", "|---|---|---|---|"]
    for (mode, first, second), hosts in seen:
        works: list[int] = []
        fails: list[int] = []
        for number, behaviour in behaviours.items():
            parts = LARGE[mode] if behaviour == LARGEST else [behaviour]
            good = all(host.get(part) == "yes" for host in hosts for part in parts)
            (works if good else fails).append(number)
        cells = [
            f"{first}, {second}",
            mode,
            _numbers(works, behaviours),
            _numbers(fails, behaviours),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _numbers(some: list[int], behaviours: dict[int, str]) -> str:
    """Return the numbers of a table's cell."""
    if len(some) == len(behaviours):
        return f"all {len(some)}"
    return ", ".join(map(str, some)) or "none"


def main() -> int:
    """Let every pair meet, and put the table into the page; the status is 1 if any host failed."""
    kernel = find_kernel()
    seen = []
    for pair in PAIRS:
        with tempfile.TemporaryDirectory(prefix="ipoibu-judge-") as directory:
            try:
                seen.append((pair, judge(kernel, Path(directory), *pair)))
            except LabError as error:
                print(f"{pair}: {error}", file=sys.stderr)
                return 1
    head, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    PAGE.write_text(head + begin + table(seen) + end + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
