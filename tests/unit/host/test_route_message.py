# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import ipaddress
import struct

import pytest

from ipoibu.base.route import NextHop
from ipoibu.host import route_message
from ipoibu.host.route_message import (
    RouteEntry,
    RouteReader,
    ipv6_host_of,
    nexthop_number,
    output_interfaces,
    route_prefix_bits,
    routed_group,
    unicast_network,
)
from tests.doubles.prefixes import network_of
from tests.unit.host.route_messages import INDEX, OTHER, message


def _read(data: bytes, *, removed: bool = False) -> tuple[str, RouteEntry]:
    found = RouteReader(INDEX).read(data, 0, removed=removed)
    assert found is not None
    return str(network_of(found[0])), found[1]


def _vias(entry: RouteEntry) -> list[str]:
    return [str(hop.via) for hop in entry.hops]


def test_a_route_without_destination_is_the_default_route() -> None:
    network, entry = _read(message("0.0.0.0/0", "10.0.0.9"))
    assert network == "0.0.0.0/0"
    assert entry.hops == (NextHop(ipaddress.ip_address("10.0.0.9")),)
    network, entry = _read(message("::/0"))
    assert (network, entry.hops) == ("::/0", (NextHop(None),))


def test_an_ipv4_network_may_have_an_ipv6_gateway() -> None:
    network, entry = _read(message("10.6.0.0/16", "fe80::7"))
    assert (network, _vias(entry)) == ("10.6.0.0/16", ["fe80::7"])


def test_of_several_next_hops_those_over_the_interface_count_with_their_weights() -> None:
    hops = [(OTHER, "10.8.0.1", 1), (INDEX, "10.7.0.1", 3), (INDEX, "10.7.0.2", 1)]
    _, entry = _read(message("10.6.0.0/16", hops=hops))
    assert [(str(hop.via), hop.weight) for hop in entry.hops] == [("10.7.0.1", 3), ("10.7.0.2", 1)]
    _, entry = _read(message("10.6.0.0/16", hops=hops[:1]))
    assert not entry.is_ours


def test_a_route_over_another_interface_is_not_ours() -> None:
    assert not _read(message("10.6.0.0/16", "10.8.0.1", index=OTHER))[1].is_ours


def test_a_dead_hop_counts_only_where_its_route_is_removed() -> None:
    dead = message("10.6.0.0/16", "10.7.0.1", flags=route_message.RTNH_F_DEAD)
    assert not _read(dead)[1].is_ours
    assert _read(dead, removed=True)[1].is_ours


@pytest.mark.parametrize("kind", [2, 4, 5, 6, 7])  # local, anycast, multicast, blackhole ...
def test_routes_whose_packets_never_reach_the_interface_are_left_out(kind: int) -> None:
    assert RouteReader(INDEX).read(message("10.6.0.0/16", kind=kind), 0) is None


def test_a_broadcast_route_keeps_its_kind() -> None:
    _, entry = _read(message("10.0.0.255/32", kind=3, table=255))
    assert (entry.kind, entry.hops, entry.is_ours) == ("broadcast", (), True)


def test_table_metric_preference_and_source_are_read() -> None:
    data = message("10.6.0.0/16", table=4711, metric=50, source="10.0.0.1", tos=16)
    _, entry = _read(data)
    assert (entry.table, entry.metric, entry.tos) == (4711, 50, 16)
    assert entry.source == bytes((10, 0, 0, 1))
    for wire, preference in ((1, 1), (0, 0), (3, -1), (2, 0)):
        assert _read(message("::/0", "fe80::1", pref=wire, proto=9))[1].preference == preference


def test_equal_entries_are_one_object_and_the_memory_of_them_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(route_message, "ROUTE_KNOWN_MAX", 4)
    reader = RouteReader(INDEX)
    first = reader.read(message("10.1.0.0/16", "10.0.0.2"), 0)
    second = reader.read(message("10.2.0.0/16", "10.0.0.2"), 0)
    assert first is not None
    assert second is not None
    assert first[1] is second[1]
    for number in range(20):
        reader.read(message("10.1.0.0/16", f"10.0.0.{number}"), 0)
    assert len(reader._known) <= 4


def test_a_message_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    whole = message("10.6.0.0/16", "10.0.0.9")
    for end in range(28, len(whole)):
        RouteReader(INDEX).read(whole[:4] + whole[4:end] + bytes(len(whole) - end), 0)


def test_all_hops_of_a_route_have_interfaces() -> None:
    hops = [(INDEX, "10.0.0.1", 1), (OTHER, "10.0.0.2", 1)]
    assert output_interfaces(message("10.1.0.0/16", hops=hops), 0) == {INDEX, OTHER}
    assert output_interfaces(message("10.1.0.0/16"), 0) == {INDEX}


def test_a_default_route_has_no_prefix() -> None:
    assert route_prefix_bits(message("0.0.0.0/0", "10.0.0.1"), 0) == 0
    assert route_prefix_bits(message("fd00::/64"), 0) == 64


def test_a_route_to_one_ipv6_host_names_it() -> None:
    assert ipv6_host_of(message("fd00::7/128"), 0) == ipaddress.ip_address("fd00::7")
    for other in (message("fd00::/64"), message("10.0.0.7/32"), message("fd00::7/128", kind=2)):
        assert ipv6_host_of(other, 0) is None


def test_a_route_by_a_nexthop_object_names_its_number() -> None:
    data = message("10.6.0.0/16", nexthop=33)
    assert (output_interfaces(data, 0), nexthop_number(data, 0)) == (set(), 33)
    assert nexthop_number(message("10.6.0.0/16", "10.7.0.1"), 0) == 0


@pytest.mark.parametrize("text", ["10.6.0.0/16", "0.0.0.0/0", "fd00:1::/64", "::/0"])
def test_the_destination_of_a_unicast_route_is_a_network(text: str) -> None:
    assert unicast_network(message(text), 0) == ipaddress.ip_network(text)


def test_other_routes_lead_to_no_network() -> None:
    assert unicast_network(message("10.6.0.0/16", kind=7), 0) is None
    cloned = message("fd00:1::7/128", flags=route_message.RTM_F_CLONED)
    assert unicast_network(cloned, 0) is None


@pytest.mark.parametrize(("family", "group"), [(128, "239.1.2.3"), (129, "ff15::7")])
def test_a_multicast_route_names_its_group(family: int, group: str) -> None:
    raw = ipaddress.ip_address(group).packed
    body = struct.pack("=BBBBBBBBI", family, 8 * len(raw), 0, 0, 254, 17, 0, 5, 0)
    body += struct.pack("=HH", 4 + len(raw), 1) + raw
    data = struct.pack("=IHHII", 16 + len(body), 24, 0, 0, 0) + body
    assert routed_group(data, 0) == ipaddress.ip_address(group)
    assert routed_group(message("10.6.0.0/16"), 0) is None


def test_gateways_on_other_links_are_not_remembered() -> None:
    """A host there may advertise itself as many routers."""
    reader = RouteReader(INDEX)
    for number in range(100):
        found = reader.read(message("::/0", f"fe80::{number}", index=OTHER, metric=1024), 0)
        assert found is not None
        assert not found[1].is_ours
    assert len(reader._known) == 1
    found = reader.read(message("::/0", "fe80::1", metric=1024), 0)
    assert found is not None
    assert [str(hop.via) for hop in found[1].hops] == ["fe80::1"]
