# SPDX-License-Identifier: BSD-2-Clause
"""The default routers that advertise themselves: which of them the local stack may use (N9, U1, U2).

A TUN is a NOARP interface, so the kernel believes that every neighbour is reachable, and keeps the route
of a router that is dead. `Routers` withdraws such a route: it gives the local stack a router advertisement
of the router with a lifetime of 0 (RFC 4861 §6.3.4, RFC 4191 §2.3). When the router answers again, the
stack gets the router's last advertisement, with the rest of its lifetime. An advertisement alone, which
any host can send in its name, does not bring it back.

Any host can invent routers, and the stack would take them all. So the stack gets the advertisements of a
bounded number of routers alone. While many of them have never answered a solicitation, each further one
is tried first: we solicit it, and the stack gets its advertisement when it answers. A router that has
answered makes room for another one only if its host answers for many.

    TRIED        the stack does not know it yet; we solicit it
    USED         the local stack has its routes
    SILENT       it does not answer, but no other router is better: the stack keeps its routes
    WITHDRAWN    the stack does not have its routes; we solicit it every few seconds
"""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.addr import HwAddr, IpAddress
from ipoibu.base.limits import (
    MAX_UNICAST_SOLICIT,
    RETRANS_TIMER_S,
    ROUTER_ADVERTISEMENT_MAX_BYTES,
    ROUTER_RETRY_S,
    ROUTER_TRIALS_BURST,
    ROUTER_TRIALS_PER_S,
    ROUTERS_MAX,
    ROUTERS_OF_ONE_HOST,
    ROUTERS_UNPROVEN_MAX,
)
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Deliver, Log
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.table import Machine, Table
from ipoibu.proto.neigh.advertised_routes import (
    ROUTE_INFORMATION,
    Advertised,
    lifetime_s,
    makes_address,
    with_lifetime,
)
from ipoibu.wire import ndisc
from ipoibu.wire.ndisc import ALL_NODES, RouterAdvertisement
from ipoibu.wire.ndopt import Option

_PREFERENCE: Final = 0x18  # of the flags: RFC 4191 §2.2


class State(enum.Enum):
    NONE = "none"
    TRIED = "tried"
    USED = "used"
    SILENT = "silent"
    WITHDRAWN = "withdrawn"


class Input(enum.Enum):
    ADVERTISED = "the router advertises routes"
    DOUBTED = "it advertises routes beside many routers that have never answered"
    RETIRED = "the router advertises that it is no router, or its lifetime has ended"
    CEASED = "a neighbour advertisement says that the host is no router"
    FAILED = "the router does not answer"
    ANSWERED = "the router answers"
    RIVALLED = "another router is alive"
    TIMEOUT = "the time to solicit the router again"
    EXHAUSTED = "it has not answered the solicitations of its trial"
    EVICTED = "another router needs its place"


class Action(enum.Enum):
    DELIVER = "deliver the router's advertisement"
    WITHDRAW = "deliver an advertisement with lifetime 0"
    RESTORE = "deliver the router's last advertisement, with the rest of its lifetime"
    ASK = "verify the router as a neighbour"
    TRY = "solicit the sender of the advertisement"
    ARM = "start the timer"
    FORGET = "remove the router"


_N, _T, _U = State.NONE, State.TRIED, State.USED
_S, _W = State.SILENT, State.WITHDRAWN
_A = Action

