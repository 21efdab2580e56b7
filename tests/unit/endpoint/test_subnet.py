# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints on ports that have a subnet administrator: `FakeSa` and the in-process fabric."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipoibu import Endpoint, EndpointConfig, LinkError, PKey, UsageError
from ipoibu._core import MemorySwitch
from ipoibu.base.errors import Closed, NotPermitted
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.flush import Flush, flushes_of
from ipoibu.fabric.memory import MemoryPort, MemoryUd
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.sa.link import join_link
from ipoibu.proto.sa.errors import InsufficientComponents, NoAnswer
from ipoibu.wire import mgid
from ipoibu.wire.ip import checksum
from ipoibu.wire.mcmember import JoinState
from ipoibu.wire.notice import Trap
from ipoibu.wire.sa import Attribute, Capability2, SaMad
from tests.doubles.administered import (
    BROADCAST,
    DEFAULT,
    PACE,
    IbPort,
    Subnet,
    passes,
    receives,
    report,
    states,
    udp,
    until,
)
from tests.doubles.fake_sa import FakePort, FakeSa, port_gid


@pytest.fixture
def subnet() -> Iterator[Subnet]:
    made = Subnet()
    yield made
    made.close()


# -- the link --------------------------------------------------------------------------------------


def test_b1_the_link_is_as_the_broadcast_groups_record_says(subnet: Subnet) -> None:
    """B1."""
    subnet.sa.make_broadcast(DEFAULT, qkey=0x1B1B, mtu_bytes=1024, sl=3)
    shown = subnet.host().show()
    assert (shown["qkey"], shown["ib_mtu"], shown["mtu"]) == ("0x00001b1b", 1024, 1020)
    until(lambda: bool(states(subnet.sa, BROADCAST, 2) & JoinState.FULL_MEMBER))
    until(lambda: subnet.endpoints[0].show()["state"] == "up")


def test_b4_a_link_without_a_broadcast_group_is_refused_and_not_created(subnet: Subnet) -> None:
    """B4."""
    subnet.sa.forget()
    with pytest.raises(InsufficientComponents, match="ipoib"):
        subnet.host()
    assert BROADCAST not in subnet.sa.groups


