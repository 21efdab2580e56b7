# SPDX-License-Identifier: BSD-2-Clause
"""Every group of the link, for a multicast router (M7), on the in-process fabric under `FakeSa`."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest

from ipoibu import Endpoint, EndpointConfig, PKey, UsageError
from ipoibu._core import MemorySwitch
from ipoibu.base.addr import Gid
from ipoibu.base.limits import GROUPS_MAX
from ipoibu.endpoint.subnet.allmulticast import AllMulticast
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.memory import MemoryPort, MemoryUd
from ipoibu.fabric.sa.client import SaClient
from ipoibu.proto.neigh.proxy_networks import ProxyRules
from ipoibu.proto.sa.records import link_params
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.notice import Trap
from tests.doubles.administered import DEFAULT, Subnet, report, states, udp, until
from tests.doubles.fake_sa import port_gid
from tests.doubles.simulation import TEMPLATE

TV: Final = ipaddress.ip_address("239.1.2.3")
RADIO: Final = ipaddress.ip_address("239.1.2.4")
TO_TV, TO_RADIO = mgid.of_group(TV, DEFAULT), mgid.of_group(RADIO, DEFAULT)


@pytest.fixture
def subnet() -> Iterator[Subnet]:
    made = Subnet()
    yield made
    made.close()


def is_member(subnet: Subnet, group: Gid, host: int, state: JoinState) -> bool:
    return bool(states(subnet.sa, group, host) & state)


def kinds(endpoint: Endpoint, group: Gid) -> list[Any]:
    return [one["kind"] for one in endpoint.groups() if one["mgid"] == str(group)]


def router(subnet: Subnet) -> Endpoint:
    endpoint = subnet.host(allmulticast=True)
    until(lambda: (Trap.GROUP_CREATED, 2) in subnet.sa.subscribers)
    return endpoint


def test_m7_a_router_hears_groups_that_others_have_made_without_keeping_them(
    subnet: Subnet,
) -> None:
    """M7."""
    endpoint = router(subnet)
    other, sender = subnet.host(), subnet.host()
    other.join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: states(subnet.sa, TO_TV, 2) == JoinState.NON_MEMBER)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    sender.send([udp(3, str(TV), b"news")])
    assert endpoint.recv(timeout=10) == [udp(3, str(TV), b"news")]
    assert next(one["groups"] for one in endpoint.groups() if one["kind"] == "non-member") == [
        str(TV)
    ]


def test_m7_groups_that_are_there_before_the_router_are_listed(subnet: Subnet) -> None:
    """M7."""
    subnet.host(), subnet.host()
    subnet.endpoints[1].join(TV)
    subnet.sa.make_broadcast(PKey(0x8005))  # of another partition, which does not concern us
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    endpoint = subnet.host(allmulticast=True)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    assert not states(subnet.sa, mgid.broadcast(PKey(0x8005)), 4)
    assert states(subnet.sa, mgid.broadcast(DEFAULT), 4) == JoinState.FULL_MEMBER


def test_a_group_that_is_gone_is_heard_no_more(subnet: Subnet) -> None:
    endpoint = router(subnet)
    other = subnet.host()
    other.join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    report(subnet, Trap.GROUP_DELETED, TO_TV)
    until(lambda: kinds(endpoint, TO_TV) == [])
    until(lambda: not states(subnet.sa, TO_TV, 2))


def test_what_the_host_itself_wants_is_received_before_and_after_it_is_wanted(
    subnet: Subnet,
) -> None:
    endpoint = router(subnet)
    sender = subnet.host()
    endpoint.join(TV)
    until(lambda: is_member(subnet, TO_TV, 2, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: is_member(subnet, TO_TV, 2, JoinState.NON_MEMBER))
    until(lambda: kinds(endpoint, TO_TV) == ["full"])
    endpoint.leave(TV)
    until(lambda: states(subnet.sa, TO_TV, 2) == JoinState.NON_MEMBER)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    sender.send([udp(2, str(TV), b"still")])
    assert endpoint.recv(timeout=10) == [udp(2, str(TV), b"still")]


def test_after_a_heavy_flush_and_a_new_sa_every_group_is_there_again(subnet: Subnet) -> None:
    endpoint = router(subnet)
    subnet.host().join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    mads = subnet.ports[0].mads
    before = endpoint.hwaddr
    mads.info = replace(mads.info, pkeys=(PKey(0x8003), DEFAULT))
    until(lambda: endpoint.hwaddr != before)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    subnet.sa.forget()
    subnet.sa.make_broadcast(DEFAULT)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    until(lambda: (Trap.GROUP_CREATED, 2) in subnet.sa.subscribers)
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: is_member(subnet, TO_TV, 2, JoinState.NON_MEMBER))


def test_after_an_sa_that_forgot_only_us_we_join_again(subnet: Subnet) -> None:
    endpoint = router(subnet)
    subnet.host().join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    for group in subnet.sa.groups.values():
        group.members.pop(port_gid(2), None)
    until(lambda: is_member(subnet, TO_TV, 2, JoinState.NON_MEMBER))


def test_at_the_cap_what_is_received_is_joined_again_all_the_same(
    subnet: Subnet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the interface, too: a new SA may have given the group another LID."""
    endpoint = router(subnet)
    subnet.host().join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    monkeypatch.setattr("ipoibu.endpoint.subnet.allmulticast.GROUPS_MAX", 1)
    attached: list[Gid] = []
    attach = MemoryUd.attach

    def note(self: MemoryUd, mgid: Gid, mlid: int = 0) -> None:
        attached.append(mgid)
        attach(self, mgid, mlid)

    monkeypatch.setattr(MemoryUd, "attach", note)
    subnet.ports[0].sa.device_event(Flush.LIGHT)
    until(lambda: TO_TV in attached)
    assert "engine.group_table_full" not in endpoint.stats()


