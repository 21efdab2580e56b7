# SPDX-License-Identifier: BSD-2-Clause
"""The software RDMA devices of the lab's kernel, as far as the tests of ipoibu rely on them."""

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import INFINIBAND, python, shell
from tests.lab.bare import run

from .scenarios import multicast

pytestmark = pytest.mark.lab

FIRST = "fe80::ff:fe00:1"
SECOND = "fe80::ff:fe00:2"


def test_rxe_has_an_active_port_whose_first_gid_is_the_link_local_address(
    lab_kernel: Path, lab_release: str, tmp_path: Path
) -> None:
    script = """
        veth_pair va vb
        ip addr add 10.0.0.1/24 dev va
        rdma_up rxe0 rxe va
        cat /sys/class/infiniband/rxe0/ports/1/{state,gids/0,gids/1}
        ls -1 /dev/infiniband
    """
    result = run(lab_kernel, [shell(script)], directory=tmp_path)[0].check()
    for_subnet_managers = ["issm0"] if lab_release == "6.1" else []  # newer ones have none for RoCE
    assert result.output.splitlines() == [
        "4: ACTIVE",
        "fe80:0000:0000:0000:0000:00ff:fe00:0101",
        "0000:0000:0000:0000:0000:ffff:0a00:0001",
        *(*for_subnet_managers, "rdma_cm", "umad0", "uverbs0"),
    ]


def test_pyverbs_opens_rxe(lab_kernel: Path, tmp_path: Path) -> None:
    describe = python("tests.lab.scenarios.device:describe", "rxe0")
    script = 'link_up vec0; rdma_up rxe0 rxe vec0; exec "$@"'
    first, _ = run(
        lab_kernel, [[*shell(script), "lab", *describe], shell("link_up vec0")], directory=tmp_path
    )
    port = json.loads(first.check().output.splitlines()[-1])
    assert port["name"] == "rxe0"
    assert port["state"] == 4  # IBV_PORT_ACTIVE
    assert port["active_mtu"] == 5  # IBV_MTU_4096
    assert port["gid"] == "fe80:0000:0000:0000:0000:00ff:fe00:0001"


@pytest.mark.parametrize("kind", ["ud", "rc"])
def test_verbs_ping_pong_between_two_machines(lab_kernel: Path, tmp_path: Path, kind: str) -> None:
    prepare = "link_up vec0 9000 10.0.0.$LAB_INDEX/24; rdma_up rxe0 rxe vec0; "
    pingpong = f"ibv_{kind}_pingpong -e -d rxe0 -g 0 -n 500"
    server = shell(f"{prepare} {pingpong} & listening 18515; meet listening; wait $!")
    client = shell(f"{prepare} meet listening; {pingpong} 10.0.0.1")
    first, second = run(lab_kernel, [server, client], directory=tmp_path)
    for result, other in ((first, SECOND), (second, FIRST)):
        assert f"GID {other}" in result.check().output.partition("remote address")[2]
        assert "500 iters in" in result.output


def test_verbs_ping_pong_within_one_machine(lab_kernel: Path, tmp_path: Path) -> None:
    script = """
        veth_pair va vb
        rdma_up rxe0 rxe va
        ibv_rc_pingpong -e -d rxe0 -g 0 -n 500 & listening 18515
        ibv_rc_pingpong -e -d rxe0 -g 0 -n 500 127.0.0.1
        wait $!
    """
    result = run(lab_kernel, [shell(script)], directory=tmp_path)[0].check()
    assert result.output.count("500 iters in") == 2


def test_rping_over_siw(lab_kernel: Path, tmp_path: Path) -> None:
    prepare = "link_up vec0 9000 10.0.0.$LAB_INDEX/24; rdma_up siw0 siw vec0; "
    server = shell(f"{prepare} rping -s -a 10.0.0.1 -C 20 -v & listening 7174; meet up; wait $!")
    # At its end rping may close the event channel that its own thread reads, and fail.
    client = shell(f"{prepare} meet up; rping -c -a 10.0.0.1 -C 20 -v || true")
    first, second = run(lab_kernel, [server, client], directory=tmp_path)
    assert first.check().output.count("ping data: rdma-ping-") == 20
    assert second.check().output.count("ping data: rdma-ping-") == 20


@pytest.fixture(scope="module")
def multicast_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = Path(multicast.__file__).with_suffix(".c")
    program = tmp_path_factory.mktemp("multicast") / "multicast"
    subprocess.run(
        ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", source, "-o", program, "-libverbs"], check=True
    )
    return program