# fmt: off
MACHINE: Final = Table("Router", State.NONE, {
    (_N, Input.ADVERTISED): (_U, (_A.DELIVER,)),
    (_N, Input.DOUBTED):    (_T, (_A.TRY, _A.ARM)),
    (_T, Input.ADVERTISED): (_U, (_A.DELIVER,)),
    (_T, Input.DOUBTED):    (_T, ()),
    (_T, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_T, Input.CEASED):     (_N, (_A.FORGET,)),
    (_T, Input.FAILED):     (_T, ()),
    (_T, Input.ANSWERED):   (_U, (_A.DELIVER,)),
    (_T, Input.TIMEOUT):    (_T, (_A.TRY, _A.ARM)),
    (_T, Input.EXHAUSTED):  (_N, (_A.FORGET,)),
    (_T, Input.EVICTED):    (_N, (_A.FORGET,)),
    (_U, Input.ADVERTISED): (_U, (_A.DELIVER,)),
    (_U, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_U, Input.CEASED):     (_N, (_A.WITHDRAW, _A.FORGET)),  # RFC 4861 §7.2.5
    (_U, Input.FAILED):     (_S, (_A.ARM,)),
    (_U, Input.ANSWERED):   (_U, ()),
    (_U, Input.RIVALLED):   (_U, ()),
    (_U, Input.EVICTED):    (_N, (_A.WITHDRAW, _A.FORGET)),
    (_S, Input.ADVERTISED): (_S, (_A.DELIVER, _A.TRY)),
    (_S, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_S, Input.CEASED):     (_N, (_A.WITHDRAW, _A.FORGET)),
    (_S, Input.FAILED):     (_S, ()),
    (_S, Input.ANSWERED):   (_U, ()),
    (_S, Input.RIVALLED):   (_W, (_A.WITHDRAW, _A.ARM)),  # RFC 4861 §6.3.6
    (_S, Input.TIMEOUT):    (_S, (_A.ASK, _A.ARM)),
    (_S, Input.EVICTED):    (_N, (_A.WITHDRAW, _A.FORGET)),
    (_W, Input.ADVERTISED): (_W, (_A.TRY,)),
    (_W, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_W, Input.CEASED):     (_N, (_A.FORGET,)),
    (_W, Input.FAILED):     (_W, ()),
    (_W, Input.ANSWERED):   (_U, (_A.RESTORE,)),
    (_W, Input.RIVALLED):   (_W, ()),
    (_W, Input.TIMEOUT):    (_W, (_A.ASK, _A.ARM)),
    (_W, Input.EVICTED):    (_N, (_A.FORGET,)),
})
# fmt: on


@dataclass(slots=True)
class _Router:
    state: State
    advertisement: RouterAdvertisement  # the routes of it alone
    packet: bytes  # the latest one; empty when the stack has it
    hwaddr: HwAddr | None
    since: float  # when the advertisement arrived
    is_proven: bool  # it has answered a solicitation
    is_verified: bool = False  # or has been asked
    solicitations: int = 0


# The routers that make room for another, first those that serve the stack least.
_LEAST: Final = (
    (State.WITHDRAWN, False),
    (State.TRIED, False),
    (State.SILENT, False),
    (State.WITHDRAWN, True),
)


