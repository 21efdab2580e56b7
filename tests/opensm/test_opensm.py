# SPDX-License-Identifier: BSD-2-Clause
"""The client against a real OpenSM: groups, paths, refusals, and OpenSM's death and return."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import UsageError
from ipoibu.fabric.partition.conf import parse
from ipoibu.fabric.partition.model import MemberType
from ipoibu.lab.ibsim import DEVICE, HOSTS_MAX, Ibsim, SimulationError, port_guid
from ipoibu.wire import mgid

pytestmark = pytest.mark.netns

Plug = Callable[[int], Callable[..., Any]]

DEFAULT: Final = PKey(0xFFFF)
BROADCAST: Final = str(mgid.broadcast(DEFAULT))
ONE_PARTITION: Final = "Default=0x7fff, ipoib : ALL=full;\n"
NON_MEMBER: Final = 2
SEND_ONLY_NON, SEND_ONLY_FULL = 4, 8


def group(number: int) -> str:
    return str(mgid.of_group(IPv4Address(f"239.0.{number >> 8}.{number & 0xFF}"), DEFAULT))


def gid(host: int) -> str:
    return str(Gid(bytes.fromhex("fe80000000000000") + port_guid(host).to_bytes(8, "big")))


def known(fabric: Ibsim, gid: str) -> bool:
    """Return whether OpenSM has the group, as another program on another host sees it."""
    return f"MGID....................{gid}\n" in fabric.output(4, "saquery", "MCMR", "--mgid", gid)


# -- what the SA gives -----------------------------------------------------------------------------


def test_b1_the_broadcast_group_has_every_parameter_of_the_link(fabric: Ibsim, plug: Plug) -> None:
    """B1."""
    fabric.start_opensm("Default=0x7fff, ipoib, mtu=3, rate=2, Q_Key=0x1b1b : ALL=full;")
    host = plug(2)
    record = host("broadcast", BROADCAST)
    assert (record["mtu_bytes"], record["rate"], record["qkey"]) == (1024, 2, 0x1B1B)
    assert (record["pkey"], record["scope"], record["join_state"]) == (0xFFFF, 2, 1)
    assert record["mlid"] >= 0xC000
    assert host("membership", BROADCAST)["mgid"] == BROADCAST
    host("leave", [BROADCAST])
    assert host("membership", BROADCAST)[0] == "NoRecords"
    assert host("group", BROADCAST)["mgid"] == BROADCAST


def test_the_port_is_seen_as_opensm_made_it(fabric: Ibsim, plug: Plug) -> None:
    fabric.start_opensm(ONE_PARTITION + f"two=0x2, ipoib : 0x{port_guid(3):x}=full;\n")
    info = plug(2)("info")
    assert (info["gid"], info["guid"], info["active"]) == (gid(2), port_guid(2), True)
    assert info["sa_lid"] == 1
    assert info["lid"] > 1
    assert info["pkeys"] == [0xFFFF]
    assert sorted(plug(3)("info")["pkeys"]) == [0x8002, 0xFFFF]


def test_b6_a_path_leads_to_another_host_of_the_partition(fabric: Ibsim, plug: Plug) -> None:
    """B6."""
    fabric.start_opensm(ONE_PARTITION)
    host, other = plug(2), plug(3)
    path = host("path", gid(3), 0xFFFF)
    here, there = host("info"), other("info")
    assert (path["slid"], path["dlid"]) == (here["lid"], there["lid"])
    assert (path["sgid"], path["dgid"], path["pkey"]) == (gid(2), gid(3), 0xFFFF)
    assert path["mtu_bytes"] == 2048
    error, text = host("path", gid(9), 0xFFFF)
    assert error == "NoRecords"
    assert gid(9) in text


def test_m1_opensm_takes_senders_that_create_their_group(fabric: Ibsim, plug: Plug) -> None:
    """M1."""
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    assert host("class_port_info")["sends"] is True
    host("broadcast", BROADCAST)
    assert host("join", [group(1)], SEND_ONLY_NON)[0] == "InvalidRequest"
    assert host("join_to_send", group(1))["join_state"] == SEND_ONLY_FULL
    assert host("join", [group(1)], SEND_ONLY_NON)[0]["join_state"] == SEND_ONLY_FULL | 4
    assert known(fabric, group(1))


def test_m7_a_non_member_hears_a_group_and_does_not_keep_it(fabric: Ibsim, plug: Plug) -> None:
    """M7."""
    fabric.start_opensm(ONE_PARTITION)
    host, router = plug(2), plug(3)
    for one in (host, router):
        one("broadcast", BROADCAST)
    assert router("join_existing", group(1), NON_MEMBER)[0] == "InvalidRequest"  # not there yet
    host("join", [group(1)])
    assert router("join_existing", group(1), NON_MEMBER)["join_state"] == NON_MEMBER
    host("leave", [group(1)])
    assert not known(fabric, group(1))


def test_m2_subscriptions_to_groups_coming_and_going_are_taken(fabric: Ibsim, plug: Plug) -> None:
    """M2."""
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    for trap in (66, 67):
        assert host("subscribe", trap) is None
    subscribed = fabric.output(4, "saquery", "IIR")
    assert subscribed.count(f"SubscriberGID...........{gid(2)}") == 2
    for trap in (66, 67):
        assert host("subscribe", trap, on=False) is None
    assert gid(2) not in fabric.output(4, "saquery", "IIR")


def test_a_short_table_of_groups_is_read(fabric: Ibsim, plug: Plug) -> None:
    # ibsim cuts longer ones off: see tests/unit/fabric/sa/test_client.py
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    host("broadcast", BROADCAST)
    host("join", [group(1)])
    assert {record["mgid"] for record in host("groups")} == {BROADCAST, group(1)}


def test_m3_m4_a_hundred_groups_are_joined_and_left_and_saquery_agrees(
    fabric: Ibsim, plug: Plug
) -> None:
    """M3, M4."""
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    host("broadcast", BROADCAST)
    wanted = [group(number) for number in range(1, 101)]

    def counts_nothing() -> bool:
        """On a busy machine OpenSM may answer so late that a request is repeated."""
        before = host("counts")
        records = host("join", wanted)
        assert {record["mgid"] for record in records} == set(wanted)
        assert len({record["mlid"] for record in records}) == 100
        with ThreadPoolExecutor(5) as pool:
            assert all(pool.map(lambda one: known(fabric, one), wanted))
        assert fabric.output(4, "saquery", "-g").count("MGID") == 3  # as many as ibsim lets through
        host("leave", wanted)
        assert fabric.output(4, "saquery", "-g").count("MGID") == 1
        assert host("held") == [BROADCAST]
        return bool(host("counts") == before)

    assert any(counts_nothing() for _ in range(3))


# -- refusals --------------------------------------------------------------------------------------


def test_b2_a_wrong_mtu_or_rate_is_refused_with_the_right_one(fabric: Ibsim, plug: Plug) -> None:
    """B2."""
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    host("broadcast", BROADCAST)
    error, text = host("join", [BROADCAST], mtu_bytes=4096)
    assert error == "InvalidRequest"
    assert BROADCAST in text
    assert "P_Key 0xffff, MTU 4096" in text
    assert "the group has MTU 2048; ask for that MTU, or set mtu=5" in text
    error, text = host("join", [BROADCAST], rate=2)
    assert error == "InvalidRequest"
    assert "the group has rate 3, not 2" in text


def test_b2_a_group_beyond_the_port_is_refused_with_what_to_lower(
    fabric: Ibsim, plug: Plug
) -> None:
    """B2."""
    fabric.start_opensm("Default=0x7fff, ipoib, mtu=5 : ALL=full;")
    error, text = plug(2)("broadcast", BROADCAST)
    assert error == "InvalidRequest"
    assert "the port cannot carry the group's MTU 4096 or rate 3; lower mtu=" in text


def test_b4_a_missing_broadcast_group_names_the_line_that_makes_it(
    fabric: Ibsim, plug: Plug
) -> None:
    """B4."""
    without = f"Default=0x7fff : ALL=full;\none=0x1 : 0x{port_guid(2):x}=full;\n"
    fabric.start_opensm(without)
    host = plug(2)
    for pkey, scope in ((DEFAULT, 2), (PKey(0x8001), 2), (PKey(0x8001), 5)):
        wanted = str(mgid.broadcast(pkey, scope))
        error, text = host("broadcast", wanted)
        assert error == "InsufficientComponents"
        assert wanted in text
        assert f"P_Key {pkey}" in text
        # the line that the error prints is the remedy
        fabric.reload(without + text.split("`ipoib`: ")[1])
        assert host("broadcast", wanted)["mgid"] == wanted


def test_e7_a_partition_that_the_port_is_not_in_is_named_with_the_guid_to_add(
    fabric: Ibsim, plug: Plug
) -> None:
    """E7."""
    there = f"two=0x2, ipoib : 0x{port_guid(3):x}=full"
    fabric.start_opensm(f"{ONE_PARTITION}{there};\n")
    host = plug(2)
    wanted = str(mgid.broadcast(PKey(0x8002)))
    assert plug(3)("broadcast", wanted)["pkey"] == 0x8002
    error, text = host("broadcast", wanted)
    assert error == "InvalidRequest"
    assert f"P_Key {PKey(0x8002)}" in text
    addition = f"0x{port_guid(2):016x}=full"
    assert f"this port is not in the partition; add {addition} to the line of 0x0002" in text
    assert host("path", gid(3), 0x8002)[0] == "NoRecords"
    fabric.reload(f"{ONE_PARTITION}{there}, {addition};\n")
    assert host("broadcast", wanted)["pkey"] == 0x8002


def test_a_group_that_does_not_exist_is_refused(fabric: Ibsim, plug: Plug) -> None:
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    error, text = host("join_existing", group(1))
    assert error == "InsufficientComponents"
    assert "no such group" in text
    assert host("leave", [group(1)])[0] == "InvalidRequest"
    assert host("group", group(1))[0] == "NoRecords"


# -- partitions.conf -------------------------------------------------------------------------------

MIXED: Final = """\
Default = 0x7fff , ipoib, rate=2 :
    mgid=ff12:401b::0707          # an IPv4 group
    mgid=ff12:601b::16,Q_Key=7    # an IPv6 group
    mgid=ff12:401b::9,mtu=5       # left out: not the link's MTU
    mgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2
    mgid=ff15:401b::ffff:ffff,scope=5
    ALL=full;
