# SPDX-License-Identifier: BSD-2-Clause
"""A DHCPv6 server in virtual time: RFC 8415 §18.3, beside a simulated host."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network
from typing import Final

from ipoibu.base.addr import MULTICAST_QPN, HwAddr
from ipoibu.base.errors import BadFrame
from ipoibu.base.ib import Destination
from ipoibu.wire import dhcp6
from ipoibu.wire.dhcp6 import Address, Association, Code, Kind, Message, Option, Packet, Status
from ipoibu.wire.encap import EtherType
from tests.doubles.simulation import Host, Simulation

NETWORK: Final = IPv6Network("fd00::/64")


class Dhcp6Server:
    """Serves `NETWORK` from ::100 on as the host `host`, whose address is fe80::fe.

    `leases` has the address of each DUID; `seen` the messages that arrived, and `times` when. It does not
    answer while `is_silent`. To a message whose kind is in `failures` it answers with that status.
    """

    def __init__(
        self, simulation: Simulation, *options: Option, valid_s: int = 1000, number: int = 0xFE
    ) -> None:
        self.ip: Final = IPv6Address(f"fe80::{number:x}")
        self.duid: Final = bytes((0, 3, 0, 1, 2, 0, 0, 0, 0, number))
        self.host: Host = simulation.host(f"{self.ip}/64")
        self.options = options
        self.first = 0x100
        self.valid_s = valid_s
        self.preferred_s = valid_s // 2
        self.times_s = (0, 0)  # T1 and T2; 0 leaves them to the client
        self.is_silent = False
        self.failures: dict[Kind, Status] = {}
        self.leases: dict[bytes, IPv6Address] = {}
        self.declined: set[IPv6Address] = set()
        self.seen: list[Packet] = []
        self.times: list[float] = []
        self._simulation = simulation
        simulation.network.observers.append(self._observe)

    def kinds(self) -> list[Kind | None]:
        return [packet.message.kind for packet in self.seen]

    def clear(self) -> None:
        self.seen.clear()
        self.times.clear()

    def message(self, kind: Kind) -> Message:
        """The last message of that kind."""
        return next(it.message for it in reversed(self.seen) if it.message.kind is kind)

    def status(self, status: Status) -> Option:
        return Code.STATUS, int(status).to_bytes(2, "big") + b"so it is"

    def association(self, request: Message, *inner: Option) -> Option:
        value = request.option(Code.IA_NA)
        assert value is not None
        iaid = dhcp6.association_untrusted(value).iaid
        return Code.IA_NA, Association(iaid, *self.times_s, inner).pack()

    def address(self, ip: IPv6Address, valid_s: int | None = None) -> Option:
        valid_s = self.valid_s if valid_s is None else valid_s
        return Code.IA_ADDRESS, Address(ip, min(self.preferred_s, valid_s), valid_s).pack()

    def reply(self, request: Message, kind: Kind, *more: Option) -> Message:
        client_id = request.option(Code.CLIENT_ID)
        assert client_id is not None
        ids = ((Code.CLIENT_ID, client_id), (Code.SERVER_ID, self.duid))
        return Message(kind, request.xid, (*ids, *more, *self.options))

    def send(self, message: Message, to: IPv6Address) -> None:
        packet = Packet(self.ip, dhcp6.SERVER_PORT, to, dhcp6.CLIENT_PORT, message)
        self.host.send(packet.pack())

    def _observe(self, sender: HwAddr, destination: Destination, frame: bytes) -> None:
        is_here = destination.qpn in (MULTICAST_QPN, self.host.hwaddr.qpn)
        if not is_here or int.from_bytes(frame[:2], "big") != EtherType.IPV6:
            return
        try:
            packet = dhcp6.parse_untrusted(frame[4:])
        except BadFrame:
            return
        if packet is None or packet.destination_port != dhcp6.SERVER_PORT:
            return
        self.seen.append(packet)
        self.times.append(self._simulation.now)
        clock = self._simulation.clock
        clock.at(clock.now + 0.001, lambda: self._answer(packet))

    def _answer(self, packet: Packet) -> None:
        request = packet.message
        answer = self._reply_to(request)
        if answer is not None and not self.is_silent:
            self.send(answer, packet.source)

    def _reply_to(self, request: Message) -> Message | None:
        client_id = request.option(Code.CLIENT_ID)
        assert client_id is not None
        named = request.option(Code.SERVER_ID)
        if named not in (None, self.duid) or request.kind is None:
            return None
        if request.kind in self.failures:
            kind = Kind.ADVERTISE if request.kind is Kind.SOLICIT else Kind.REPLY
            failure = self.status(self.failures[request.kind])
            if request.kind is Kind.CONFIRM:
                return self.reply(request, kind, failure)
            return self.reply(request, kind, self.association(request, failure))
        known = self.leases.get(client_id)
        match request.kind:
            case Kind.DECLINE:
                if known is not None:
                    self.declined.add(self.leases.pop(client_id))
                return self.reply(request, Kind.REPLY, self.status(Status.SUCCESS))
            case Kind.RELEASE:
                self.leases.pop(client_id, None)
                return self.reply(request, Kind.REPLY, self.status(Status.SUCCESS))
            case Kind.CONFIRM:
                return self.reply(request, Kind.REPLY, self.status(Status.SUCCESS))
            case Kind.RENEW | Kind.REBIND if known is None:
                failure = self.status(Status.NO_BINDING)
                return self.reply(request, Kind.REPLY, self.association(request, failure))
        known = known or self._free()
        if request.kind is not Kind.SOLICIT:
            self.leases[client_id] = known
        kind = Kind.ADVERTISE if request.kind is Kind.SOLICIT else Kind.REPLY
        return self.reply(request, kind, self.association(request, self.address(known)))

    def _free(self) -> IPv6Address:
        taken = {*self.leases.values(), *self.declined}
        numbers = (NETWORK[number] for number in range(self.first, self.first + 100))
        return next(ip for ip in numbers if ip not in taken)
