# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's own ib_ipoib as the judge: the hosts that meet it in machines, and the behaviours that they
try."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from ipoibu.lab.machines.lab import Lab
from ipoibu.lab.machines.plan import NO_FABRIC
from ipoibu.lab.machines.roles import play as play_in
from ipoibu.lab.machines.runner import INFINIBAND, SCENARIOS, source

SCRIPTS = (SCENARIOS / "verbs_host.sh", SCENARIOS / "judge_host.sh")
PORT = (*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x8001")
LIMITED = (*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x0001")  # in the second partition
KERNEL, RXE, ROCE, SOFT = "kernel", "rxe0 (InfiniBand)", "rxe0 (RoCE)", "soft:vec0"
RXE_CM, SOFT_IB = "rxe0 (InfiniBand, no ib_cm)", "soft:vec0@rxe0"
SIW = "siw0 (iWARP)"  # the kernel has no IP over InfiniBand on it
LIMITED_KERNEL, LIMITED_RXE = "kernel (limited)", "rxe0 (InfiniBand, limited)"
HOSTS = {  # the name of each in judge_host.sh, and its kernel's arguments
    KERNEL: ("kernel", PORT),
    RXE: ("rxe0", PORT),
    RXE_CM: ("rxe0", (*PORT, "initcall_blacklist=ib_cm_init")),
    LIMITED_KERNEL: ("kernel", LIMITED),
    LIMITED_RXE: ("rxe0", LIMITED),
    ROCE: ("rxe0", ()),
    SOFT: ("soft:vec0", ()),
    SOFT_IB: ("soft:vec0@rxe0", PORT),
    SIW: ("siw0", ()),
}

JUDGE_S = 150.0  # for the hosts of a pair

# Each host of a pair tries these towards the other.
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


def play(
    kernel: Path,
    directory: Path,
    hosts: tuple[str, str],
    function: str,
    *arguments: str,
    limited: bool = False,
    kernel_first: str = ":",
    scripts: Sequence[Path] = SCRIPTS,
) -> None:
    """Run `FUNCTION HOST WORD...` in each machine; `scripts` define the function.

    The kernel's hosts run `kernel_first` before they make their RDMA device. `limited` makes all
    hosts limited members of the second partition. Raise MachineFailed unless every machine ends well.
    """
    commands = []
    for host in hosts:
        name, _ = HOSTS[host]
        script = shlex.join([function, name, *arguments])
        if name == "kernel":
            script = f"link_up vec0; {kernel_first}; rdma_up rxe0 rxe vec0; {script}"
        else:
            script = f"as_host {name} {script}"
        commands.append(source(*scripts) + script)
    lab = Lab(
        len(hosts),
        kernel=kernel,
        fabric=NO_FABRIC,
        output=directory,
        kernel_arguments=[LIMITED if limited else HOSTS[host][1] for host in hosts],
    )
    for result in play_in(lab, commands, JUDGE_S):
        result.check()


def behaviours(directory: Path) -> list[dict[str, str]]:
    """Return for each host the behaviours that it tried, with `yes` or `no` for success."""
    tried: list[dict[str, str]] = []
    for name in "ab":
        file = directory / f"behaviours-{name}"
        lines = file.read_text().splitlines() if file.exists() else []
        tried.append(dict(line.split("\t") for line in lines))
    return tried


def judge(
    kernel: Path, directory: Path, mode: str, first: str, second: str
) -> list[dict[str, str]]:
    """Let two hosts try everything towards each other, and return their behaviours."""
    play(kernel, directory, (first, second), "judge", mode)
    return behaviours(directory)