storage=0x8010, i, m=3, Q_Key=0x1234, TClass=3, FlowLabel=9 :
    0x100003=full, 0x100005;
noip=0x11, defmember=full : ALL, 0x100003=limited;
unnamed, ipoib : ALL=full; 0x13, indx0, ipoib, defmember=both : 0x100003;
storage=0x10, ipoib, mtu=2 : 0x100007=full;
"""


def test_opensm_reads_partitions_conf_as_we_do(fabric: Ibsim, plug: Plug) -> None:
    fabric.start_opensm(MIXED)
    partitions = parse(MIXED)
    hosts = {number: plug(number) for number in (2, 3)}
    names = ("qkey", "mtu_bytes", "rate", "traffic_class", "flow_label", "scope")
    expected, made = {}, {}
    for partition in partitions:
        for group in partition.groups:
            gid = str(group.mgid)
            if gid == "ff12::1":
                continue  # no IP group: the client does not ask for such
            expected[gid] = [partition.pkey.full, *(getattr(group, name) for name in names)]
            record = hosts[2]("group", gid)
            made[gid] = [record["pkey"], *(record[name] for name in names)]
    assert made == expected
    assert len(made) == 7
    assert hosts[2]("group", "ff12:401b:ffff::9")[0] == "NoRecords"
    for number, host in hosts.items():
        keys = {
            int(part.pkey) | (0x8000 if how is not MemberType.LIMITED else 0)
            for part in partitions
            if (how := part.membership(port_guid(number))) is not None
        }
        assert set(host("info")["pkeys"]) == keys
    assert hosts[2]("info")["pkeys"][0] & 0x7FFF == 0x13  # indx0


# A file: whether OpenSM rejects it. 0b101 is not here: OpenSM takes it where its C library does (glibc 2.38).
BLANKS: Final = {
    "S=5,ipoib:ALL=full;\r\n": True,
    "S=5,ipoib:\r\nALL=full;\n": True,
    "S=5,ipoib:ALL=\u00a0full;\n": False,
    "S=5,ipoib:\u00a0ALL=full;\n": True,
    "S=5,ipoib:ALL=full\v;\n": False,
    "S=5,ipoib:ALL=full;\f\n": True,
    "S=5,ipoib:ALL=full; # \u2028 \x85 \r\n": False,
    "S=5,ipoib:ALL=full;\0 T=6:ALL;\n": False,
    "S=5,ipoib:ALL=;\n": False,
    "S=+5,ipoib,mtu=4z:ALL=full;\n": False,
    "S=5,ipoib:ALL=full\nT=6,ipoib:ALL=full;\n": True,
    "S=5,ipoib:ALL=full\nN=6:ALL=full;\n": False,
    "S=5,ipoib:ALL=full\n": False,
    "#" + "x" * 4094 + "\nS=5,ipoib:ALL=full;\n": True,
    "#" + "x" * 4093 + "\nS=5,ipoib:ALL=full;\n": False,
    "S=5,ipoib:" + " " * 5000 + "ALL=full;\n": False,
    "S=5,ipoib:" + "0x200000=full," * 400 + "ALL=full;\n": True,
}


def test_opensm_has_the_blanks_lines_and_numbers_that_we_have(fabric: Ibsim) -> None:
    for text, is_rejected in BLANKS.items():
        fabric.start_opensm(ONE_PARTITION + text)
        log = fabric.log.read_text("utf-8", "replace")
        assert ("Partition configuration in error" in log) == is_rejected, text[-80:]
        keys = fabric.output(4, "smpquery", "-G", "pkeys", f"0x{port_guid(3):x}")
        fabric.kill_opensm()
        try:
            partitions = parse(ONE_PARTITION + text)
        except UsageError:
            assert is_rejected, text[-80:]
            continue
        assert not is_rejected, text[-80:]
        how = partitions.partition(PKey(5)).membership(port_guid(3))
        assert f"0x{0x8005 if how is MemberType.FULL else 5:04x}" in keys.lower(), text[-80:]


# -- OpenSM dies and returns -----------------------------------------------------------------------


def test_after_opensm_was_killed_and_started_again_everything_is_joined_again(
    fabric: Ibsim, plug: Plug
) -> None:
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    host("broadcast", BROADCAST)
    host("join", [group(1), group(2)])
    host("subscribe", 66)
    fabric.kill_opensm()
    error, text = host("path", gid(3), 0xFFFF)
    assert error == "NoAnswer"
    assert "no answer from the subnet administrator at LID 1; is opensm running?" in text
    assert host("changes", 1) == ["silent"]
    assert host("join_existing", group(3))[0] == "NoAnswer"
    fabric.start_opensm(ONE_PARTITION)
    assert host("changes", 2) == ["silent", "returned"]
    # the new one knows of nothing
    assert host("membership", BROADCAST)[0] == "NoRecords"
    assert host("group", group(1))[0] == "NoRecords"
    assert host("rejoin") == {}
    assert host("membership", BROADCAST)["mgid"] == BROADCAST
    assert known(fabric, group(1))
    assert known(fabric, group(2))
    assert gid(2) in fabric.output(4, "saquery", "IIR")
    assert host("path", gid(3), 0xFFFF)["dgid"] == gid(3)


@pytest.mark.timeout(600)
def test_an_opensm_that_was_killed_leaves_its_place_to_others(fabric: Ibsim) -> None:
    """ibsim has ten places, and frees that of a killed program only when it happens to send there."""
    for _ in range(12):
        fabric.start_opensm(ONE_PARTITION)
        fabric.kill_opensm()
    fabric.start_opensm(ONE_PARTITION)
    assert fabric.output(4, "saquery", "-g").count("MGID") == 1


def test_an_orderly_end_leaves_every_group(fabric: Ibsim, plug: Plug) -> None:
    fabric.start_opensm(ONE_PARTITION)
    host = plug(2)
    host("broadcast", BROADCAST)
    host("join", [group(1), group(2)])
    assert host("close") is None
    assert not known(fabric, group(1))
    assert not known(fabric, group(2))
    again = plug(2)
    assert again("membership", BROADCAST)[0] == "NoRecords"


def test_a_fabric_without_a_manager_is_named_in_the_error(fabric: Ibsim, plug: Plug) -> None:
    host = plug(2)
    assert host("info")["sa_lid"] == 0
    error, text = host("broadcast", BROADCAST)
    assert error == "NoAnswer"
    assert "no subnet manager has configured this port; start one (opensm)" in text


# -- devices ---------------------------------------------------------------------------------------

OPEN: Final = """
import sys
from ipoibu.base.errors import IpoibuError
from ipoibu.fabric.sa.umad import UmadPort
try:
    UmadPort(sys.argv[1], int(sys.argv[2]))
