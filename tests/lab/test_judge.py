# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's own ib_ipoib, unmodified, against ipoibu; first against itself, to prove the fabric."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipoibu.lab.machines.judge import (
    COMMON,
    KERNEL,
    LARGE,
    PORT,
    RXE,
    RXE_CM,
    SCRIPTS,
    SOFT,
    SOFT_IB,
    judge,
    play,
)
from ipoibu.lab.machines.runner import INFINIBAND, python, shell, source
from tests.lab.bare import run

from .judge import BEGIN, END, PAGE, PAIRS, table
from .scenarios import own_sa

PRELUDE = source(*SCRIPTS)
CASES = (*SCRIPTS, Path(__file__).parent / "scenarios" / "judge_cases.sh")

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240, func_only=True)]


# Pairs with the kernel in the first place repeat, from the other end, the tests of other pairs, or try
# the kernel alone. The built-in HCA with the control plane of rxe differs from it in its SA only, which
# the pair of mode "partition" tries.
MATRIX = [
    pytest.param(
        *pair,
        marks=[pytest.mark.nightly]
        if pair[1] == KERNEL
        or pair in [("datagram", SOFT_IB, KERNEL), ("connected", SOFT_IB, KERNEL)]
        else [],
    )
    for pair in PAIRS
]


@pytest.mark.parametrize(("mode", "first", "second"), MATRIX)
def test_two_hosts_of_a_link_do_all_that_the_kernels_own_do(
    lab_kernel: Path, tmp_path: Path, mode: str, first: str, second: str
) -> None:
    expected = dict.fromkeys(COMMON + LARGE[mode], "yes")
    for tried in judge(lab_kernel, tmp_path, mode, first, second):
        assert tried == expected
    for name in ("tcp4-1", "tcp4-2", "tcp6-1", "tcp6-2"):
        report = json.loads((tmp_path / f"{name}.json").read_text())
        assert report["end"]["sum_received"]["bytes"] > 100_000, name
    for name in ("udp-1", "udp-2"):
        received = json.loads((tmp_path / f"{name}.json").read_text())["end"]["sum"]
        assert received["lost_percent"] < 5, name


@pytest.mark.parametrize("host", [RXE, SOFT_IB])
def test_a_child_made_at_run_time_meets_the_kernels(
    lab_kernel: Path, tmp_path: Path, host: str
) -> None:
    play(lab_kernel, tmp_path, (host, KERNEL), "children", scripts=CASES)


@pytest.mark.parametrize("host", [RXE, SOFT])
def test_a_dhcp_server_on_the_kernels_interface_gives_an_address(
    lab_kernel: Path, tmp_path: Path, host: str
) -> None:
    play(lab_kernel, tmp_path, (host, KERNEL), "dhcp", scripts=CASES)


@pytest.mark.parametrize("hosts", [(RXE, KERNEL), (RXE, RXE)])
def test_limited_members_of_a_partition_hear_nothing_of_each_other(
    lab_kernel: Path, tmp_path: Path, hosts: tuple[str, str]
) -> None:
    play(lab_kernel, tmp_path, hosts, "apart", limited=True, scripts=CASES)


@pytest.mark.parametrize("host", [RXE_CM, SOFT])
@pytest.mark.parametrize("side", ["ipoibu", "kernel"])
def test_a_connection_that_idles_is_reaped_and_made_again(
    lab_kernel: Path, tmp_path: Path, host: str, side: str
) -> None:
    quick = "sysctl -q net.ipv4.neigh.default.gc_interval=1" if side == "kernel" else ":"
    hosts = (host, KERNEL)
    play(lab_kernel, tmp_path, hosts, "idle", side, kernel_first=quick, scripts=CASES)


def test_a_partition_that_the_port_is_not_in_is_refused_by_name(
    lab_kernel: Path, tmp_path: Path
) -> None:
    [result, _] = run(
        lab_kernel,
        [
            shell(
                PRELUDE + "call verbs_machine:on_the_wire\n"
                "if ipoibu up ib9 --device rxe0 --pkey 0x8005 --address 10.9.0.1/24; then false; "
                "else echo status $?; fi"
            ),
            shell("link_up vec0"),
        ],
        directory=tmp_path,
        kernel_arguments=[PORT, PORT],
    )
    answers = result.check().output
    assert "rxe0/1: no P_Key 0x8005; it has: 0xffff, 0x8001" in answers
    assert "ib8005=0x0005, ipoib : 0x000000fffe000001=full;" in answers
    assert answers.endswith("status 1\n")


def test_the_doctor_asks_the_subnet_of_a_port(lab_kernel: Path, tmp_path: Path) -> None:
    [result, _] = run(
        lab_kernel,
        [
            shell(
                PRELUDE
                + "call verbs_machine:on_the_wire\nipoibu doctor --device rxe0 -j --pkey 0x8001"
            ),
            shell("link_up vec0"),
        ],
        directory=tmp_path,
        kernel_arguments=[PORT, PORT],
    )
    findings = {finding["check"]: finding for finding in json.loads(result.check().output)}
    assert [findings[name]["status"] for name in ("subnet_manager", "pkey", "broadcast_group")] == [
        "ok"
    ] * 3
    assert "an IP MTU of 4092" in findings["broadcast_group"]["detail"]


def test_the_page_has_the_table_of_these_tests() -> None:
    seen = [
        (pair, [dict.fromkeys(COMMON + LARGE[pair[0]], "yes") for _ in range(2)]) for pair in PAIRS
    ]
    assert BEGIN + table(seen) + END in PAGE.read_text()


def test_the_administrator_of_a_port_answers_our_client(lab_kernel: Path, tmp_path: Path) -> None:
    first, _ = run(
        lab_kernel,
        [python(own_sa.ask), shell("link_up vec0")],
        directory=tmp_path,
        kernel_arguments=[(*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x8001")] * 2,
    )
    answers = json.loads(first.check().output.splitlines()[-1])
    assert 0xC000 <= answers.pop("group") == answers.pop("sender") < 0xFFFF
    assert answers == {
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
