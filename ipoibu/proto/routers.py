# SPDX-License-Identifier: BSD-2-Clause
"""The default routers that advertise themselves: which of them the local stack may use (N9, U1, U2).

A TUN is a NOARP interface, so the kernel believes that every neighbour is reachable, and keeps the route
of a router that is dead. `Routers` withdraws such a route: it gives the local stack a router advertisement
of the router with a lifetime of 0 (RFC 4861 §6.3.4, RFC 4191 §2.3). When the router answers again, the
stack gets the router's last advertisement, with the rest of its lifetime.

    USED         the local stack has its routes
    SILENT       it does not answer, but no other router is better: the stack keeps its routes
    WITHDRAWN    the stack does not have its routes; we solicit it every few seconds
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.addr import IpAddress
from ipoibu.limits import ROUTER_RETRY_S, ROUTERS_MAX
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Deliver, Log
from ipoibu.proto.table import Machine, Table
from ipoibu.wire.ndisc import ALL_NODES, RouterAdvertisement
from ipoibu.wire.ndopt import Option

ROUTE_INFORMATION: Final = 24  # RFC 4191 §2.3: prefix length, flags, lifetime, prefix
_PREFERENCE: Final = 0x18  # of the flags: RFC 4191 §2.2


class State(enum.Enum):
    NONE = "none"
    USED = "used"
    SILENT = "silent"
    WITHDRAWN = "withdrawn"


class Input(enum.Enum):
    ADVERTISED = "the router advertises routes"
    RETIRED = "the router advertises that it is no router, or its lifetime has ended"
    CEASED = "a neighbour advertisement says that the host is no router"
    FAILED = "the router does not answer"
    ANSWERED = "the router answers"
    RIVALLED = "another router is alive"
    TIMEOUT = "the time to solicit the router again"


class Action(enum.Enum):
    WITHDRAW = "deliver an advertisement with lifetime 0"
    RESTORE = "deliver the router's last advertisement, with the rest of its lifetime"
    ASK = "solicit the router"
    ARM = "start the timer"
    FORGET = "remove the router"


_N, _U, _S, _W = State.NONE, State.USED, State.SILENT, State.WITHDRAWN
_A = Action

# fmt: off
MACHINE: Final = Table("Router", State.NONE, {
    (_N, Input.ADVERTISED): (_U, ()),
    (_U, Input.ADVERTISED): (_U, ()),
    (_U, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_U, Input.CEASED):     (_N, (_A.WITHDRAW, _A.FORGET)),  # RFC 4861 §7.2.5
    (_U, Input.FAILED):     (_S, (_A.ARM,)),
    (_U, Input.ANSWERED):   (_U, ()),
    (_U, Input.RIVALLED):   (_U, ()),
    (_S, Input.ADVERTISED): (_U, ()),
    (_S, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_S, Input.CEASED):     (_N, (_A.WITHDRAW, _A.FORGET)),
    (_S, Input.FAILED):     (_S, ()),
    (_S, Input.ANSWERED):   (_U, ()),
    (_S, Input.RIVALLED):   (_W, (_A.WITHDRAW, _A.ARM)),  # RFC 4861 §6.3.6
    (_S, Input.TIMEOUT):    (_S, (_A.ASK, _A.ARM)),
    (_W, Input.ADVERTISED): (_U, ()),
    (_W, Input.RETIRED):    (_N, (_A.FORGET,)),
    (_W, Input.CEASED):     (_N, (_A.FORGET,)),
    (_W, Input.FAILED):     (_W, ()),
    (_W, Input.ANSWERED):   (_U, (_A.RESTORE,)),
    (_W, Input.RIVALLED):   (_W, ()),
    (_W, Input.TIMEOUT):    (_W, (_A.ASK, _A.ARM)),
})
# fmt: on


@dataclass(slots=True)
class _Router:
    state: State
    advertisement: RouterAdvertisement
    since: float  # when the advertisement arrived


class Routers:
    """The routers of one link; `ask(now, ip)` solicits one of them.

    At most ROUTERS_MAX: the kernel uses further ones without our help.
    """

    def __init__(
        self,
        context: EngineContext,
        ask: Callable[[float, IpAddress], None],
        cap: int = ROUTERS_MAX,
    ) -> None:
        self._context = context
        self._ask = ask
        self._cap = cap
        self._machine = Machine(MACHINE, context.timers, self._ring)
        self._routers: dict[IpAddress, _Router] = {}

    def __contains__(self, ip: IpAddress) -> bool:
        return ip in self._routers

    def advertised(self, now: float, advertisement: RouterAdvertisement) -> None:
        """The router sent an advertisement, which the local stack gets too."""
        ip = advertisement.source
        if _longest_s(advertisement) == 0:
            self._feed(now, ip, Input.RETIRED)
            return
        if ip not in self._routers:
            self._drop_expired(now)
            if len(self._routers) >= self._cap:
                self._context.count("router_table_full")
                return
            self._routers[ip] = _Router(State.NONE, advertisement, now)
        self._routers[ip].advertisement, self._routers[ip].since = advertisement, now
        self._feed(now, ip, Input.ADVERTISED)

    def ceased(self, now: float, ip: IpAddress) -> None:
        """A neighbour advertisement of the router has no Router flag."""
        self._feed(now, ip, Input.CEASED)

    def failed(self, now: float, ip: IpAddress) -> None:
        """The neighbour did not answer its solicitations."""
        self._feed(now, ip, Input.FAILED)

    def answered(self, now: float, ip: IpAddress) -> None:
        """The neighbour answered a solicitation."""
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

    def _compare(self, now: float) -> None:
        """Withdraw the silent routers if another router is alive."""
        if any(it.state is State.USED and _left_s(it, now) > 0 for it in self._routers.values()):
            for ip, router in list(self._routers.items()):
                if router.state is State.SILENT:
                    self._feed(now, ip, Input.RIVALLED)

    def _act(self, now: float, ip: IpAddress, router: _Router, action: Action) -> None:
        match action:
            case Action.WITHDRAW:
                if router.state is State.WITHDRAWN:
                    self._log(f"router {ip} does not answer: this host uses another router")
                self._deliver(router.advertisement, lambda lifetime_s: 0)
            case Action.RESTORE:
                self._log(f"router {ip} answers again")
                past_s = int(now - router.since)
                self._deliver(
                    router.advertisement,
                    lambda it: it if it == _INFINITE_S else max(0, it - past_s),
                )
            case Action.ASK:
                self._ask(now, ip)
            case Action.ARM:
                self._machine.arm(ip, now + ROUTER_RETRY_S)
            case Action.FORGET:
                del self._routers[ip]

    def _ring(self, now: float, ip: IpAddress) -> None:
        is_over = _left_s(self._routers[ip], now) <= 0
        self._feed(now, ip, Input.RETIRED if is_over else Input.TIMEOUT)

    def _drop_expired(self, now: float) -> None:
        for ip, router in list(self._routers.items()):
            if _left_s(router, now) <= 0:
                self._feed(now, ip, Input.RETIRED)

    def _deliver(self, advertisement: RouterAdvertisement, left_s: Callable[[int], int]) -> None:
        """Give the stack the advertisement, with other lifetimes, and nothing about addresses."""
        lifetime_s = left_s(advertisement.lifetime_s)
        routes = tuple(
            Option(
                ROUTE_INFORMATION,
                each.body[:2] + left_s(_route_s(each)).to_bytes(4, "big") + each.body[6:],
            )
            for each in _routes(advertisement)
        )
        made = replace(
            advertisement,
            destination=ALL_NODES,
            lladdr=None,
            options=routes,
            lifetime_s=lifetime_s,
            flags=advertisement.flags if lifetime_s else advertisement.flags & ~_PREFERENCE,
        )
        self._context.emit(Deliver(made.pack()))

    def _log(self, text: str) -> None:
        self._context.emit(Log(logging.WARNING, text))


_INFINITE_S: Final = 0xFFFFFFFF


def _routes(advertisement: RouterAdvertisement) -> list[Option]:
    return [
        each
        for each in advertisement.options
        if each.type == ROUTE_INFORMATION and len(each.body) > 5
    ]


def _route_s(option: Option) -> int:
    return int.from_bytes(option.body[2:6], "big")


def _longest_s(advertisement: RouterAdvertisement) -> int:
    return max([advertisement.lifetime_s, *(_route_s(each) for each in _routes(advertisement))])


def _left_s(router: _Router, now: float) -> float:
    return router.since + _longest_s(router.advertisement) - now
