# SPDX-License-Identifier: BSD-2-Clause
"""The engine's configuration, and the context that its machines share: identity, timers, effects."""

from __future__ import annotations

import enum
import logging
import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Protocol

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, IpAddress, Qpn
from ipoibu.base.errors import UsageError
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import (
    ANNOUNCE_COUNT,
    ANNOUNCE_INTERVAL_S,
    ARP_PROBES,
    DAD_TRANSMITS,
    ENCAP_LEN,
    IPV6_MIN_MTU,
    PEER_LOGS_BURST,
    PEER_LOGS_PER_S,
)
from ipoibu.proto.effects import Count, Effect, Log, OwnAddress, SendFrame
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.machine.drops import Drops
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.timers import Timers
from ipoibu.proto.machine.transition import Observer, ignore
from ipoibu.proto.paths import Paths
from ipoibu.wire import mgid
from ipoibu.wire.encap import Encap, EtherType


class Dad(enum.Enum):
    """The policy of duplicate address detection (dad.py)."""

    OFF = "off"
    WARN = "warn"
    ON = "on"
    OPTIMISTIC = "optimistic"  # RFC 4429, so for IPv6 alone


@dataclass(frozen=True, slots=True)
class DhcpIdentity:
    """Says who the DHCP client is: the value of option 61 (D1), and a name or none."""

    client_id: bytes
    host_name: str = ""


@dataclass(frozen=True, slots=True)
class Dhcp6Identity:
    """Says who the DHCPv6 client is: DUID and IAID (4 bytes), and a name or none."""

    duid: bytes
    iaid: bytes
    host_name: str = ""


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """The engine's configuration, until `Engine.note_renewed`.

    `hwaddr` is the port's GID with our queue pair; `mtu_bytes` the IP MTU of the interface, 0 for the
    largest (T1). With 0 probes the engine takes an address without duplicate address detection.
    """

    params: PartitionParams
    hwaddr: HwAddr
    mtu_bytes: int = 0
    has_sa: bool = False  # a subnet administrator gives paths and groups
    is_router: bool = False  # the Router flag of our neighbour advertisements, RFC 4861 §4.4
    arp_probes: int = ARP_PROBES
    dad_transmits: int = DAD_TRANSMITS
    dad_ipv4: Dad = Dad.ON
    dad_ipv6: Dad = Dad.ON
    announce_count: int = ANNOUNCE_COUNT
    announce_interval_s: float = ANNOUNCE_INTERVAL_S
    dhcp: DhcpIdentity | None = None  # None: no DHCP client
    dhcp6: Dhcp6Identity | None = None  # None: no DHCPv6 client
    ethernet: EthernetConfig | None = None  # the hand-off to guests behind a TAP
    guest_qpns: tuple[Qpn, ...] = ()  # the queue pairs for these guests, beside `hwaddr`'s

    def __post_init__(self) -> None:
        largest = self.params.mtu_bytes - ENCAP_LEN
        if not 0 <= self.mtu_bytes <= largest:
            raise UsageError(
                f"MTU {self.mtu_bytes} does not fit a link of {largest} bytes: choose at most {largest}"
            )
        if self.mtu_bytes == 0:
            object.__setattr__(self, "mtu_bytes", largest)
        if self.dhcp6 is not None and not self.carries_ipv6:
            raise UsageError(
                f"DHCPv6 needs an MTU of {IPV6_MIN_MTU}, and this link has {self.mtu_bytes}"
            )

    @property
    def carries_ipv6(self) -> bool:
        """RFC 8200 §5: an IPv6 link offers at least 1280 bytes (T3)."""
        return self.mtu_bytes >= IPV6_MIN_MTU


@dataclass(frozen=True, slots=True)
class FrameSource:
    """The sender of a datagram, from the completion and the GRH, which the payload cannot forge.

    The GIDs are None where there was no GRH (E4).
    """

    qpn: Qpn
    sgid: Gid | None
    dgid: Gid | None

    def __str__(self) -> str:
        return f"{self.sgid or 'unknown port'} queue pair {self.qpn}"

    def contradicts(self, hwaddr: HwAddr) -> bool:
        """Return whether a host other than `hwaddr` sent the datagram.

        The subnet prefix of the two GIDs may differ: it changes with the subnet manager's configuration.
        """
        if self.qpn != hwaddr.qpn:
            return True
        return self.sgid is not None and self.sgid.interface_id != hwaddr.gid.interface_id


def is_host(ip: IpAddress) -> bool:
    """Return whether a host can have `ip`: messages about any other address are invalid."""
    return not (
        ip.is_multicast or ip.is_unspecified or ip.is_loopback or ip == mgid.LIMITED_BROADCAST
    )


class Resolver(Protocol):
    """The messages that ARP and neighbour discovery send for `Neighbours` and `Addresses`."""

    def solicit(
        self, now: float, target: IpAddress, known: HwAddr | None, preferred: IpAddress | None
    ) -> None:
        """Ask for the owner of `target`: all hosts, or the host `known` alone (A5).

        `preferred` is the source of the packet that waits for the answer, if there is one.
        """
        ...

    def probe(self, address: IpAddress) -> None:
        """Ask whether another host has `address`, without claiming it."""
        ...

    def announce(self, address: IpAddress) -> None:
        """Announce to all hosts that we have `address`."""
        ...


