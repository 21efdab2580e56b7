# SPDX-License-Identifier: BSD-2-Clause
"""Answers for hosts behind us: those of configured networks that the kernel routes to another interface.

An answer follows the kernel's proxy (pneigh): it asks the routes at each request, never answers the
0.0.0.0 of an IPv4 probe, answers an IPv6 probe to all nodes, does not override (RFC 4861 §7.2.8), and waits
a random part of `proxy_delay` unless the request came to us alone. Beyond the kernel we announce single
addresses, and move their traffic to us, when they come to be behind us and when our hardware address has
changed.

Anybody can ask in the name of hosts that do not exist. So strangers, who have never answered a question of
ours, share a part of the questions about routes and of the places for answers that wait, and neighbours
that have answered have the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final, Literal

from ipoibu.base.addr import HwAddr, IpAddress, IpNetwork
from ipoibu.base.limits import (
    PROXY_ANSWERS_MAX,
    PROXY_ENUMERATED_MAX,
    PROXY_GROUPS_MAX,
    PROXY_NETWORKS_MAX,
    PROXY_STRANGERS_BURST,
    PROXY_STRANGERS_MAX,
    PROXY_STRANGERS_PER_S,
)
from ipoibu.proto.context import EngineContext, Resolver, is_host
from ipoibu.proto.effects import AskProxy
from ipoibu.proto.groups.groups import Groups
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.neigh.host_addresses import ALL_IPV4
from ipoibu.wire.mgid import solicited_node

# How the kernel reaches a host behind another interface: by a route of its own, or by the default route.
ProxyRoute = Literal["specific", "default"]

# Asks the kernel for its route for packets from the first address (unspecified in a probe) to the second
# one; None: there is none, or it leads to the host itself or back over our interface.
AskRouteBehind = Callable[[IpAddress, IpAddress], ProxyRoute | None]

ALL_IPV6: Final = IPv6Address("ff00::")  # as an own address: the pump passes all solicitations up


@dataclass(frozen=True, slots=True)
class ProxyRules:
    """Says what we answer for as a proxy.

    `networks` are those that an administrator names; `by_routes` adds every address that the kernel routes
    to another interface by a route other than the default route. `behind` are the single addresses of
    `networks` that are behind us now, and `listened` those whose solicited-node groups we receive. An
    answer to a request that came by multicast waits up to `delay_ipv4_s` or `delay_ipv6_s` seconds.
    """

    networks: tuple[IpNetwork, ...] = ()
    by_routes: bool = False
    behind: frozenset[IpAddress] = frozenset()
    listened: frozenset[IPv6Address] = frozenset()
    delay_ipv4_s: float = 0.0
    delay_ipv6_s: float = 0.0

    @property
    def needs_all_groups(self) -> bool:
        """Return whether an IPv6 network has more solicited-node groups than we join."""
        return self.by_routes or any(
            network.version == 6 and network.num_addresses > PROXY_ENUMERATED_MAX
            for network in self.networks
        )


class ProxyNetworks:
    """The hosts behind us; `answers` by IP version sends one answer, and `is_known(sender, asker)` says
    whether the sender has ever answered from that address."""

    def __init__(
        self,
        context: EngineContext,
        groups: Groups,
        resolvers: Mapping[int, Resolver],
        answers: Mapping[int, Callable[[AskProxy], None]],
        is_known: Callable[[IpAddress, HwAddr | None], bool],
    ) -> None:
        self._context = context
        self._groups = groups
        self._resolvers = resolvers
        self._answers = answers
        self._is_known = is_known
        self._rules = ProxyRules()
        self._networks: dict[tuple[int, int], set[int]] = {}  # by version and prefix length
        self._owned: frozenset[IpAddress] = frozenset()
        self._listened: frozenset[IPv6Address] = frozenset()
        self._behind: frozenset[IpAddress] = frozenset()
        self._announcements: dict[IpAddress, int] = {}  # how many each address has left
        self._waiting: dict[tuple[IpAddress, HwAddr | None], AskProxy] = {}
        self._strangers: set[tuple[IpAddress, HwAddr | None]] = set()  # of those that wait
        self._questions = TokenBucket(PROXY_STRANGERS_PER_S, PROXY_STRANGERS_BURST)
        self._is_up = False

    def change(self, now: float, rules: ProxyRules) -> None:
        """Replace all rules."""
        has_ipv6 = self._context.config.carries_ipv6
        networks = [it for it in rules.networks if it.version == 4 or has_ipv6]
        if len(networks) > PROXY_NETWORKS_MAX:
            text = f"{len(networks)} proxied networks: we answer for {PROXY_NETWORKS_MAX}"
            self._context.warn("proxy_table_full", now, text)
            networks = networks[:PROXY_NETWORKS_MAX]
        self._rules = rules
        self._networks = {}
        for network in networks:
            key = (network.version, network.prefixlen)
            shift = network.max_prefixlen - network.prefixlen
            self._networks.setdefault(key, set()).add(int(network.network_address) >> shift)
        versions = {network.version for network in networks}
        if rules.by_routes:
            versions |= {4, 6} if has_ipv6 else {4}
        self._own(frozenset(ALL_IPV4 if version == 4 else ALL_IPV6 for version in versions))
        self._listen(now, rules.listened if 6 in versions else frozenset())
        self._announce_new(now, frozenset(ip for ip in rules.behind if self._names(ip)))

    def link_up(self, now: float) -> None:
        """Our hardware address may have changed: announce again."""
        self._is_up = True
        for ip in sorted(self._behind, key=str):
            self._begin(now, ip)

    def announce_again(self) -> None:
        """Send one announcement of each address behind us, whatever their next ones are."""
        for ip in sorted(self._behind, key=str) if self._is_up else ():
            self._context.count("proxy_announced")
            self._resolvers[ip.version].announce(ip)

    def link_down(self) -> None:
        self._is_up = False
        for ip in list(self._announcements):
            self._context.timers.cancel(self._ring_announcement, ip)
        for key in self._waiting:
            self._context.timers.cancel(self._ring_answer, key)
        self._announcements.clear()
        self._waiting.clear()
        self._strangers.clear()

    def may_ask(self, now: float, question: AskProxy) -> bool:
        """Return whether to ask the kernel about this request: a question costs more than the request."""
        if self._is_known(question.sender, question.asker) or self._questions.take(now):
            return True
        self._context.count("proxy_limited")
        return False

    def concerns(self, sender: IpAddress, target: IpAddress) -> bool:
        """Return whether the kernel's route decides about this request for a host that is not ours."""
        if sender == target or not is_host(target) or target.is_link_local:
            return False
        if sender.version == 4 and sender.is_unspecified:
            return False  # RFC 5227 probes are about the link itself; Linux arp_process()
        is_router = target.version == 4 or self._context.config.is_router
        return is_router and (self._rules.by_routes or self._names(target))

    def note_answer(self, now: float, question: AskProxy, route: ProxyRoute | None) -> bool:
        """Take the kernel's route; return whether we answer, now or after the delay."""
        if route is None or (route == "default" and not self._names(question.target)):
            self._context.count("proxy_unrouted")
            return False
        self.answer(now, question)
        return True

    def answer(self, now: float, question: AskProxy) -> None:
        """Answer as the kernel's proxy does: at once if the request came to us alone, else after a delay, so
        that the owner's own answer comes first (RFC 4861 §7.2.7, §7.2.8)."""
        is_ipv4 = question.target.version == 4
        delay_s = self._rules.delay_ipv4_s if is_ipv4 else self._rules.delay_ipv6_s
        key = (question.target, question.asker)
        if not question.is_multicast or delay_s <= 0:
            self._send(question)
        elif key in self._waiting:
            pass  # the asker has repeated its request
        elif not self._take_place(key, question):
            self._context.count("proxy_answers_full")
        else:
            self._context.timers.arm(
                self._ring_answer, key, now + self._context.rng.uniform(0, delay_s)
            )

    def note_claimed(self, now: float, ip: IpAddress, by: HwAddr | None) -> None:
        """Another host of the link acts as the owner of `ip`: log it if we announce that address.

        We do not defend it: it may have moved, and our answers do not override the owner's.
        """
        if ip in self._behind:
            text = f"{ip} is behind this host, and {by or 'another host'} on the link uses it, too"
            self._context.warn("proxy_conflict", now, text)

    # ---- inside

    def _take_place(self, key: tuple[IpAddress, HwAddr | None], question: AskProxy) -> bool:
        is_known = self._is_known(question.sender, question.asker)
        if len(self._waiting) >= PROXY_ANSWERS_MAX:
            return False
        if not is_known and len(self._strangers) >= PROXY_STRANGERS_MAX:
            return False
        self._waiting[key] = question
        if not is_known:
            self._strangers.add(key)
        return True

    def _names(self, ip: IpAddress) -> bool:
        """Return whether a configured network contains `ip`."""
        value, bits = int(ip), ip.max_prefixlen
        return any(
            version == ip.version and value >> (bits - length) in numbers
            for (version, length), numbers in self._networks.items()
        )

    def _own(self, wanted: frozenset[IpAddress]) -> None:
        before, self._owned = self._owned, wanted
        for ip in sorted(before - wanted, key=str):
            self._context.disown(ip)
        for ip in sorted(wanted - before, key=str):
            self._context.own(ip)

    def _listen(self, now: float, wanted: frozenset[IPv6Address]) -> None:
        """Receive the solicited-node groups of these addresses: RFC 4861 §7.2.8."""
        for ip in sorted(self._listened - wanted):
            self._groups.leave(now, solicited_node(ip))
        kept = set(self._listened & wanted)
        fresh = sorted(wanted - kept)
        room = PROXY_GROUPS_MAX - len(kept)
        if len(fresh) > room:
            text = f"{len(wanted)} addresses behind us: we receive the groups of {PROXY_GROUPS_MAX}"
            self._context.warn("proxy_groups_full", now, text)
        kept |= {ip for ip in fresh[:room] if self._groups.join(now, solicited_node(ip))}
        self._listened = frozenset(kept)

    def _announce_new(self, now: float, behind: frozenset[IpAddress]) -> None:
        before, self._behind = self._behind, behind
        for ip in before - behind:
            self._announcements.pop(ip, None)
            self._context.timers.cancel(self._ring_announcement, ip)
        for ip in sorted(behind - before, key=str):
            if self._is_up:
                self._begin(now, ip)

    def _begin(self, now: float, ip: IpAddress) -> None:
        self._announcements[ip] = self._context.config.announce_count
        self._ring_announcement(now, ip)

    def _ring_announcement(self, now: float, ip: IpAddress) -> None:
        left = self._announcements.pop(ip, 0)
        if left <= 0:
            return
        self._context.count("proxy_announced")
        self._resolvers[ip.version].announce(ip)
        self._announcements[ip] = left - 1
        interval_s = self._context.config.announce_interval_s
        self._context.timers.arm(self._ring_announcement, ip, now + interval_s)

    def _ring_answer(self, now: float, key: tuple[IpAddress, HwAddr | None]) -> None:
        question = self._waiting.pop(key, None)
        self._strangers.discard(key)
        if question is not None:
            self._send(question)

    def _send(self, question: AskProxy) -> None:
        self._context.count("proxy_answered")
        self._answers[question.target.version](question)
