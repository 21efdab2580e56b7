# SPDX-License-Identifier: BSD-2-Clause
"""A DHCP server in virtual time: RFC 2131 §4.3 for clients of RFC 4390, beside a simulated host."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

from ipoibu.base.addr import MULTICAST_QPN, HwAddr
from ipoibu.base.errors import BadFrame
from ipoibu.base.ib import Destination
from ipoibu.wire import dhcp
from ipoibu.wire.dhcp import Code, Kind, Message, Op, Option, Packet
from ipoibu.wire.encap import EtherType
from tests.doubles.simulation import Host, Simulation

NETWORK: Final = IPv4Network("10.0.0.0/24")
BROADCAST: Final = IPv4Address("255.255.255.255")


class DhcpServer:
    """Serves `NETWORK` from .100 on as the host `host`, whose address is 10.0.0.254.

    `leases` has the address of each client identifier; `seen` the messages that arrived. It does not answer
    while `is_silent`, and refuses what it does not know.
    """

    def __init__(self, simulation: Simulation, *options: Option, lease_s: int = 600) -> None:
        self.ip: Final = IPv4Address("10.0.0.254")
        self.host: Host = simulation.host(f"{self.ip}/24")
        self.options = options
        self.lease_s = lease_s
        self.mask = NETWORK.netmask
        self.is_silent = False
        self.leases: dict[bytes, IPv4Address] = {}
        self.declined: set[IPv4Address] = set()
        self.seen: list[Packet] = []
        self._simulation = simulation
        simulation.network.observers.append(self._observe)

    def kinds(self) -> list[Kind | None]:
        return [packet.message.kind for packet in self.seen]

    def message(self, kind: Kind) -> Message:
        """The last message of that kind."""
        return next(it.message for it in reversed(self.seen) if it.message.kind is kind)

    def reply(self, request: Message, kind: Kind, ip: IPv4Address, *more: Option) -> Message:
        granted: tuple[Option, ...] = ()
        if kind is not Kind.NAK:
            granted = (
                (Code.LEASE_TIME, self.lease_s.to_bytes(4, "big")),
                (Code.SUBNET_MASK, self.mask.packed),
                *self.options,
            )
        return Message(
            Op.REPLY,
            request.xid,
            (
                (Code.MESSAGE_TYPE, bytes((kind,))),
                (Code.SERVER, self.ip.packed),
                *granted,
                *more,
            ),
            flags=request.flags,
            ciaddr=request.ciaddr,
            yiaddr=IPv4Address(0) if kind is Kind.NAK else ip,
        )

    def send(self, message: Message) -> None:
        """Send a reply as RFC 2131 §4.1 says: by broadcast, or to the address that the client has."""
        is_unicast = message.ciaddr.packed != bytes(4) and message.kind is not Kind.NAK
        assert is_unicast or message.is_broadcast or message.kind is Kind.NAK, "D2"
        destination = message.ciaddr if is_unicast else BROADCAST
        packet = Packet(self.ip, dhcp.SERVER_PORT, destination, dhcp.CLIENT_PORT, message)
        self.host.send(packet.pack())

    def _observe(self, sender: HwAddr, destination: Destination, frame: bytes) -> None:
        is_here = destination.qpn in (MULTICAST_QPN, self.host.hwaddr.qpn)
        if not is_here or int.from_bytes(frame[:2], "big") != EtherType.IPV4:
            return
        try:
            packet = dhcp.parse_untrusted(frame[4:])
        except BadFrame:
            return
        if packet is None or packet.message.op is not Op.REQUEST:
            return
        self.seen.append(packet)
        clock = self._simulation.clock
        clock.at(clock.now + 0.001, lambda: self._answer(packet.message))

    def _answer(self, request: Message) -> None:
        client_id = request.option(Code.CLIENT_ID)
        assert client_id is not None, "D1"
        assert (request.htype, request.hlen, request.chaddr) == (32, 0, bytes(16)), "D1"
        known = self.leases.get(client_id)
        match request.kind:
            case Kind.DECLINE:
                self.declined.add(self.leases.pop(client_id))
            case Kind.RELEASE:
                self.leases.pop(client_id, None)
            case Kind.DISCOVER if not self.is_silent:
                known = known or self._free()
                self.leases[client_id] = known
                self.send(self.reply(request, Kind.OFFER, known))
            case Kind.REQUEST if not self.is_silent:
                wanted = request.option(Code.REQUESTED_ADDRESS) or request.ciaddr.packed
                if known is not None and wanted == known.packed:
                    self.send(self.reply(request, Kind.ACK, known))
                else:
                    self.send(self.reply(request, Kind.NAK, IPv4Address(0)))

    def _free(self) -> IPv4Address:
        taken = {*self.leases.values(), *self.declined}
        return next(ip for ip in list(NETWORK.hosts())[99:] if ip not in taken)
