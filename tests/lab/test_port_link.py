# SPDX-License-Identifier: BSD-2-Clause
"""The tester's link on Soft-RoCE as an InfiniBand port, with the kernel's ib_ipoib at the other end."""

import ipaddress
import json
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab.machines.runner import INFINIBAND, SCENARIOS, python, shell, source
from tests.lab.bare import run

pytestmark = pytest.mark.lab

PEER = ipaddress.ip_address("fe80::ff:fe00:2").packed.hex()
PREPARE = "link_up vec0 9000; rdma_up rxe0 rxe vec0; "


def test_the_kernels_ipoib_answers_each_queue_pair(lab_kernel: Path, tmp_path: Path) -> None:
    """E5, B1: the tester learns the link by joining it, and hears ARP replies at two addresses."""
    asker = python("tests.lab.scenarios.port_link:run", "rxe0", "10.9.0.1", "10.9.0.2")
    tester = [*shell(f'{PREPARE} meet up; "$@"; status=$?; meet done; exit $status'), "lab", *asker]
    kernel = f"{PREPARE} ip link set ib0 up; ip addr add 10.9.0.2/24 dev ib0; meet up; meet done"
    first, second = run(
        lab_kernel,
        [tester, shell(kernel)],
        kernel_arguments=[INFINIBAND, INFINIBAND],
        directory=tmp_path,
    )
    second.check()
    report = json.loads(first.check().output.splitlines()[-1])
    assert report["description"].startswith(
        "rxe0/1 (InfiniBand), GID fe80::ff:fe00:1, P_Key 0xffff"
    )
    assert report["mtu"] in (2044, 4092)
    check(report)
    assert "ib_cm" in report["gsi"]


def test_the_kernel_accepts_a_connection_and_answers_what_comes_by_it(
    lab_kernel: Path, tmp_path: Path
) -> None:
    """C8: without its ib_cm the tester's machine leaves queue pair 1 to the tester."""
    asker = python("tests.lab.scenarios.port_link:connect", "rxe0", "10.9.0.1", "10.9.0.2")
    tester = [*shell(f'{PREPARE} meet up; "$@"; status=$?; meet done; exit $status'), "lab", *asker]
    kernel = f"""{PREPARE} echo connected >/sys/class/net/ib0/mode; ip link set ib0 up
        ip addr add 10.9.0.2/24 dev ib0; meet up; meet done"""
    first, second = run(
        lab_kernel,
        [tester, shell(kernel)],
        kernel_arguments=[(*INFINIBAND, "initcall_blacklist=ib_cm_init"), INFINIBAND],
        directory=tmp_path,
    )
    second.check()
    report = json.loads(first.check().output.splitlines()[-1])
    assert report["queue_pair"] == "MINE"
    assert bytes.fromhex(report["frame"])[24:26] == bytes(2)  # an echo reply


def test_ipoibu_answers_each_queue_pair_of_a_roce_port(lab_kernel: Path, tmp_path: Path) -> None:
    """Address handles come later than the sends that need them, where the kernel looks for a MAC address."""
    asker = python("tests.lab.scenarios.port_link:run", "rxe0", "10.9.0.1", "10.9.0.2")
    prelude = source(SCENARIOS / "verbs_host.sh")
    grade = f'{prelude}as_host rxe0 meet up; "$@"; status=$?; meet done; exit $status'
    host = f"{prelude}host() {{ ib_up soft:vec0; meet up; meet done; ib_down; }}; as_host soft:vec0 host"
    first, second = run(
        lab_kernel, [[*shell(grade), "lab", *asker], shell(host)], directory=tmp_path
    )
    second.check()
    report = json.loads(first.check().output.splitlines()[-1])
    assert report["description"].startswith("rxe0/1 (Ethernet on vec0), GID fe80::ff:fe00:1")
    assert report["mtu"] == 2044
    check(report)
    assert "rdma_cm" in report["gsi"]


def check(report: dict[str, Any]) -> None:
    """Compare the ARP replies of the second machine with what the link says of their sender and receiver."""
    for number, frame, sender, gid in zip(
        report["numbers"], report["frames"], report["senders"], report["gids"], strict=True
    ):
        peer, target = frame[24:64], frame[72:112]
        assert peer[8:] == gid == PEER
        assert int(peer[2:8], 16) == sender
        assert (target[2:], frame[64:72], frame[112:]) == (number[2:], "0a090002", "0a090001")
    assert "P_Key" in report["wrong_pkey"]  # rxe's table has one
    assert report["connection"]
