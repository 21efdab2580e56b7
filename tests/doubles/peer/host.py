# SPDX-License-Identifier: BSD-2-Clause
"""The host: what came by which queue pair goes to its parts, each for one protocol."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from ipoibu.conform.link import QueuePair
from ipoibu.conform.mgid import group_hwaddr, solicited_node
from ipoibu.conform.packet import Names
from tests.doubles.peer.wire import Wire

HWADDR: Final = bytes.fromhex("00004242" + "fe80000000000000" + "021122fffe334455")
IPV4: Final = "10.1.2.3"
IPV6: Final = "fe80::211:22ff:fe33:4455"  # of the GUID
IPV6_GLOBAL: Final = "2001:db8:7::11"

Part = Callable[[bytes, bytes, str], bool]
"""Takes an IP packet, the hardware address it came from, and the IP destination; whether it was its own."""


class Host:
    """One host with one deviation at most, by the names that its parts ask for with `deviates`.

    The parts register themselves: `by_type` for what follows an encapsulation header, `by_protocol` for
    what follows IPv4 (4, protocol) or IPv6 (6, 58, ICMPv6 type), `on_gsi` and `on_message` for connected
    mode.
    """

    def __init__(self, wire: Wire, deviation: str | None = None) -> None:
        self.wire: Final = wire
        self.deviation: Final = deviation
        self.asked: Final[set[str]] = set()  # the names that the parts have asked for
        self.hwaddr = HWADDR
        if self.deviates("GID of another prefix"):
            self.hwaddr = HWADDR[:4] + bytes.fromhex("fec0000000000001") + HWADDR[12:]
        self.last_sender = bytes(20)  # of the last frame
        self._dead_until_s = 0.0
        self.flags = 0x80
        self.mtu = 65520  # of connected mode; what is too long for a neighbour, `carry` cuts
        self.ipv4 = IPV4
        self.ipv6: Final = [self._link_local(), IPV6_GLOBAL]
        self.on_link: Final = {ipaddress.IPv6Network((IPV6_GLOBAL, 64), strict=False)}
        """The networks of the global addresses."""
        self.groups: Final = {
            "255.255.255.255",
            "224.0.0.1",
            "ff02::1",
            *(solicited_node(it) for it in self.ipv6),
        }
        self.by_type: Final[dict[int, Callable[[bytes, bytes, str], None]]] = {}
        self.by_protocol: Final[
            dict[tuple[int, ...], Callable[[bytes, bytes, str, str], None]]
        ] = {}
        self.send_ip: Callable[[str, bytes], None] = lambda target, packet: None
        """Sends an IP packet to an IP address: resolves it first. The parts for ARP and ND share it."""
        self.heard: Callable[[str], None] = lambda source: None
        """Called for each ping over IPv6."""
        self.acts: Final[dict[str, Callable[[Names], None]]] = {"restart": self._restart}
        """What the helper can have this host do, by the names of `ipoibu.conform.helper.ACTS`."""
        self.on_gsi: Callable[[bytes, bytes], None] = lambda mad, sender: None
        self.on_message: Callable[[bytes, bytes, int], None] = lambda frame, sender, qpn: None
        self.hop_limit = 64  # of IPv6 packets
        self.carry: Callable[[bytes, int, bytes], bool] = lambda to, kind, body: False
        """Sends to a hardware address what does not go by one datagram; returns whether it did."""
        self.drops = 0
        wire.host = self

    def _link_local(self) -> str:
        if self.deviates("identifier without the universal bit"):
            return "fe80::11:22ff:fe33:4455"
        if self.deviates("identifier of another GUID"):
            return "fe80::211:22ff:fe33:4466"
        return IPV6

    def _restart(self, names: Names) -> None:
        """Get another queue pair, as a host may that restarts its interface."""
        qpn = int.from_bytes(self.hwaddr[1:4], "big") + 1
        self.hwaddr = qpn.to_bytes(4, "big") + self.hwaddr[4:]
        if self.deviates("forms another link-local address after a restart"):
            self.ipv6[0] = "fe80::11:22ff:fe33:7777"
            self.groups.add(solicited_node(self.ipv6[0]))

    def deviates(self, name: str) -> bool:
        """Return whether this is the deviation that the host has."""
        self.asked.add(name)
        return self.deviation == name

    def frame_came(self, frame: bytes, sender: bytes, dgid: bytes, kind: QueuePair) -> None:
        if kind is QueuePair.GSI:
            self.on_gsi(frame, sender)
            return
        if kind is QueuePair.RC:
            self.on_message(frame, sender, int.from_bytes(dgid, "big"))
            return
        if kind is QueuePair.WRONG_QKEY and not self.deviates("takes a wrong Q_Key"):
            return
        if kind is QueuePair.WRONG_PKEY and not self.deviates("takes another partition"):
            return
        mine = {group_hwaddr(it, self.wire.params)[4:] for it in self.groups}
        if dgid != self.hwaddr[4:] and dgid not in mine:
            return
        if self.wire.now() < self._dead_until_s:
            return
        if len(frame) < 4:
            if self.deviates("stops for a while at a frame of 3 bytes") and len(frame) == 3:
                self._dead_until_s = self.wire.now() + 2.9
            return
        if frame[2:4] != b"\0\0" and self.deviates("drops a frame whose reserved bits are set"):
            return
        if len(frame) >= self.wire.params.mtu and self.deviates("counts the header into the MTU"):
            return
        self.last_sender = sender
        handler = self._handler(frame)
        if handler is None:
            self.drops += 1
            return
        to = "multicast" if dgid[0] == 0xFF else "unicast"
        handler(frame[4:], sender, to)

    def _handler(self, frame: bytes) -> Callable[[bytes, bytes, str], None] | None:
        kind = int.from_bytes(frame[:2], "big")
        if kind not in self.by_type and self.deviates("takes an unknown type for IPv4"):
            kind = 0x0800
        if kind == 0x86DD and frame[4:5] == b"\x45" and self.deviates("takes IPv4 of type IPv6"):
            kind = 0x0800
        return self.by_type.get(kind)

    def send_frame(self, to: bytes, kind: int, body: bytes) -> None:
        """Send what follows the encapsulation header to a hardware address, as the neighbour takes it."""
        if not self.carry(to, kind, body):
            self.send_datagram(to, kind, body)

    def send_datagram(self, to: bytes, kind: int, body: bytes) -> None:
        reserved = b"\0\1" if self.deviates("sends reserved bits") else b"\0\0"
        self.wire.to_tester(to, kind.to_bytes(2, "big") + reserved + body, self.hwaddr)

    def send_group(self, group: str, kind: int, body: bytes) -> None:
        """Send what follows the encapsulation header to an IP group."""
        self.send_frame(group_hwaddr(group, self.wire.params), kind, body)

    def later(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        self.wire.later(seconds, call, *args)


def is_multicast(ip: str) -> bool:
    return ip == "255.255.255.255" or ipaddress.ip_address(ip).is_multicast
