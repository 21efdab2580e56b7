# SPDX-License-Identifier: BSD-2-Clause
"""The host's neighbour cache: the states and times of RFC 4861 §7.2 and §7.3."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ipoibu.conform.mgid import solicited_node
from tests.doubles.peer.host import Host
from tests.doubles.peer.ipv6 import icmpv6, packed

DELAY_S: Final = 5.0
TRIES: Final = 3
PENDING_MAX: Final = 256  # packets for a neighbour that is asked for


class State(enum.Enum):
    INCOMPLETE = "incomplete"
    REACHABLE = "reachable"
    STALE = "stale"
    DELAY = "delay"
    PROBE = "probe"


@dataclass
class Neighbour:
    ip: str
    state: State = State.INCOMPLETE
    hwaddr: bytes = b""
    is_router: bool = False
    waiting: list[bytes] = field(default_factory=list)
    tries: int = 0
    clock: int = 0  # a timer set before is void
    packets: int = 0  # that came from it in this state


class Neighbours:
    """Every neighbour by its address; `send` resolves, and watches whether the neighbour is still there."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._by_ip: dict[str, Neighbour] = {}
        self.reachable_s = 30.0
        self.retransmit_s = 1.0
        self.on_gone: Callable[[str], None] = lambda ip: None
        """Called when a neighbour does not answer any more."""

    def __contains__(self, ip: str) -> bool:
        return ip in self._by_ip

    def is_silent(self, ip: str) -> bool:
        """Return whether nothing says that the neighbour can be reached."""
        entry = self._by_ip.get(ip)
        return entry is None or entry.state is State.INCOMPLETE

    def send(self, ip: str, packet: bytes) -> None:
        host = self._host
        entry = self._by_ip.get(ip)
        if entry is None:
            entry = self._by_ip[ip] = Neighbour(ip)
            self._queue(entry, packet)
            self._ask(entry)
            return
        if entry.state is State.INCOMPLETE:
            self._queue(entry, packet)
            return
        host.send_frame(entry.hwaddr, 0x86DD, packet)
        if entry.state is State.STALE:
            delay = 2.0 if host.deviates("probes after 2 s") else DELAY_S
            self._enter(entry, State.DELAY, delay, self._probe)

    def _queue(self, entry: Neighbour, packet: bytes) -> None:
        host = self._host
        if host.deviates("keeps the first packet while it asks") and entry.waiting:
            return
        if host.deviates("asks for one neighbour at a time"):
            for other in self._by_ip.values():
                if other is not entry:
                    other.waiting.clear()
        entry.waiting = [*entry.waiting, packet][-PENDING_MAX:]

    def _enter(
        self,
        entry: Neighbour,
        state: State,
        seconds: float | None = None,
        then: Callable[[Neighbour], None] = lambda entry: None,
    ) -> None:
        """Change the state, and call later unless it changes again."""
        entry.state = state
        entry.tries = 0
        entry.packets = 0
        self._arm(entry, seconds, then)

    def _arm(
        self, entry: Neighbour, seconds: float | None, then: Callable[[Neighbour], None]
    ) -> None:
        entry.clock += 1
        clock = entry.clock

        def over() -> None:
            if entry.clock == clock and self._by_ip.get(entry.ip) is entry:
                then(entry)

        if seconds is not None:
            self._host.later(seconds, over)

    def _forget(self, entry: Neighbour) -> None:
        del self._by_ip[entry.ip]
        self.on_gone(entry.ip)

    def _ask(self, entry: Neighbour) -> None:
        host = self._host
        tries = 2 if host.deviates("gives up after two questions") else TRIES
        if entry.tries == tries and not host.deviates("asks for ever"):
            self._forget(entry)
            return
        entry.tries += 1
        group = solicited_node(entry.ip)
        hop_limit = 64 if host.deviates("asks with hop limit 64") else 255
        with_address = not host.deviates("asks without its address")
        message = self._question(entry, with_address=with_address)
        host.send_group(group, 0x86DD, icmpv6(self._own(entry.ip), group, message, hop_limit))
        seconds = self.retransmit_s
        if seconds == 1.0 and host.deviates("asks slowly"):
            seconds = 2.2
        self._arm(entry, seconds, self._ask)

    def _probe(self, entry: Neighbour) -> None:
        host = self._host
        if entry.state is not State.PROBE:
            self._enter(entry, State.PROBE)
        tries = 2 if host.deviates("probes a neighbour twice") else TRIES
        if entry.tries == tries and (entry.is_router or not host.deviates("probes for ever")):
            if host.deviates("keeps a dead neighbour") and not entry.is_router:
                self._enter(entry, State.STALE)
            else:
                self._forget(entry)
            return
        entry.tries += 1
        message = self._question(entry)
        own = self._own(entry.ip)
        if entry.tries > 1 and host.deviates("probes all nodes after the first time"):
            group = solicited_node(entry.ip)
            host.send_group(group, 0x86DD, icmpv6(own, group, message, 255))
        else:
            host.send_frame(entry.hwaddr, 0x86DD, icmpv6(own, entry.ip, message, 255))
        self._arm(entry, self.retransmit_s, self._probe)

    def _question(self, entry: Neighbour, *, with_address: bool = True) -> bytes:
        option = link_layer_option(self._host, 1) if with_address else b""
        return b"\x87\0\0\0" + bytes(4) + packed(entry.ip) + option

    def _own(self, ip: str) -> str:
        link_local, wide, *_ = self._host.ipv6
        return link_local if ip.startswith("fe80:") else wide

    def _doubt(self, entry: Neighbour) -> None:
        self._enter(entry, State.STALE)

    def _confirm(self, entry: Neighbour) -> None:
        seconds = self.reachable_s
        if entry.is_router and self._host.deviates("doubts routers after 4 s"):
            seconds = min(seconds, 4.0)
        self._enter(entry, State.REACHABLE, seconds, self._doubt)

    def _flush(self, entry: Neighbour) -> None:
        waiting, entry.waiting = entry.waiting, []
        for packet in waiting:
            self.send(entry.ip, packet)

    def introduced(self, ip: str, hwaddr: bytes, *, by_group: bool = False) -> None:
        """A message of the neighbour names its address, and answers no question (§7.2.3, §6.3.4)."""
        host = self._host
        entry = self._by_ip.get(ip)
        is_new = entry is None
        if entry is None:
            if by_group and host.deviates("learns no asker of a group"):
                return
            entry = self._by_ip[ip] = Neighbour(ip)
        if is_new or entry.state is State.INCOMPLETE:
            entry.hwaddr = hwaddr
            self._doubt(entry)
            self._flush(entry)
        elif entry.hwaddr != hwaddr:
            if host.deviates("keeps the address of an asker that moved"):
                return
            entry.hwaddr = hwaddr
            if host.deviates("believes an asker that moved"):
                self._confirm(entry)
            else:
                self._doubt(entry)
        elif entry.state is State.PROBE and host.deviates("a question ends the probes"):
            self._confirm(entry)

    def advertised(
        self, ip: str, hwaddr: bytes | None, *, solicited: bool, override: bool, router: bool
    ) -> bool | None:
        """Take an advertisement (§7.2.5). Return whether the neighbour was a router before, or None if the
        advertisement has no effect."""
        host = self._host
        entry = self._by_ip.get(ip)
        if entry is None:
            if not host.deviates("an advertisement makes an entry") or hwaddr is None:
                return None
            entry = self._by_ip[ip] = Neighbour(ip, State.STALE, hwaddr)
            return None
        was_router, entry.is_router = entry.is_router, router
        if entry.state is State.INCOMPLETE:
            return was_router if self._resolve(entry, hwaddr, solicited=solicited) else None
        differs = hwaddr is not None and hwaddr != entry.hwaddr
        if differs and not override and not host.deviates("takes an address without override"):
            entry.is_router = was_router
            if entry.state is State.REACHABLE and not host.deviates("believes its own entry"):
                self._doubt(entry)
            return None
        if differs and override and host.deviates("takes no other address"):
            return was_router
        if differs:
            assert hwaddr is not None
            entry.hwaddr = hwaddr
        if solicited:
            confirms = entry.is_router or not host.deviates("an answer ends no probes")
        elif differs:
            confirms = host.deviates("believes an address that nobody asked for")
        else:
            confirms = host.deviates("any advertisement confirms")
        if confirms:
            self._confirm(entry)
        elif differs:
            self._doubt(entry)
        return was_router

    def _resolve(self, entry: Neighbour, hwaddr: bytes | None, *, solicited: bool) -> bool:
        """Take the answer to our question; return whether it is one."""
        if hwaddr is None:
            if not self._host.deviates("an answer without an address resolves"):
                return False
            hwaddr = self._host.last_sender
        entry.hwaddr = hwaddr
        if solicited:
            self._confirm(entry)
        else:
            self._doubt(entry)
        self._flush(entry)
        return True

    def set_router(self, ip: str, is_router: bool) -> None:
        if ip in self._by_ip:
            self._by_ip[ip].is_router = is_router

    def heard(self, ip: str) -> None:
        """A packet came from the neighbour, which confirms nothing (§7.3.1)."""
        entry = self._by_ip.get(ip)
        if entry is None or entry.state is not State.DELAY:
            return
        entry.packets += 1
        if entry.packets >= 3 and self._host.deviates("packets of a neighbour confirm it"):
            self._confirm(entry)


def link_layer_option(host: Host, kind: int) -> bytes:
    """Return the option 1 (source) or 2 (target) with the host's address (RFC 4391 §9.3)."""
    pad = b"\1\1" if kind == 2 and host.deviates("pads its address with ones") else b"\0\0"
    flags = 0 if host.deviates("announces no connected mode by ND") else host.flags
    return bytes((kind, 3)) + pad + bytes((flags,)) + host.hwaddr[1:]