except IpoibuError as error:
    print(type(error).__name__, error)
"""


REOPEN: Final = """
import asyncio, os
from ipoibu.fabric.sa.client import SaClient

async def main():
    for round in range(40):
        client = SaClient.open("ibsim0")
        await client.class_port_info()
        client.abort()
        if round in (0, 39):
            print(len(os.listdir("/proc/self/fd")))

asyncio.run(main())
"""


def test_opening_and_closing_gives_port_and_agent_back_each_time(fabric: Ibsim) -> None:
    # libumad2sim has eight descriptors and 32 agents; an answer that comes after the end crashes it
    fabric.start_opensm(ONE_PARTITION)
    first, last = fabric.output(2, sys.executable, "-c", REOPEN).split()
    assert first == last


@pytest.mark.parametrize(("device", "port"), [("mlx5_0", 1), (DEVICE, 2)])
def test_a_port_that_does_not_exist_is_refused_with_a_list_of_those_that_do(
    fabric: Ibsim, device: str, port: int
) -> None:
    said = fabric.output(2, sys.executable, "-c", OPEN, device, str(port))
    expected = f"NoSuchDevice {device}/{port}: no such InfiniBand port; devices here: {DEVICE}\n"
    assert said == expected


def test_a_kernel_without_management_datagrams_is_refused_with_the_module_to_load() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN, "mlx5_0", "1"], capture_output=True, text=True, check=True
    )
    # on a machine that has them, the device is what is missing
    assert done.stdout.startswith(
        ("LinkError this kernel passes no management datagrams", "NoSuchDevice mlx5_0/1")
    )


def test_more_hosts_than_ibsim_serves_are_refused(fabric: Ibsim) -> None:
    with pytest.raises(SimulationError, match="up to 9 hosts"):
        Ibsim(fabric.directory, hosts=HOSTS_MAX + 1)


# -- the doctor ------------------------------------------------------------------------------------


def doctor(fabric: Ibsim, *options: str) -> str:
    """Return the doctor's output on host 2; the subnet does not mind that no host has the net device."""
    done = subprocess.run(
        [sys.executable, "-m", "ipoibu.cli", "doctor", "--device", f"soft:lo@{DEVICE}", *options],
        env={**fabric.environment(2), "PYTHONPATH": str(Path(__file__).parents[2])},
        cwd=fabric.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_b4_the_doctor_prints_the_line_that_makes_a_missing_broadcast_group(
    fabric: Ibsim,
) -> None:
    """B4."""
    fabric.start_opensm("Default=0x7fff : ALL=full;\n")
    said = doctor(fabric)
    assert "the link of 0xffff has no broadcast group" in said
    assert "add to partitions.conf: Default=0x7fff, ipoib : ALL=full;" in said
    said = doctor(fabric, "--pkey", "0x8001")
    assert "has no P_Key 0x8001; it has: 0xffff" in said
    line = f"ib8001=0x0001, ipoib : 0x{port_guid(2):016x}=full;"
    assert f"add to partitions.conf: {line}" in said
    fabric.reload(f"Default=0x7fff, ipoib : ALL=full;\n{line}\n")  # which does mend it
    assert "the link of 0x8001 has an IP MTU of 2044, Q_Key 0xb1b" in doctor(
        fabric, "--pkey", "0x8001"
    )


def test_the_doctor_names_a_subnet_without_a_manager(fabric: Ibsim) -> None:
    assert "no subnet manager has configured ibsim0/1" in doctor(fabric)