def _multicast(
    kernel: Path, program: Path, directory: Path, kernel_arguments: Sequence[Sequence[str]] = ()
) -> list[str]:
    inside = f"/src/{program.name}"
    receiver, sender = run(
        kernel,
        [python(multicast.receive, inside), python(multicast.send, inside)],
        share=program.parent,
        kernel_arguments=kernel_arguments,
        directory=directory,
    )
    sender.check()
    return receiver.check().output.splitlines()


def test_native_multicast_needs_an_ip_level_join_besides_the_attach(
    lab_kernel: Path, multicast_program: Path, tmp_path: Path
) -> None:
    assert _multicast(lab_kernel, multicast_program, tmp_path) == [
        f"datagram grh=1 slid=0 src_qp=1 source={SECOND} group={multicast.MGID} "
        "next=0x11 length=48 payload=to-the-joined"
    ]


def test_an_infiniband_port_hands_over_a_grh_as_infiniband_has_it(
    lab_kernel: Path, multicast_program: Path, tmp_path: Path
) -> None:
    """The next header is 0x1b and no length counts UDP (IBA volume 1, 8.3), though the wire is RoCEv2."""
    received = _multicast(lab_kernel, multicast_program, tmp_path, [INFINIBAND, INFINIBAND])
    # Attaching joins: whether the datagram before the second join comes depends on who is faster.
    assert re.fullmatch(
        rf"datagram grh=1 slid=[1-9]\d* src_qp=1 source={SECOND} group={multicast.MGID} "
        "next=0x1b length=40 payload=to-the-joined",
        received[-1],
    )


def test_rdma_cm_joins_a_group_with_a_q_key_of_its_own(lab_kernel: Path, tmp_path: Path) -> None:
    """The kernel takes no group whose Q_Key is another (cmp_rec() of drivers/infiniband/core/multicast.c)."""
    script = """
        link_up vec0; rdma_up rxe0 rxe vec0; meet up
        ip link set ib0 up; ip addr add 10.9.0.1/24 dev ib0; reach 10.9.0.1
        mckey -b 10.9.0.1 -m 239.1.2.3 -c 1 -C 0
    """
    result = run(lab_kernel, [shell(script)], kernel_arguments=[INFINIBAND], directory=tmp_path)[
        0
    ].check()
    assert "joined dgid: ff12:4001:ffff::" in result.output


def test_an_infiniband_port_tells_its_counters(lab_kernel: Path, tmp_path: Path) -> None:
    prepare = "link_up vec0; rdma_up rxe0 rxe vec0; meet up; "
    asker = """
        ip link set ib0 up; ip addr add 10.9.0.1/24 dev ib0; meet addresses; reach 10.9.0.2
        cat /sys/class/infiniband/rxe0/ports/1/counters/port_xmit_packets
        perfquery -x -C rxe0 2 # by the peer's LID
        meet done"""
    peer = "ip link set ib0 up; ip addr add 10.9.0.2/24 dev ib0; meet addresses; meet done"
    first, second = run(
        lab_kernel,
        [shell(prepare + asker), shell(prepare + peer)],
        kernel_arguments=[INFINIBAND, INFINIBAND],
        directory=tmp_path,
    )
    second.check()
    lines = [line for line in first.check().output.splitlines() if line]
    assert int(lines[0]) > 0
    [heard] = [line for line in lines if line.startswith("PortRcvPkts")]
    assert int(heard.rpartition(".")[2]) > 0


def test_a_datagram_without_a_link_is_lost_and_no_more(lab_kernel: Path, tmp_path: Path) -> None:
    """rxe ends a queue pair whose packet the net device refuses: QP1 here, and with it the port's SA."""
    script = """
        veth_pair va vb; rdma_up rxe0 rxe va
        ip neigh replace fe80::ff:fe00:102 lladdr 02:00:00:00:01:02 dev va nud permanent
        has_carrier() { [[ $(</sys/class/net/$1/carrier) == "$2" ]]; }
        ip link set vb down; until_true 20 "no carrier" has_carrier va 0
        if perfquery -t 100 -C rxe0 0x102; then exit 1; fi # by the LID of vb
        ip link set vb up; until_true 20 "the port" rdma_ready rxe0
        ip link set ib0 up; until_true 20 "the broadcast group" has_carrier ib0 1
    """
    run(lab_kernel, [shell(script)], kernel_arguments=[INFINIBAND], directory=tmp_path)[0].check()
