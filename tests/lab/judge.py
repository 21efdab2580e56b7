# SPDX-License-Identifier: BSD-2-Clause
"""Which hosts meet the kernel's own ib_ipoib, and what they try.

`python -m tests.lab.judge` lets all of them (four minutes) and writes the table of docs/conformance.md.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from .runner import INFINIBAND, ROOT, LabError, find_kernel, run, shell

SCENARIOS = '"$LAB_INSIDE/../scenarios'
PRELUDE = f'. {SCENARIOS}/verbs_host.sh"; . {SCENARIOS}/judge_host.sh"\n'
PORT = (*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x8001")
LIMITED = (*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x0001")  # in the second partition
KERNEL, RXE, ROCE, SOFT = "kernel", "rxe0 (InfiniBand)", "rxe0 (RoCE)", "soft:vec0"
RXE_CM, SOFT_IB = "rxe0 (InfiniBand, no ib_cm)", "soft:vec0@rxe0"
LIMITED_KERNEL, LIMITED_RXE = "kernel (limited)", "rxe0 (InfiniBand, limited)"
HOSTS = {  # what each is to judge_host.sh, and what its kernel is told
    KERNEL: ("kernel", PORT),
    RXE: ("rxe0", PORT),
    RXE_CM: ("rxe0", (*PORT, "initcall_blacklist=ib_cm_init")),
    LIMITED_KERNEL: ("kernel", LIMITED),
    LIMITED_RXE: ("rxe0", LIMITED),
    ROCE: ("rxe0", ()),
    SOFT: ("soft:vec0", ()),
    SOFT_IB: ("soft:vec0@rxe0", PORT),
}

# What each host of a pair tries towards the other.
COMMON = [
    "it resolves by ARP and pings",
    "it resolves by ND and pings",
    "it pings with 0 to 9000 bytes over IPv4",
    "it pings with 0 to 9000 bytes over IPv6",
    "all nodes answer its ping",
    "an IPv4 group it has joined reaches it",
    "an IPv6 group it has joined reaches it",
    "it sends TCP over IPv4",
    "it sends TCP over IPv6",
    "it sends UDP",
    "it reaches the other after restart 1",
    "it reaches the other after restart 2",
]
_FULL = ["it pings over IPv4 with 4064 bytes", "it pings over IPv6 with 4044 bytes"]
_BEYOND = ["it pings over IPv4 with 20000 bytes", "it pings over IPv6 with 19980 bytes"]
LARGE = {
    "datagram": _FULL,
    "partition": _FULL,
    "mixed": _BEYOND,
    "asking": _BEYOND,
    "connected": [
        "it pings over IPv4 with 60000 bytes",
        "it pings over IPv6 with 59980 bytes",
    ],
}
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


def play(
    kernel: Path,
    directory: Path,
    hosts: tuple[str, str],
    function: str,
    *words: str,
    limited: bool = False,
    kernel_first: str = ":",
) -> None:
    """Let every host run a function of judge_host.sh, which is told what the host is, then `words`."""
    arguments = " ".join(words)
    commands = [
        shell(
            PRELUDE
            + (
                f"link_up vec0; {kernel_first}; rdma_up rxe0 rxe vec0; {function} kernel {arguments}"
                if HOSTS[host][0] == "kernel"
                else f"as_host {HOSTS[host][0]} {function} {HOSTS[host][0]} {arguments}"
            )
        )
        for host in hosts
    ]
    results = run(
        kernel,
        commands,
        directory=directory,
        timeout_s=150,
        kernel_arguments=[LIMITED if limited else HOSTS[host][1] for host in hosts],
    )
    for result in results:
        result.check()


def judge(
    kernel: Path, directory: Path, mode: str, first: str, second: str
) -> list[dict[str, str]]:
    """What every host has tried, and with which success."""
    play(kernel, directory, (first, second), "judge", mode)
    files = [directory / f"behaviours-{name}" for name in "ab"]
    return [dict(line.split("\t") for line in file.read_text().splitlines()) for file in files]


PAGE: Final = ROOT / "docs" / "conformance.md"
BEGIN: Final = "<!-- python -m tests.lab.judge: what is below was seen in guests -->\n"
END: Final = "<!-- end of what was seen in guests -->\n"
LARGEST: Final = "it pings up to the MTU, and beyond what the other receives, over IPv4 and IPv6"


def table(seen: list[tuple[tuple[str, str, str], list[dict[str, str]]]]) -> str:
    """The behaviours, numbered, and for each pair those that work in both directions."""
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
    """The numbers of a table's cell."""
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
            except (LabError, AssertionError) as error:
                print(f"{pair}: {error}", file=sys.stderr)
                return 1
    head, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, tail = rest.partition(END)
    PAGE.write_text(head + begin + table(seen) + end + tail)
    return 0


if __name__ == "__main__":
    sys.exit(main())