class EngineContext:
    """The context that the machines of one engine share: configuration, timers, randomness, effects."""

    def __init__(self, config: LinkConfig, rng: random.Random, observe: Observer = ignore) -> None:
        self.config = config
        self.observe = observe
        self.hwaddr = config.hwaddr
        self.rng = rng
        self.timers = Timers()
        self.paths = self._paths()
        self._drops = Drops(observe)
        self._own: Counter[IpAddress] = Counter()
        self._effects: list[Effect] = []
        self._warnings: dict[str, TokenBucket] = {}  # by counter, or kind of line
        self._groups = {group.mgid: group for group in config.params.groups}
        self._guest_qpns = frozenset(config.guest_qpns)

    def _paths(self) -> Paths:
        if not self.config.has_sa:
            return Paths()
        from ipoibu.proto.sa.path import PathTable  # few links have an SA

        return PathTable(self.timers, observe=self.observe)

    def renew(self, config: LinkConfig) -> None:
        """Take the configuration of another queue pair, and perhaps another link."""
        self.config = config
        self.hwaddr = config.hwaddr
        self._groups = {group.mgid: group for group in config.params.groups}
        self._guest_qpns = frozenset(config.guest_qpns)

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def own(self, ip: IpAddress) -> None:
        """Have the pump pass requests for `ip` up; each `own` needs one `disown`."""
        self._own[ip] += 1
        if self._own[ip] == 1:
            self.emit(OwnAddress(ip, is_ours=True))

    def disown(self, ip: IpAddress) -> None:
        self._own[ip] -= 1
        if not self._own[ip]:
            del self._own[ip]
            self.emit(OwnAddress(ip, is_ours=False))

    def owned(self) -> list[IpAddress]:
        """Return the addresses for which the pump passes requests up."""
        return list(self._own)

    def count(self, reason: str, times: int = 1) -> None:
        self._effects += [Count(reason)] * times

    def drop(self, now: float, peer: object, reason: str) -> None:
        """Count a message of `peer` that we drop, and notify the observer of the first such message."""
        self.count(reason)
        self.note_drop(now, peer, reason)

    def note_drop(self, now: float, peer: object, counter: str) -> None:
        """Notify the observer of a dropped message of `peer`, if it is the first within a minute."""
        self._drops.note(now, peer, counter)

    def warn(self, reason: str, now: float, text: str) -> None:
        """Count `reason`, and log `text` unless there were many such lines lately: peers can cause it."""
        self.count(reason)
        self.log(reason, now, logging.WARNING, text)

    def log(self, kind: str, now: float, level: int, text: str) -> None:
        """Log `text`, unless there were many lines of that kind lately."""
        bucket = self._warnings.setdefault(kind, TokenBucket(PEER_LOGS_PER_S, PEER_LOGS_BURST))
        if bucket.take(now):
            self.emit(Log(level, text))

    def take(self, now: float = 0.0) -> list[Effect]:
        """Return the effects since the last call, in the order of their emission."""
        effects, self._effects = self._effects, []
        return self.paths.pass_on(now, effects)

    def refuse_ipv6(self, address: IpAddress) -> bool:
        """T3: count and log an IPv6 address that the link cannot carry."""
        config = self.config
        if address.version == 4 or config.carries_ipv6:
            return False
        self.count("ipv6_refused")
        text = (
            f"cannot use {address}: IPv6 needs MTU {IPV6_MIN_MTU}, this link has {config.mtu_bytes}"
        )
        self.emit(Log(logging.WARNING, text))
        return True

    def is_echo(self, source: FrameSource) -> bool:
        """Return whether a datagram is our own multicast that came back (E8).

        Multicast always has a GRH (E5). A datagram without GRH is another host's, even if its queue pair
        has the same number as ours.
        """
        return source.sgid == self.hwaddr.gid and self.is_our_qpn(source.qpn)

    def is_our_qpn(self, qpn: Qpn) -> bool:
        """Return whether the queue pair is ours or, behind a TAP, a guest's."""
        return qpn == self.hwaddr.qpn or qpn in self._guest_qpns

    def is_ours(self, hwaddr: HwAddr) -> bool:
        """Return whether a hardware address is ours or, behind a TAP, a guest's."""
        return hwaddr.gid == self.hwaddr.gid and self.is_our_qpn(hwaddr.qpn)

    def unicast(self, hwaddr: HwAddr) -> Destination:
        """Return the destination of one host, with the parameters that all hosts of the link share."""
        return self._destination(hwaddr.gid, hwaddr.qpn)

    def group(self, gid: Gid) -> Destination:
        """Return the destination of a multicast group, with its own parameters or those of the broadcast
        group (B1)."""
        destination = self._destination(gid, Qpn(MULTICAST_QPN))
        own = self._groups.get(gid)
        if own is None:
            return destination
        return replace(
            destination, sl=own.sl, traffic_class=own.traffic_class, flow_label=own.flow_label
        )

    def mgid(self, group: IpAddress) -> Gid:
        """Return the MGID of an IP group or of 255.255.255.255 on this link (G1-G5)."""
        return mgid.of_group(group, self.config.params.pkey, self.config.params.scope)

    def send(
        self,
        destination: Destination,
        kind: EtherType,
        payload: bytes,
        source: HwAddr | None = None,
    ) -> None:
        """Send a message from our queue pair or, with a `source`, from that of a guest."""
        is_guests = source is not None and source.qpn != self.hwaddr.qpn
        qpn = source.qpn if source is not None and is_guests else None
        self.emit(SendFrame(destination, Encap(kind, payload).pack(), qpn))

    def _destination(self, gid: Gid, qpn: Qpn) -> Destination:
        return self.config.params.destination(gid, qpn)
