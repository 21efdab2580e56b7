# SPDX-License-Identifier: BSD-2-Clause
"""The tester's link on Soft-RoCE as an InfiniBand port, with the kernel's ib_ipoib at the other end."""

import ipaddress
import json
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import INFINIBAND, python, run, shell

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
    for number, frame, sender, gid in zip(
        report["numbers"], report["frames"], report["senders"], report["gids"], strict=True
    ):
        peer, target = frame[24:64], frame[72:112]
        assert peer[8:] == gid == PEER
        assert int(peer[2:8], 16) == sender
        assert (target[2:], frame[64:72], frame[112:]) == (number[2:], "0a090002", "0a090001")
    assert "P_Key" in report["wrong_pkey"]  # rxe's table has one
    assert "ib_cm" in report["gsi"]
    assert report["connection"]