class Routers:
    """The routers of one link: the stack gets the advertisements of at most `cap` routers.

    `ask(now, ip)` verifies one that the stack may use, `solicit(now, ip, hwaddr)` asks one that it does not
    know, and `has_answered(ip)` says whether the host has ever answered, as long as we remember it.
    """

    def __init__(
        self,
        context: EngineContext,
        ask: Callable[[float, IpAddress], None],
        solicit: Callable[[float, IpAddress, HwAddr | None], None],
        has_answered: Callable[[IpAddress], bool],
        cap: int = ROUTERS_MAX,
    ) -> None:
        self._context = context
        self._ask = ask
        self._solicit = solicit
        self._has_answered = has_answered
        self._cap = cap
        self._machine = Machine(MACHINE, context.timers, self._ring)
        self._routers: dict[IpAddress, _Router] = {}
        self._options = Advertised(context, self._withdraw_option, self._is_proven)
        self._trials = TokenBucket(ROUTER_TRIALS_PER_S, ROUTER_TRIALS_BURST)

    def __contains__(self, ip: IpAddress) -> bool:
        return ip in self._routers

    def __len__(self) -> int:
        return len(self._routers)

    def advertised_untrusted(
        self, now: float, advertisement: RouterAdvertisement, packet: bytes, sender: HwAddr | None
    ) -> bool:
        """Take an advertisement that `sender` sent, and deliver it now, later or never.

        Return whether the router is one that the local stack may use.
        """
        ip = advertisement.source
        router = self._routers.get(ip)
        if _longest_s(advertisement) == 0:
            if router is None or router.state is not State.TRIED:
                self._pass_on(now, ip, packet)
            self._feed(now, ip, Input.RETIRED)
            return False
        if router is None:
            router = self._create(now, advertisement, packet)
            if router is None:
                text = f"ignored router {ip} beside {len(self)} others: too many advertise"
                self._context.warn("router_refused", now, text)
                return False
        kept = tuple(_routes(advertisement))
        router.advertisement = replace(advertisement, lladdr=None, options=kept)
        router.packet, router.hwaddr, router.since = packet, sender, now
        is_new = router.state in (State.NONE, State.TRIED)
        is_doubted = is_new and self._is_doubted(now, router, advertisement)
        self._feed(now, ip, Input.DOUBTED if is_doubted else Input.ADVERTISED)
        return not is_doubted

    def note_ceased(self, now: float, ip: IpAddress) -> None:
        """A neighbour advertisement of the router has no Router flag."""
        self._feed(now, ip, Input.CEASED)

    def note_failed(self, now: float, ip: IpAddress) -> None:
        """The neighbour did not answer its solicitations."""
        self._feed(now, ip, Input.FAILED)

    def note_answered(self, now: float, ip: IpAddress, *, is_router: bool = False) -> None:
        """The neighbour answered a solicitation; `is_router`: and says that it is a router."""
        router = self._routers.get(ip)
        if router is not None and (is_router or router.state is not State.TRIED):
            router.is_proven = True
            self._feed(now, ip, Input.ANSWERED)

    def _feed(self, now: float, ip: IpAddress, fed: Input) -> None:
        router = self._routers.get(ip)
        if router is None:
            return
        _, actions = self._machine.feed(router, ip, fed)
        for action in actions:
            self._act(now, ip, router, action)
        if fed is not Input.RIVALLED:
            self._compare(now)

    # ---- which routers have a place

    def _create(
        self, now: float, advertisement: RouterAdvertisement, packet: bytes
    ) -> _Router | None:
        """Return a place for a router, or None."""
        ip = advertisement.source
        router = _Router(
            State.NONE, advertisement, b"", None, now, is_proven=self._has_answered(ip)
        )
        if len(packet) > ROUTER_ADVERTISEMENT_MAX_BYTES:
            return None
        if self._is_doubted(now, router, advertisement):
            if not self._trials.take(now):
                return None
            self._verify_soon(now)
        if len(self._routers) >= self._cap and not self._evict(now):
            return None
        self._routers[ip] = router
        return router

    def _verify_soon(self, now: float) -> None:
        """Ask those that have never answered, so that the real ones among them keep their places. Not at
        once: an advertisement causes one frame at most."""
        for ip, router in self._routers.items():
            if router.state is State.USED and not router.is_proven and not router.is_verified:
                router.is_verified = True
                self._context.timers.arm(self._ring_verification, ip, now + RETRANS_TIMER_S)

    def _ring_verification(self, now: float, ip: IpAddress) -> None:
        router = self._routers.get(ip)
        if router is not None and router.state is State.USED:
            self._ask(now, ip)

    def _is_proven(self, ip: IpAddress) -> bool:
        router = self._routers.get(ip)
        return self._has_answered(ip) or (router is not None and router.is_proven)

    def _is_doubted(self, now: float, router: _Router, advertisement: RouterAdvertisement) -> bool:
        """Return whether a router has to answer first, because too many others have not."""
        if router.is_proven:
            return False
        makes_addresses = any(makes_address(it) for it in advertisement.options)
        if makes_addresses and not self._options.may_make_address(now, advertisement.source):
            return True
        others = (it for it in self._routers.values() if not it.is_proven and it is not router)
        return sum(1 for _ in others) >= ROUTERS_UNPROVEN_MAX

    def _evict(self, now: float) -> bool:
        """Make room for one router; False if all serve the stack, or may."""
        ended = [ip for ip, it in self._routers.items() if _left_s(it, now) <= 0]
        for ip in ended:
            self._feed(now, ip, Input.RETIRED)
        if ended:
            return True
        evicted = self._least() or self._latest_of_the_greediest()
        if evicted is None:
            return False
        text = f"no room for a router beside {len(self)} others: forgot {evicted}"
        self._context.warn("router_evicted", now, text)
        self._feed(now, evicted, Input.EVICTED)
        return True

    def _least(self) -> IpAddress | None:
        for kind in _LEAST:
            for ip, router in self._routers.items():
                if (router.state, router.is_proven) == kind:
                    return ip
        return None

    def _latest_of_the_greediest(self) -> IpAddress | None:
        """Return a router of the host that answers for the most of them, if these are many."""
        hosts = [it.hwaddr.gid for it in self._routers.values() if it.hwaddr is not None]
        host, count = max(Counter(hosts).items(), key=lambda item: item[1], default=(None, 0))
        if count <= ROUTERS_OF_ONE_HOST:
            return None
        theirs = (ip for ip, it in self._routers.items() if it.hwaddr and it.hwaddr.gid == host)
        return list(theirs)[-1]

    def _compare(self, now: float) -> None:
        """Withdraw the silent routers if another router is alive."""
        if any(it.state is State.USED and _left_s(it, now) > 0 for it in self._routers.values()):
            for ip, router in list(self._routers.items()):
                if router.state is State.SILENT:
                    self._feed(now, ip, Input.RIVALLED)

    def _act(self, now: float, ip: IpAddress, router: _Router, action: Action) -> None:
        match action:
            case Action.DELIVER:
                packet, router.packet = router.packet, b""
                kept = self._pass_on(now, router.advertisement.source, packet)
                router.advertisement = replace(router.advertisement, options=tuple(_routes(kept)))
            case Action.WITHDRAW:
                if router.state is State.WITHDRAWN:
                    self._log(f"router {ip} does not answer: this host uses another router")
                self._deliver(router.advertisement, lambda lifetime_s: 0)
            case Action.RESTORE:
                self._log(f"router {ip} answers again")
                if router.packet:
                    self._act(now, ip, router, Action.DELIVER)
                else:
                    self._deliver(router.advertisement, _less(now - router.since))
            case Action.TRY:
                # a trial has had its token before it got its place
                if router.state is State.TRIED or self._trials.take(now):
                    router.solicitations += 1
                    self._solicit(now, ip, router.hwaddr)
            case Action.ASK:
                self._ask(now, ip)
            case Action.ARM:
                is_trial = router.state is State.TRIED
                self._machine.arm(ip, now + (RETRANS_TIMER_S if is_trial else ROUTER_RETRY_S))
            case Action.FORGET:
                del self._routers[ip]

    def _ring(self, now: float, ip: IpAddress) -> None:
        router = self._routers[ip]
        if router.state is State.TRIED and router.solicitations >= MAX_UNICAST_SOLICIT:
            self._feed(now, ip, Input.EXHAUSTED)
            return
        is_over = _left_s(router, now) <= 0
        self._feed(now, ip, Input.RETIRED if is_over else Input.TIMEOUT)

    # ---- what the local stack gets

    def _pass_on(self, now: float, source: IPv6Address, packet: bytes) -> RouterAdvertisement:
        """Deliver an advertisement without the prefixes and routes for which there is no room; return what
        is left of it."""
        message = ndisc.parse_untrusted(packet)
        assert isinstance(message, RouterAdvertisement), "the caller has parsed it"
        refused = self._options.refused(now, source, message.options)
        self._context.emit(Deliver(ndisc.strip_untrusted(packet, refused)[0]))
        kept = tuple(it for it in message.options if it not in refused)
        return replace(message, options=kept)

    def _withdraw_option(self, now: float, source: IPv6Address, option: Option) -> None:
        """Take a prefix or route from the stack, and say of the router itself what holds."""
        router = self._routers.get(source)
        is_known = router is not None and router.state in (State.USED, State.SILENT)
        made = RouterAdvertisement(source, ALL_NODES)
        if router is not None and is_known:
            left_s = _less(now - router.since)(router.advertisement.lifetime_s)
            made = replace(router.advertisement, destination=ALL_NODES, lifetime_s=left_s)
        self._context.emit(Deliver(replace(made, lladdr=None, options=(option,)).pack()))

    def _deliver(self, advertisement: RouterAdvertisement, left_s: Callable[[int], int]) -> None:
        """Give the stack the advertisement, with other lifetimes, and nothing about addresses."""
        router_s = left_s(advertisement.lifetime_s)
        made = replace(
            advertisement,
            destination=ALL_NODES,
            lladdr=None,
            options=tuple(
                with_lifetime(each, left_s(lifetime_s(each))) for each in _routes(advertisement)
            ),
            lifetime_s=router_s,
            flags=advertisement.flags if router_s else advertisement.flags & ~_PREFERENCE,
        )
        self._context.emit(Deliver(made.pack()))

    def _log(self, text: str) -> None:
        self._context.emit(Log(logging.WARNING, text))


_INFINITE_S: Final = 0xFFFFFFFF


def _less(past_s: float) -> Callable[[int], int]:
    """Return what is left of a lifetime after `past_s`."""
    return lambda it: it if it == _INFINITE_S else max(0, it - int(past_s))


def _routes(advertisement: RouterAdvertisement) -> list[Option]:
    return [
        each
        for each in advertisement.options
        if each.type == ROUTE_INFORMATION and len(each.body) > 5
    ]


def _longest_s(advertisement: RouterAdvertisement) -> int:
    return max([advertisement.lifetime_s, *(lifetime_s(each) for each in _routes(advertisement))])


def _left_s(router: _Router, now: float) -> float:
    return router.since + _longest_s(router.advertisement) - now
