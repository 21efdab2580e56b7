# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --sm`: OpenSM manages the ports of the kernel's own ib_ipoib, and of ipoibu."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.lab import Lab

pytestmark = pytest.mark.lab

PORT = "/sys/class/infiniband/rxe0/ports/1"
OPENSM = (
    "OSM_TMP_DIR=/tmp/opensm OSM_CACHE_DIR=/tmp/opensm"
    " opensm -F /tmp/opensm/opensm.conf </dev/null >/tmp/opensm/output 2>&1 &"
)
PARTITIONS = """\
Default=0x7fff, ipoib, mtu=5 : ALL=full;
blue=0x8001, ipoib, mtu=5 : 0xfffe000001=full, 0xfffe000002=full;
"""
LOG = "/run/lab/a/opensm.log"


@pytest.fixture(scope="module")
def lab(lab_kernel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Three machines: OpenSM in a and, in reserve, in b; c runs ipoibu."""
    directory = tmp_path_factory.mktemp("sm")
    file = directory / "partitions.conf"
    file.write_text(PARTITIONS)
    with Lab(
        guests=3,
        sm=2,
        kernel=lab_kernel,
        ipoib="kernel,kernel,ipoibu",
        partitions=file,
        output=directory / "run",
    ) as lab:
        for machine in lab.guests:  # the manager of b may have been first, on a busy machine
            lid = lab.a.succeed(f"cat {PORT}/lid").strip()
            machine.wait_until_succeeds(f"[[ $(cat {PORT}/sm_lid) == {lid} ]]", timeout=60)
        yield lab


def test_the_manager_configures_every_port(lab: Lab) -> None:
    lids = [int(it.succeed(f"cat {PORT}/lid"), 0) for it in lab.guests]
    assert len({*lids}) == 3
    assert {it.succeed(f"cat {PORT}/sm_lid") for it in lab.guests} == {f"{lids[0]:#x}\n"}
    assert lab.b.succeed(f"cat {PORT}/pkeys/[0-2]").split() == ["0xffff", "0x8001", "0x0000"]
    assert lab.c.succeed(f"cat {PORT}/pkeys/[0-2]").split() == ["0xffff", "0x0000", "0x0000"]
    for machine, other in zip(lab.guests, (lab.b, lab.c, lab.a), strict=True):
        machine.succeed(f"ping -c 1 -W 5 {other.ipv4}; ping -c 1 -W 5 {other.ipv6}")


def test_the_usual_programs_work(lab: Lab) -> None:
    """Tables of several segments, directed routes through the switch, datagrams by LID alone."""
    found = lab.c.succeed("ibnetdiscover")
    assert 'Switch\t3 "S-000000fffe00ff00"' in found
    assert all(f'"{name} rxe0"' in found for name in "abc")
    assert lab.c.succeed("saquery").count("NodeRecord dump") == 4
    assert lab.b.succeed("saquery -g").count("MGID") >= 4
    assert "SMINFO_MASTER" in lab.a.succeed("sminfo")  # to itself
    lid = int(lab.b.succeed(f"cat {PORT}/lid"), 0)
    lab.b.succeed("ibping -S </dev/null >/dev/null 2>&1 &")
    lab.c.wait_until_succeeds(f"ibping -c 1 {lid} | grep -q ' 1 received'", timeout=30)
    assert "PortXmitPkts" in lab.c.succeed(f"perfquery {lid} 1")
    assert "0 bad nodes" in lab.a.succeed("ibqueryerrors")
    assert "State: Active" in lab.c.succeed("ibstat rxe0")


def test_a_partition_takes_a_member_in(lab: Lab) -> None:
    lab.a.succeed("ip address add 10.1.0.1/24 dev ib0.8001")
    lab.b.succeed("ip address add 10.1.0.2/24 dev ib0.8001; ping -c 1 -W 5 10.1.0.1")
    file = lab.directory / "partitions.conf"
    file.write_text(PARTITIONS.replace("0xfffe000002=full;", "0xfffe000002=full, 0xfffe000003;"))
    lab.a.wait_until_succeeds(
        "kill -HUP $(cat /run/opensm.pid); sleep 0.5; smpquery pkeys $(ibaddr -G 0xfffe000003 |"
        " sed 's/.*start //; s/ end.*//') | grep -i 0x0001",
        timeout=60,
    )
    assert lab.c.succeed(f"cat {PORT}/pkeys/1").strip() == "0x0001"


def test_a_link_that_goes_and_comes_back_is_noticed(lab: Lab) -> None:
    lab.c.succeed(
        "pkill -x ipoibu; while pgrep -x ipoibu; do sleep 0.1; done; rdma link delete rxe0"
    )
    lab.a.wait_until_fails("ibnetdiscover | grep fffe000003", timeout=30)
    lab.a.wait_until_succeeds(f"grep 'GID out of service' {LOG}", timeout=30)  # trap 65
    began = lab.a.succeed(f"wc -l <{LOG}").strip()
    lab.c.succeed("rdma link add rxe0 type rxe netdev vec0")
    lab.c.wait_until_succeeds(f"grep ACTIVE {PORT}/state", timeout=30)
    # trap 64
    lab.a.wait_until_succeeds(f"tail -n +{began} {LOG} | grep 'GID in service'", timeout=30)


def test_a_standby_takes_over_until_a_manager_of_higher_priority_is_back(lab: Lab) -> None:
    successor = lab.b.succeed(f"cat {PORT}/lid")
    lab.a.succeed("kill -9 $(cat /run/opensm.pid)")
    lab.a.wait_until_succeeds(f"[[ $(cat {PORT}/sm_lid) == {successor.strip()} ]]", timeout=60)
    lab.a.wait_until_succeeds("sminfo | grep MASTER", timeout=30)
    lab.a.wait_until_succeeds(f"ping -c 1 -W 1 {lab.b.ipv4}", timeout=30)
    own = lab.a.succeed(f"cat {PORT}/lid").strip()
    lab.a.succeed(OPENSM)
    lab.b.wait_until_succeeds(f"[[ $(cat {PORT}/sm_lid) == {own} ]]", timeout=60)
    lab.b.wait_until_succeeds(
        "grep Entering /run/lab/b/opensm.log | tail -n 1 | grep STANDBY", timeout=60
    )
    lab.a.wait_until_succeeds(f"ping -c 1 -W 1 {lab.b.ipv4}", timeout=30)


def test_a_lid_moves(lab: Lab) -> None:
    """A manager that knows other LIDs of before finds the subnet without one."""
    for machine in (lab.b, lab.a):
        machine.succeed("pkill -9 -x opensm; while pgrep -x opensm; do sleep 0.1; done")
    lab.a.succeed(
        "echo 0x000000fffe000002 0x0030 0x0030 >/tmp/opensm/guid2lid",
        "sed -i '/^honor_guid2lid_file/s/FALSE/TRUE/' /tmp/opensm/opensm.conf",
        OPENSM,
    )
    lab.b.wait_until_succeeds(f"grep 0x30 {PORT}/lid", timeout=60)
    for machine, other in ((lab.a, lab.b), (lab.b, lab.a)):
        machine.wait_until_succeeds(f"ping -c 1 -W 1 {other.ipv4}", timeout=30)