def test_a_refusal_is_counted_and_the_rest_goes_on(subnet: Subnet) -> None:
    """M6."""
    endpoint = router(subnet)
    report(subnet, Trap.GROUP_CREATED, TO_TV)  # which does not exist: refused
    until(lambda: endpoint.stats().get("engine.group_join_refused", 0) == 1)
    subnet.host().join(RADIO)
    until(lambda: is_member(subnet, TO_RADIO, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_RADIO)
    until(lambda: kinds(endpoint, TO_RADIO) == ["non-member"])


def test_closing_leaves_what_was_joined_for_the_router(subnet: Subnet) -> None:
    endpoint = router(subnet)
    subnet.host().join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: is_member(subnet, TO_TV, 2, JoinState.NON_MEMBER))
    endpoint.close()
    until(lambda: not states(subnet.sa, TO_TV, 2))


def test_closing_leaves_a_group_whose_answer_has_just_come(subnet: Subnet) -> None:
    asked: list[asyncio.Future[Any]] = []
    left: list[Gid] = []

    class Sa(SaClient):
        def __init__(self) -> None: ...

        async def groups(self, pkey: PKey | None = None) -> Any:
            asked.append(asyncio.get_running_loop().create_future())
            return await asked[-1]

        async def join(self, group: Gid, *_: object) -> Any:
            return await self.groups()

    class Interface:
        params = link_params(subnet.sa.groups[mgid.broadcast(DEFAULT)].record)

        def __init__(self) -> None:
            self.loop = asyncio.get_running_loop()
            self.counts: Counter[str] = Counter()

    async def close_between() -> None:
        groups = AllMulticast(cast(Any, Interface()), Sa(), lambda record: None, left.append)
        groups.open()
        for answer in (McMemberRecord(mgid=TO_TV),), McMemberRecord(mgid=TO_TV):
            await asyncio.sleep(0.01)
            asked[-1].set_result(answer)
        groups.close()  # before the answer to the join was looked at
        await asyncio.sleep(0.01)

    asyncio.run(close_between())
    assert len(asked) == 2
    assert left == [TO_TV]


def test_m7_a_program_that_wants_all_groups_gets_them_while_it_does(subnet: Subnet) -> None:
    """M7: a multicast router on the kernel's interface, without an option."""
    endpoint, other = subnet.host(), subnet.host()
    other.join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    endpoint.allmulticast_changed(True)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])
    endpoint.allmulticast_changed(True)
    assert kinds(endpoint, TO_TV) == ["non-member"]
    endpoint.allmulticast_changed(False)
    until(lambda: not states(subnet.sa, TO_TV, 2))
    assert kinds(endpoint, TO_TV) == []


