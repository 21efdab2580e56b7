# SPDX-License-Identifier: BSD-2-Clause
"""Servers of DHCP and DHCPv6 that lie: the client goes on, at a bounded rate and with few lines of log."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from ipoibu.base.limits import ADDRESSES_MAX, LEASE_LIST_MAX, PEER_LOGS_BURST, PEER_LOGS_PER_S
from ipoibu.proto.context import Dad, Dhcp6Identity, DhcpIdentity
from ipoibu.proto.dhcp.state import State
from ipoibu.proto.effects import Lease6Changed, LeaseChanged
from ipoibu.wire import dhcp, dhcp6
from ipoibu.wire.dhcp import Code, Kind
from ipoibu.wire.dhcp_lease import Lease
from tests.doubles.dhcp6_server import Dhcp6Server
from tests.doubles.dhcp_server import DhcpServer
from tests.doubles.simulation import TEMPLATE, Host, Simulation

LONG_S = 300.0
LINES = PEER_LOGS_BURST + LONG_S * PEER_LOGS_PER_S + 5  # of the client, and when the link comes up


class Liar(DhcpServer):
    """Gives another address each time, in the name of another server, and refuses to renew."""

    number = 0

    def _answer(self, request: dhcp.Message) -> None:
        if request.kind is Kind.DISCOVER:
            self.number += 1
        if request.kind is Kind.REQUEST and request.ciaddr.packed != bytes(4):
            self.send(self._lie(request, Kind.NAK))
        elif request.kind in (Kind.DISCOVER, Kind.REQUEST):
            self.send(self._lie(request, Kind.OFFER if request.kind is Kind.DISCOVER else Kind.ACK))

    def _lie(self, request: dhcp.Message, kind: Kind) -> dhcp.Message:
        made = self.reply(request, kind, IPv4Address("10.0.0.10") + self.number % 200)
        name = (Code.SERVER, (IPv4Address("10.0.0.1") + self.number % 200).packed)
        return replace(
            made, options=tuple(name if it[0] == Code.SERVER else it for it in made.options)
        )


def client_of(simulation: Simulation) -> Host:
    identity = DhcpIdentity(bytes.fromhex("ff00000001000300200011223344556677"))
    simulation.template = replace(TEMPLATE, dad_ipv4=Dad.WARN, dhcp=identity)
    return simulation.host()


@pytest.mark.parametrize("lease_s", [0, 60])
def test_a_server_that_gives_another_address_each_time_costs_little(lease_s: int) -> None:
    simulation = Simulation(1)
    server = Liar(simulation, lease_s=lease_s)
    simulation.run(3)
    host = client_of(simulation)
    simulation.run(LONG_S)
    leases = [it for it in host.effects if isinstance(it, LeaseChanged)]
    assert server.number > 5, "the client goes on"
    assert len(server.seen) <= LONG_S
    assert len(leases) <= LONG_S
    assert len(host.engine.addresses()) <= 1
    assert len(host.log) <= LINES


def test_replies_that_nobody_awaits_are_not_read() -> None:
    """Our number is no secret: the requests are broadcasts. Such a message would take a millisecond."""
    simulation = Simulation(1)
    server = DhcpServer(simulation)
    simulation.run(3)
    host = client_of(simulation)
    simulation.run(3)
    client = host.engine.dhcp
    assert client is not None
    assert client.state is State.BOUND
    routes = b"".join(bytes((24, 172, number, 0, 10, 0, 0, 9)) for number in range(200))
    last = server.message(Kind.REQUEST)
    bad = (Code.CLASSLESS_ROUTES, routes + b"\x21")
    before = len(host.effects)
    for _ in range(100):
        server.send(server.reply(last, Kind.ACK, IPv4Address("10.0.0.100"), bad))
    simulation.run(1)
    assert host.counts["dhcp_unexpected"] == 100
    assert host.counts["dhcp_option"] == 0, "nobody has read the bad option"
    assert [it for it in host.effects[before:] if isinstance(it, LeaseChanged)] == []


def test_of_a_list_of_any_length_the_first_count() -> None:
    routes = b"".join(
        bytes((24, 172, 16 + (number >> 8), number & 255, 10, 0, 0, 9)) for number in range(10_000)
    )
    options = (
        (Code.MESSAGE_TYPE, bytes((Kind.ACK,))),
        (Code.SERVER, bytes((10, 0, 0, 1))),
        (Code.LEASE_TIME, bytes(4)),
        (Code.CLASSLESS_ROUTES, routes),
        (Code.DNS, bytes((10, 0, 0, 53)) * 10_000),
    )
    message = dhcp.Message(dhcp.Op.REPLY, 1, options, yiaddr=IPv4Address("10.0.0.7"))
    read = dhcp.message_untrusted(message.pack())
    lease = Lease.of_untrusted(read)
    assert (len(lease.routes), len(lease.dns)) == (LEASE_LIST_MAX, LEASE_LIST_MAX)
    assert len(dhcp.routes_untrusted(routes)) == LEASE_LIST_MAX, "the rest is not read"


class Liar6(Dhcp6Server):
    """Gives another address each time, and does not know it when it is to be renewed."""

    def _reply_to(self, request: dhcp6.Message) -> dhcp6.Message | None:
        self.first += 1
        if request.kind is dhcp6.Kind.RENEW:
            status = self.status(dhcp6.Status.NOT_ON_LINK)
            return self.reply(request, dhcp6.Kind.REPLY, self.association(request, status))
        client_id = request.option(dhcp6.Code.CLIENT_ID)
        if request.kind is dhcp6.Kind.SOLICIT and client_id is not None:
            self.leases.pop(client_id, None)
        return super()._reply_to(request)


@pytest.mark.parametrize("valid_s", [1, 60])
def test_a_dhcpv6_server_that_gives_another_address_each_time_costs_little(valid_s: int) -> None:
    simulation = Simulation(1)
    preference = (dhcp6.Code.PREFERENCE, b"\xff")
    server = Liar6(simulation, preference, valid_s=valid_s)
    simulation.run(3)
    duid = bytes.fromhex("0003002000112233445566aa")
    identity = Dhcp6Identity(duid, bytes(4))
    simulation.template = replace(TEMPLATE, dad_ipv6=Dad.WARN, dhcp6=identity)
    host = simulation.host("fe80::1/64")
    simulation.run(LONG_S)
    leases = [it for it in host.effects if isinstance(it, Lease6Changed)]
    assert len(leases) > 5, "the client goes on"
    assert len(server.seen) <= 2 * LONG_S
    assert len(leases) <= LONG_S
    assert len(host.engine.addresses()) <= 2 < ADDRESSES_MAX
    assert len(host.log) <= LINES
