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
KERNEL, RXE, ROCE, SOFT = "kernel", "rxe0 (InfiniBand)", "rxe0 (RoCE)", "soft:vec0"
RXE_CM = "rxe0 (InfiniBand, no ib_cm)"
HOSTS = {  # what each is to judge_host.sh, and what its kernel is told
    KERNEL: ("kernel", PORT),
    RXE: ("rxe0", PORT),
    RXE_CM: ("rxe0", (*PORT, "initcall_blacklist=ib_cm_init")),
    ROCE: ("rxe0", ()),
    SOFT: ("soft:vec0", ()),
}

# What each host of a pair tries towards the other.
COMMON = [
    "it resolves by ARP and pings",
    "it resolves by ND and pings",
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
    ("partition", RXE, KERNEL),
    ("partition", SOFT, KERNEL),
]


def judge(kernel: Path, directory: Path, mode: str, *hosts: str) -> list[dict[str, str]]:
    """What every host has tried, and with which success."""
    commands = [
        shell(
            PRELUDE
            + (
                f"link_up vec0; rdma_up rxe0 rxe vec0; judge kernel {mode}"
                if host == KERNEL
                else f"as_host {HOSTS[host][0]} judge {HOSTS[host][0]} {mode}"
            )
        )
        for host in hosts
    ]
    arguments = [HOSTS[host][1] for host in hosts]
    results = run(kernel, commands, directory=directory, timeout_s=150, kernel_arguments=arguments)
    for result in results:
        result.check()
    files = [directory / f"behaviours-{result.name}" for result in results]
    return [dict(line.split("\t") for line in file.read_text().splitlines()) for file in files]


PAGE: Final = ROOT / "docs" / "conformance.md"
BEGIN: Final = "<!-- python -m tests.lab.judge: what is below was seen in guests -->\n"
END: Final = "<!-- end of what was seen in guests -->\n"
LARGEST: Final = "it pings up to the MTU, and in mixed mode beyond, over IPv4 and IPv6"


def table(seen: list[tuple[tuple[str, str, str], list[dict[str, str]]]]) -> str:
    """Behaviours down, pairs across: yes where both hosts of the pair can do it to each other."""
    names = [f"{first}, {second}: {mode}" for (mode, first, second), _ in seen]
    lines = ["| what each host does to the other | " + " | ".join(names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    for what in (*COMMON, LARGEST):
        cells = []
        for (mode, _, _), hosts in seen:
            parts = LARGE[mode] if what == LARGEST else [what]
            good = all(host.get(part) == "yes" for host in hosts for part in parts)
            cells.append("yes" if good else "no")
        lines.append(f"| {what} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


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
