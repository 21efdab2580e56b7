# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's own ib_ipoib, unmodified, against ipoibu; first against itself, to prove the fabric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .runner import INFINIBAND, python, run, shell
from .scenarios import own_sa

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240, func_only=True)]

SCENARIOS = '"$LAB_INSIDE/../scenarios'
PRELUDE = f'. {SCENARIOS}/verbs_host.sh"; . {SCENARIOS}/judge_host.sh"\n'
KERNEL = "kernel"

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
LARGE = {
    "datagram": [
        "it pings over IPv4 with 4064 bytes, unfragmented",
        "it pings over IPv6 with 4044 bytes",
    ],
    "connected": [
        "it pings over IPv4 with 60000 bytes, unfragmented",
        "it pings over IPv6 with 59980 bytes",
    ],
}
PAIRS = [
    ("datagram", KERNEL, KERNEL),
    ("connected", KERNEL, KERNEL),
    ("datagram", "rxe0", KERNEL),
    ("datagram", KERNEL, "rxe0"),
    ("datagram", "soft:vec0", KERNEL),
    ("datagram", KERNEL, "soft:vec0"),
]


def judge(kernel: Path, directory: Path, mode: str, *hosts: str) -> list[dict[str, str]]:
    """What every host has tried, and with which success."""
    commands = [
        shell(
            PRELUDE
            + (
                f"link_up vec0; rdma_up rxe0 rxe vec0; judge {host} {mode}"
                if host == KERNEL
                else f"as_host {host} judge {host} {mode}"
            )
        )
        for host in hosts
    ]
    arguments = [INFINIBAND if host == KERNEL else () for host in hosts]
    results = run(kernel, commands, directory=directory, timeout_s=150, kernel_arguments=arguments)
    for result in results:
        result.check()
    files = [directory / f"behaviours-{result.name}" for result in results]
    return [dict(line.split("\t") for line in file.read_text().splitlines()) for file in files]


@pytest.mark.parametrize(("mode", "first", "second"), PAIRS)
def test_two_hosts_of_a_link_do_all_that_the_kernels_own_do(
    lab_kernel: Path, tmp_path: Path, mode: str, first: str, second: str
) -> None:
    expected = dict.fromkeys(COMMON + LARGE[mode], "yes")
    for tried in judge(lab_kernel, tmp_path, mode, first, second):
        assert tried == expected
    for name in ("tcp4-1", "tcp4-2", "tcp6-1", "tcp6-2"):
        report = json.loads((tmp_path / f"{name}.json").read_text())
        assert report["end"]["sum_received"]["bits_per_second"] > 10e6, name
    for name in ("udp-1", "udp-2"):
        received = json.loads((tmp_path / f"{name}.json").read_text())["end"]["sum"]
        assert received["lost_percent"] < 5, name


def test_the_administrator_of_a_port_answers_our_client(lab_kernel: Path, tmp_path: Path) -> None:
    first, _ = run(
        lab_kernel,
        [python(own_sa.ask), shell("link_up vec0")],
        directory=tmp_path,
        kernel_arguments=[(*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x8001")] * 2,
    )
    said = json.loads(first.check().output.splitlines()[-1])
    assert 0xC000 <= said.pop("group") == said.pop("sender") < 0xFFFF
    assert said == {
        "send-only full members": True,
        "broadcast ffff": [4096, 0x0B1B],
        "broadcast 8001": [4096, 0x0B1B],
        "path ffff": [2, 1, "fe80::ff:fe00:2", 64],
        "path 8001": [2, 1, "fe80::ff:fe00:2", 64],
        "no path off the subnet": "NoRecords",
        "no path in a foreign partition": "NoRecords",
        "no join in a foreign partition": "InvalidRequest",
        "no tables": "Unsupported",
    }


def test_without_the_parameter_rxe_is_a_roce_port(lab_kernel: Path, tmp_path: Path) -> None:
    [result] = run(
        lab_kernel,
        [
            shell(
                "veth_pair va vb; rdma_up rxe0 rxe va; cat /sys/class/infiniband/rxe0/ports/1/link_layer; "
                "[[ ! -e /sys/class/net/ib0 ]]"
            )
        ],
        directory=tmp_path,
    )
    assert result.check().output.split() == ["Ethernet"]