def test_no_program_ends_what_the_configuration_asks_for(subnet: Subnet) -> None:
    endpoint, other = router(subnet), subnet.host()
    other.join(TV)
    until(lambda: is_member(subnet, TO_TV, 3, JoinState.FULL_MEMBER))
    endpoint.allmulticast_changed(True)
    endpoint.allmulticast_changed(False)
    report(subnet, Trap.GROUP_CREATED, TO_TV)
    until(lambda: kinds(endpoint, TO_TV) == ["non-member"])


def test_a_proxy_for_a_large_network_hears_the_group_of_a_solicitation(subnet: Subnet) -> None:
    """The group exists from the moment of the asking host's join; the asking host repeats its request."""
    behind = ipaddress.IPv6Address("fd77:2::9")
    group = mgid.of_group(mgid.solicited_node(behind), DEFAULT)
    proxy, asking = subnet.host(), subnet.host()
    for endpoint, address in ((proxy, "fd77::2/64"), (asking, "fd77::3/64")):
        endpoint.address_added(address, is_checked=False)
    proxy.router_changed(True)
    proxy.answer_proxy(lambda sender, target: "specific" if target == behind else None)
    proxy.proxied_changed(ProxyRules((ipaddress.ip_network("fd77:2::/64"),)))

    def has_joined() -> bool:
        asking.ping(str(behind), 0.2)  # a busy machine may send nothing in that time
        return bool(states(subnet.sa, group, 3))

    until(has_joined)
    report(subnet, Trap.GROUP_CREATED, group)
    until(lambda: kinds(proxy, group) == ["non-member"])
    until(lambda: asking.ping(str(behind), 0.2)["hwaddr"] == str(proxy.hwaddr))
    proxy.proxied_changed(ProxyRules())
    until(lambda: kinds(proxy, group) == [])


def test_without_a_subnet_administrator_a_proxy_logs_nothing_about_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = MemoryPort(MemorySwitch(1), port_gid(2))
    with Endpoint(EndpointConfig("h", "memory"), port=port) as endpoint:
        endpoint.proxied_changed(ProxyRules(by_routes=True))
    assert not [line for line in caplog.messages if "all multicast groups" in line]


def test_without_a_subnet_administrator_a_program_that_wants_all_groups_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    port = MemoryPort(MemorySwitch(1), port_gid(2))
    with Endpoint(EndpointConfig("h", "memory"), port=port) as endpoint:
        for is_wanted in (True, True, False):
            endpoint.allmulticast_changed(is_wanted)
    lines = [line for line in caplog.messages if "all multicast groups" in line]
    assert len(lines) == 1


def test_allmulticast_needs_a_subnet_administrator() -> None:
    port = MemoryPort(MemorySwitch(1), port_gid(2))
    endpoint = Endpoint(EndpointConfig("h", "memory", allmulticast=True), port=port)
    with pytest.raises(UsageError, match="allmulticast needs a subnet administrator"):
        endpoint.open()


def test_g3_an_ip_group_is_read_from_an_mgid_as_far_as_possible() -> None:
    """G3."""
    assert mgid.ip_group(TO_TV) == TV
    all_nodes = ipaddress.ip_address("ff02::1")
    assert mgid.ip_group(mgid.of_group(all_nodes, DEFAULT)) == all_nodes
    assert mgid.ip_group(mgid.broadcast(DEFAULT)) is None


def test_reports_that_come_faster_than_we_join_lead_to_a_list() -> None:
    """Members can create and leave groups at any rate."""
    interface = Mock(params=TEMPLATE.params)
    table = AllMulticast(interface, Mock(), Mock(), Mock())
    table._must_list = False
    for number in range(2 * GROUPS_MAX):
        group = mgid.of_group(ipaddress.ip_address(0xE8000000 + number), DEFAULT)
        table.note_group(group, exists=True)
        assert len(table._news) <= GROUPS_MAX
    assert table._must_list