def test_b2_a_link_that_the_port_cannot_carry_is_refused_and_left(subnet: Subnet) -> None:
    """B2."""
    subnet.sa.make_broadcast(DEFAULT, mtu_bytes=4096)
    with pytest.raises(LinkError, match=r"carries an InfiniBand MTU of 2048.*has 4096"):
        subnet.host()
    assert not states(subnet.sa, BROADCAST, 2)


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"qkey": 5}, "Q_Key is 0xb1b, not 0x5"), ({"mtu": 4092}, "MTU of 2044, not 4092")],
)
def test_options_that_contradict_the_link_are_refused(
    subnet: Subnet, fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        subnet.host(**fields)


def test_a_port_outside_of_the_partition_is_refused_with_its_p_keys_and_the_line_to_add(
    subnet: Subnet,
) -> None:
    with pytest.raises(LinkError, match=r"no P_Key 0x8005; it has: 0xffff.*ib8005=0x0005, ipoib"):
        subnet.host(pkey=PKey(0x8005))


def test_b3_a_controlled_q_key_needs_permission(subnet: Subnet) -> None:
    """B3."""
    subnet.sa.make_broadcast(DEFAULT, qkey=0x80000001)
    port = subnet.port()
    with pytest.raises(NotPermitted, match="CAP_NET_RAW"):
        join_link(
            port.sa,
            port.info,
            pkey=DEFAULT,
            qkey=None,
            mtu_bytes=None,
            may_control=lambda: False,
        )
    assert not states(subnet.sa, BROADCAST, 2)


def test_b3_an_endpoint_asks_its_port_for_the_permission(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3. A port that needs no privilege, as the built-in HCA, permits it."""
    subnet.sa.make_broadcast(DEFAULT, qkey=0x80000001)
    assert subnet.host().show()["qkey"] == "0x80000001"
    monkeypatch.setattr(IbPort, "may_control", lambda self: False, raising=False)
    with pytest.raises(NotPermitted, match=r"0x80000001 is a controlled one \(bit 31\)"):
        subnet.host()


def test_b3_holds_without_an_sa_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """B3."""
    port = MemoryPort(MemorySwitch(1), port_gid(2))
    config = EndpointConfig("h", "memory", qkey=0x80000001)
    with Endpoint(config, port=port) as endpoint:
        assert endpoint.show()["qkey"] == "0x80000001"
    monkeypatch.setattr(MemoryPort, "may_control", lambda self: False, raising=False)
    with pytest.raises(NotPermitted, match="CAP_NET_RAW"):
        Endpoint(config, port=port).open()


def test_m4_a_second_interface_in_a_partition_of_the_port_is_refused_and_the_first_unharmed(
    subnet: Subnet,
) -> None:
    """M4. As in the kernel (ENOTUNIQ): a leave of one interface would end the other's membership."""
    endpoint = subnet.host()
    with pytest.raises(UsageError, match="in partition 0xffff already"):
        endpoint.child(DEFAULT).open()
    assert states(subnet.sa, BROADCAST, 2) & JoinState.FULL_MEMBER
    assert endpoint.show()["state"] == "up"


def test_e7_a_limited_member_uses_its_limited_key(subnet: Subnet) -> None:
    """E7."""
    shown = subnet.host(pkeys=(0x7FFF,)).show()
    assert (shown["pkey"], shown["membership"]) == ("0xffff", "limited")


def test_a_file_has_nothing_to_say_where_there_is_an_sa(subnet: Subnet) -> None:
    with pytest.raises(UsageError, match="the subnet administrator sets"):
        subnet.host(partitions=Path("/etc/opensm/partitions.conf"))


def test_an_interface_that_does_not_come_up_leaves_the_link(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: IbPort, params: PartitionParams) -> MemoryUd:
        raise LinkError("no queue pair")

    monkeypatch.setattr(IbPort, "open_ud", fail)
    with pytest.raises(LinkError, match="no queue pair"):
        subnet.host()
    until(lambda: not states(subnet.sa, BROADCAST, 2))


def test_an_sa_that_does_not_answer_is_named(subnet: Subnet) -> None:
    subnet.sa.is_deaf = True
    with pytest.raises(NoAnswer):
        subnet.host()


# -- traffic ---------------------------------------------------------------------------------------


def test_b6_hosts_reach_each_other_by_paths(subnet: Subnet) -> None:
    """B6."""
    subnet.host(), subnet.host()
    assert passes(subnet, 1, 2, b"there")
    assert passes(subnet, 2, 1, b"and back")
    asked = [message for message in subnet.sa.seen if message.attribute == 0x35]
    assert len(asked) == 2  # each once: the client does not ask again for a known path


def test_b6_what_a_narrow_path_does_not_carry_is_dropped_counted_and_answered(
    subnet: Subnet,
) -> None:
    """B6, C12, C13: ICMP reports the path's MTU; narrower packets pass, and wide ones to other hosts."""
    subnet.sa.path_mtus[port_gid(3)] = 1024
    first, second = subnet.host(), subnet.host()
    subnet.host()
    assert passes(subnet, 1, 2, bytes(1020 - 20))
    assert passes(subnet, 1, 3, bytes(2044 - 20))
    packet = bytearray(udp(1, "10.0.0.2", bytes(1021 - 20)))
    packet[6] = 0x40  # don't fragment
    packet[10:12] = checksum(bytes(packet[:20])).to_bytes(2, "big")
    first.send([bytes(packet)])
    (answer,) = first.recv(timeout=10)
    # RFC 1191 §4: type 3, code 4, next-hop MTU in the low half of the second word
    assert answer[20:22] == b"\3\4"
    assert answer[26:28] == (1020).to_bytes(2, "big")
    assert first.stats()["tx_too_big"] == 1
    assert second.recv(timeout=0) == []


def test_m1_who_sends_to_a_group_is_a_send_only_member_of_it(subnet: Subnet) -> None:
    """M1."""
    first, second = subnet.host(), subnet.host()
    tv = ipaddress.ip_address("239.1.2.3")
    group = mgid.of_group(tv, DEFAULT)
    second.join(tv)
    until(lambda: receives(second, group))
    assert states(subnet.sa, group, 3) & JoinState.FULL_MEMBER
    first.send([udp(1, "239.1.2.3", b"news")])
    assert second.recv(timeout=10) == [udp(1, "239.1.2.3", b"news")]
    assert states(subnet.sa, group, 2) == JoinState.SEND_ONLY_FULL_MEMBER
    second.leave(tv)
    until(lambda: not states(subnet.sa, group, 3))  # M4
    first.close()
    until(lambda: not states(subnet.sa, group, 2))


def test_m1_where_senders_may_not_create_the_group_its_packets_go_to_the_routers(
    subnet: Subnet,
) -> None:
    """M1."""
    subnet.sa.capability2 = Capability2(0)
    first, router = subnet.host(), subnet.host()
    routers = ipaddress.ip_address("224.0.0.2")
    router.join(routers)
    until(lambda: receives(router, mgid.of_group(routers, DEFAULT)))
    first.send([udp(1, "239.1.2.3", b"far")])
    assert router.recv(timeout=10) == [udp(1, "239.1.2.3", b"far")]
    assert mgid.of_group(ipaddress.ip_address("239.1.2.3"), DEFAULT) not in subnet.sa.groups


@pytest.mark.parametrize("others", [("239.9.9.9",), ("224.0.0.2",), ()])
def test_m4_the_routers_group_is_left_with_the_last_group_whose_packets_go_there(
    subnet: Subnet, others: tuple[str, ...]
) -> None:
    """M4."""
    subnet.sa.capability2 = Capability2(0)
    first, router = subnet.host(), subnet.host()
    routers, tv = map(ipaddress.ip_address, ("224.0.0.2", "239.1.2.3"))
    to_routers, to_tv = mgid.of_group(routers, DEFAULT), mgid.of_group(tv, DEFAULT)
    until(lambda: (Trap.GROUP_CREATED, 2) in subnet.sa.subscribers)
    router.join(routers)
    until(lambda: receives(router, to_routers))
    for group in (str(tv), *others):
        first.send([udp(1, group, b"far")])
        assert router.recv(timeout=10) == [udp(1, group, b"far")]
    assert states(subnet.sa, to_routers, 2) == JoinState.SEND_ONLY_NON_MEMBER
    router.join(tv)
    until(lambda: receives(router, to_tv))
    report(subnet, Trap.GROUP_CREATED, to_tv)
    until(lambda: bool(states(subnet.sa, to_tv, 2)))
    first.send([udp(1, str(tv), b"near")])
    assert router.recv(timeout=10) == [udp(1, str(tv), b"near")]
    if others:
        client = subnet.ports[0].sa
        client.submit(client.class_port_info).result()  # behind a leave
        assert states(subnet.sa, to_routers, 2) == JoinState.SEND_ONLY_NON_MEMBER
        first.close()
    until(lambda: not states(subnet.sa, to_routers, 2))


def test_closing_leaves_every_group(subnet: Subnet) -> None:
    endpoint = subnet.host()
    until(lambda: bool(states(subnet.sa, BROADCAST, 2)))
    endpoint.close()
    subnet.ports[0].close()
    assert not any(states(subnet.sa, group, 2) for group in subnet.sa.groups)


# -- changes ---------------------------------------------------------------------------------------


def test_an_sa_that_forgot_is_joined_again_while_traffic_goes_on(subnet: Subnet) -> None:
    subnet.host(), subnet.host()
    assert passes(subnet, 1, 2, b"before")
    subnet.sa.is_deaf = True
    subnet.sa.forget()
    assert passes(subnet, 1, 2, b"without an SA")
    subnet.sa.make_broadcast(DEFAULT)
    subnet.sa.is_deaf = False
    for host in (2, 3):
        until(lambda host=host: bool(states(subnet.sa, BROADCAST, host)))  # type: ignore[misc]
    assert passes(subnet, 2, 1, b"after")
    assert subnet.failures == []


def test_b1_an_sa_that_falls_silent_while_the_link_comes_up_is_asked_again(subnet: Subnet) -> None:
    """B1. The interface joins the broadcast group twice: before it has a queue pair, and to receive it."""

    def die_after_one_join(answer: SaMad) -> list[SaMad]:
        subnet.sa.is_deaf |= answer.attribute == Attribute.MC_MEMBER_RECORD
        return [answer]

    subnet.sa.spoil = die_after_one_join
    port = subnet.port()
    with Endpoint(EndpointConfig("h1", "memory"), port=port) as endpoint:
        until(lambda: any(one["state"] == "backoff" for one in endpoint.groups()))
        subnet.sa.spoil = lambda answer: [answer]
        subnet.sa.is_deaf = False
        until(lambda: bool(endpoint.show()["state"] == "up"))
        until(lambda: bool(states(subnet.sa, BROADCAST, 2) & JoinState.FULL_MEMBER))


def test_m2_a_group_that_the_sa_reports_as_deleted_is_joined_again(subnet: Subnet) -> None:
    """M2."""
    endpoint = subnet.host()
    tv = ipaddress.ip_address("239.1.2.3")
    group = mgid.of_group(tv, DEFAULT)
    endpoint.join(tv)
    until(lambda: bool(states(subnet.sa, group, 2)))
    until(lambda: (Trap.GROUP_DELETED, 2) in subnet.sa.subscribers)
    until(lambda: any(one["mgid"] == str(group) for one in endpoint.groups()))
    until(
        lambda: all(
            one["state"] == "member" for one in endpoint.groups() if one["mgid"] == str(group)
        )
    )
    del subnet.sa.groups[group]
    report(subnet, Trap.GROUP_DELETED, group)
    until(lambda: bool(states(subnet.sa, group, 2)))


def test_a_change_of_lid_is_down_and_up(subnet: Subnet) -> None:
    subnet.host(), subnet.host()
    assert passes(subnet, 1, 2, b"before")
    mads = subnet.ports[0].mads
    mads.info = replace(mads.info, lid=9)
    subnet.sa.plug(mads)
    until(lambda: subnet.ports[0].sa.info.lid == 9)
    until(lambda: subnet.endpoints[0].show()["state"] == "up")
    assert passes(subnet, 1, 2, b"after")


def test_m2_at_another_lid_the_reports_are_asked_for_again(subnet: Subnet) -> None:
    """M2. The SA sends them to the LID that subscribed."""
    subnet.host()
    traps = Trap.GROUP_CREATED, Trap.GROUP_DELETED
    until(lambda: {(trap, 2) for trap in traps} <= subnet.sa.subscribers)
    mads = subnet.ports[0].mads
    mads.info = replace(mads.info, lid=9)
    subnet.sa.plug(mads)
    until(lambda: {(trap, 9) for trap in traps} <= subnet.sa.subscribers)


def test_the_levels_of_a_flush_are_the_kernels() -> None:
    info = FakePort(FakeSa()).info
    assert flushes_of(info, info) == []
    assert flushes_of(info, replace(info, sa_lid=5)) == [Flush.LIGHT]
    assert flushes_of(info, replace(info, lid=5, sa_lid=5)) == [Flush.NORMAL]
    assert flushes_of(info, replace(info, pkeys=(), lid=5)) == [Flush.HEAVY, Flush.NORMAL]


def test_what_the_device_says_is_acted_on_at_once(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLIENT_REREGISTER, PORT_ERR and PKEY_CHANGE: light, normal, heavy; the client's own look would show
    none of them."""
    monkeypatch.setattr("ipoibu.fabric.sa.client.LOOK_S", 3600)
    client = SaClient.start(lambda: SaClient(FakePort(subnet.sa, 9), pace=PACE))
    heard: list[object] = []
    client.listen(heard.append)
    client.device_event(Flush.HEAVY)  # the table is as it was
    client.device_event(Flush.LIGHT)
    until(lambda: heard == [Flush.LIGHT])
    client.device_event(Flush.NORMAL)
    until(lambda: heard == [Flush.LIGHT, Flush.NORMAL])
    assert client.counters()["sa_rejoined"] == 1
    client.close()
    client.device_event(Flush.LIGHT)
    assert heard == [Flush.LIGHT, Flush.NORMAL]


def test_an_administrator_that_is_closed_says_so(subnet: Subnet) -> None:
    client = subnet.port().sa
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.submit(client.class_port_info)


def test_a_client_that_cannot_be_opened_leaves_no_thread() -> None:
    def fail() -> SaClient:
        raise LinkError("no port")

    with pytest.raises(LinkError, match="no port"):
        SaClient.start(fail)
