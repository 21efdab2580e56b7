# SPDX-License-Identifier: BSD-2-Clause
"""Runs tests against one peer, one after the other, and judges."""

from __future__ import annotations

import ipaddress
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.conform.helper import Helper
from ipoibu.conform.layout import Value
from ipoibu.conform.link import CannotSend, Link, QueuePair
from ipoibu.conform.mgid import solicited_node
from ipoibu.conform.packet import Given, Packet, Rule, resolve
from ipoibu.conform.peer import Peer
from ipoibu.conform.test import (
    Act,
    Answer,
    Connect,
    Establish,
    Expect,
    Join,
    Level,
    Need,
    Repeat,
    Require,
    Send,
    Silence,
    Step,
    Test,
    Try,
    Wait,
    What,
)
from ipoibu.conform.tester import (
    Address,
    Arrival,
    Tester,
    echo_request,
)
from ipoibu.conform.verdict import Outcome, Verdict

PING_S: Final = 1.0  # for one answer to a ping
PINGS: Final = 3  # until the peer counts as gone
RESTART_S: Final = 20  # until a host that restarts its interface must answer again
FENCE_S: Final = (
    0.1  # what a peer sends later than its answer to a ping, though it was asked before
)
FREE4_COUNT: Final = 4  # nobody has them, so tests take turns with few
ENCAP_LEN: Final = 4  # bytes in front of an IP packet
LINES_MAX: Final = 6  # of what was heard instead, in a reason
GROUPS: Final = ("255.255.255.255", "224.0.0.1", "224.0.0.22", "ff02::1", "ff02::2", "ff02::16")
"""The groups that the tester is in all the time: those to which hosts send of themselves."""


class NotMet(Exception):
    """A step did not come out as the test says; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Addresses that the tester may use: `ipv4` one after the other, IPv6 as it likes."""

    ipv4: Sequence[str] = ()
    seed: int = 0


class Suite:
    """Grades `peer` over `link`; one thread uses it."""

    def __init__(
        self,
        link: Link,
        peer: Peer,
        around: Surroundings,
        helper: Helper | None = None,
        *,
        is_destructive: bool = False,
    ) -> None:
        self._link: Final = link
        self._peer = peer
        self._helper: Final = helper
        self._is_destructive: Final = is_destructive
        self._tester: Final = Tester(link)
        # The peer knows no address of an earlier run. All share the low 24 bits, thus a solicited-node group.
        random_bits = random.Random(around.seed)
        self._base: Final = (
            random_bits.getrandbits(24) & 0xFDFFFF
        )  # no EUI-64 of a universal address
        self._low: Final = random_bits.getrandbits(24)
        self._numbers: Final = itertools.count(1)
        self._ids: Final = random_bits
        self._pings: Final = itertools.count(random_bits.getrandbits(24) << 8)
        self._watch4, *rest = around.ipv4 or ("",)
        self._free4: Final[Iterator[str]] = itertools.cycle(rest[:FREE4_COUNT] or ("",))
        self._ipv4: Final[Iterator[str]] = itertools.cycle(rest[FREE4_COUNT:] or ("",))
        self._watch6: Final = self._ipv6("fe80::", 0)
        for group in (*GROUPS, solicited_node(self._watch6)):
            if peer.ipv6 is not None or ":" not in group:
                link.join(self._tester.hwaddr(group)[4:])

    def _ipv6(self, prefix: str, number: int) -> str:
        first = int(ipaddress.IPv6Address(prefix)) >> 64 << 64
        identifier = self._base << 40 | (number & 0xFFFF) << 24 | self._low
        return str(ipaddress.IPv6Address(first | identifier))

    def run(
        self, tests: Sequence[Test], report: Callable[[Verdict], None] = lambda verdict: None
    ) -> list[Verdict]:
        """Run the tests in order; `report` gets each verdict at once."""
        verdicts = []
        for test in tests:
            verdict = self.judge(test)
            report(verdict)
            verdicts.append(verdict)
        return verdicts

    def judge(self, test: Test) -> Verdict:
        """Run one test; once more if it fails, because a datagram may get lost."""
        if (lack := self._lack(test)) is not None:
            return Verdict(test, Outcome.NOT_APPLICABLE, lack)
        first = self._try(test)
        if first.outcome is not Outcome.FAIL:
            return first
        second = self._try(test)
        failed = second.outcome is Outcome.FAIL
        outcome = (
            (Outcome.FAIL if test.level is Level.MUST else Outcome.WARN)
            if failed
            else second.outcome
        )
        return Verdict(
            test,
            outcome,
            second.reason,
            second.transcript,
            first.seconds + second.seconds,
            tries=2,
        )

    def _lack(self, test: Test) -> str | None:
        """Return what the test needs and this run does not have."""
        peer = self._peer
        has = {
            Need.IPV4: peer.ipv4 is not None and bool(self._watch4),
            Need.IPV6: peer.ipv6 is not None,
            Need.GLOBAL_IPV6: peer.ipv6_global is not None,
            Need.CONNECTED: peer.has_connected_mode,
            Need.GSI: True,  # the first datagram says so
            Need.HELPER: self._helper is not None,
        }
        for need in Need:
            if need in test.needs and not has[need]:
                return f"needs {need.value}"
        if test.is_destructive and not self._is_destructive:
            return "disturbs the peer for a while: --destructive runs it"
        return None

    def _names(self, test: Test) -> tuple[dict[str, Value], list[Address]]:
        link, peer, number = self._link, self._peer, next(self._numbers)
        names: dict[str, Value] = {
            "peer_hw": peer.hwaddr,
            "my_hw": link.address(QueuePair.MINE),
            "other_hw": link.address(QueuePair.OTHER),
            "broadcast": self._tester.hwaddr("255.255.255.255"),
            "mtu": link.params.mtu,
            "pkey": link.params.pkey,
            "qkey": link.params.qkey,
            "comm_id": self._ids.getrandbits(31) | 1 << 31,
            "comm_id2": self._ids.getrandbits(31) | 1,
            "path_mtu": max(1, (link.params.mtu + ENCAP_LEN).bit_length() - 8),
            "tid": self._ids.getrandbits(32),
            "tid2": self._ids.getrandbits(32),
            "me6": self._ipv6("fe80::", number),
            "free6": self._ipv6("fe80::", 0x8000 | number),
        }
        addresses = [Address(self._watch6, QueuePair.WATCHER)]
        if peer.ipv4 is not None and self._watch4:
            names["peer4"] = peer.ipv4
            if Need.IPV4 in test.needs:  # a network has few addresses: no other test takes one
                names |= {"me4": next(self._ipv4), "free4": next(self._free4)}
            addresses.append(Address(self._watch4, QueuePair.WATCHER))
        if peer.ipv6 is not None:
            names["peer6"] = peer.ipv6
        if peer.ipv6_global is not None:
            names["peer6_global"] = peer.ipv6_global
            names["me6_global"] = self._ipv6(peer.ipv6_global, number)
        mine = (names[it] for it in ("me4", "me6", "me6_global") if it in names)
        return names, [*addresses, *(Address(str(it), QueuePair.MINE) for it in mine)]

    def _try(self, test: Test) -> Verdict:
        tester = self._tester
        names, addresses = self._names(test)
        tester.begin(names, addresses)
        began_s = self._link.now()
        outcome, reason = Outcome.PASS, ""
        run = _Run(self, tester)
        try:
            run.do_all(test.steps)
            self.check_alive(test)
        except NotMet as error:
            outcome, reason = Outcome.FAIL, str(error)
        except CannotSend as error:
            outcome, reason = Outcome.NOT_APPLICABLE, str(error)
        except KeyError as error:
            outcome, reason = Outcome.NOT_APPLICABLE, f"needs {error.args[0]}"
        finally:
            with suppress(NotMet, CannotSend, KeyError):
                run.do_all(test.cleanup)
            self._link.close_connection()
            tester.leave_all()
        if tester.overflow:
            tester.note(f"{tester.overflow} further datagrams are left out")
        seconds = self._link.now() - began_s
        return Verdict(test, outcome, reason, tuple(tester.transcript), seconds)

    def check_alive(self, test: Test) -> None:
        """Raise `NotMet` unless the peer answers a ping over each IP version that it has."""
        if not self.ping():
            raise NotMet(f"the host answers no ping any more, {PINGS} in {PINGS * PING_S:g} s")

    def ping(self) -> bool:
        """Ask from the watcher's address; return whether an answer came."""
        peer, tester = self._peer, self._tester
        pairs = [(self._watch4, peer.ipv4), (self._watch6, peer.ipv6)]
        for source, target in ((a, b) for a, b in pairs if a and b is not None):
            for _ in range(PINGS):
                number = next(self._pings) & 0xFFFFFFFF
                tester.send(echo_request(source, target, number), peer.hwaddr, QueuePair.WATCHER)
                seen = len(tester.arrivals)

                def came(seen: int = seen, source: str = source, number: int = number) -> bool:
                    new = tester.arrivals[seen:]
                    return any(tester.is_answer(it.packet, source, number) for it in new)

                if tester.hear(self._link.now() + PING_S, came):
                    break
            else:
                return False
        return True

    def find_again(self) -> None:
        """Learn the peer's hardware address anew, which changes when its queue pair does (RFC 4391 §9.4)."""
        peer, tester = self._peer, self._tester
        ip, source = peer.ipv4, self._watch4
        if ip is None or not source:
            ip, source = peer.ipv6, self._watch6
        assert ip is not None
        found = tester.locate(ip, source, RESTART_S)
        if found is None:
            raise NotMet(f"the host answers no more for {ip}, {RESTART_S} s after its restart")
        hwaddr, flags = found
        self._peer = replace(peer, hwaddr=hwaddr, flags=flags)
        tester.names["peer_hw"] = hwaddr

    @property
    def helper(self) -> Helper | None:
        return self._helper


class _Run:
    """The steps of one test: what came since the last `Send`, and which expectations took it."""

    def __init__(self, suite: Suite, tester: Tester) -> None:
        self._suite = suite
        self._tester = tester
        self._link = tester.link
        self._mark = 0
        self._sent_s = self._link.now()

    def do_all(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self.do(step)

    def do(self, step: Step) -> None:
        tester, link = self._tester, self._link
        match step:
            case Send():
                self._mark = len(tester.arrivals)
                self._sent_s = link.now()
                for number in range(step.times):
                    if number and step.every_s:
                        tester.hear(link.now() + step.every_s)
                    tester.send(step.packet, step.to, step.by)
            case Expect():
                self._expect(step)
            case Silence():
                self._silence(step)
            case Wait():
                tester.hear(link.now() + step.seconds)
            case Answer():
                for own in tester.addresses:
                    if own.queue_pair is QueuePair.MINE:
                        own.answers, own.flags = step.on, step.flags
                        own.is_router = step.as_router
            case Join():
                tester.join(step.group)
            case Act():
                assert self._suite.helper is not None
                tester.note(f"the helper: {step.what}")
                self._mark = len(tester.arrivals)
                self._sent_s = link.now()
                self._suite.helper.act(step.what, tester.names)
                if step.what == "restart":
                    self._suite.find_again()
            case Repeat() | Try() | Require():
                self._control(step)
            case Connect() | Establish():
                self._connect(step)

    def _connect(self, step: Connect | Establish) -> None:
        names, link = self._tester.names, self._link
        if isinstance(step, Connect):
            names["rc_qpn"] = link.open_connection()
            return
        to = names["peer_hw"]
        assert isinstance(to, bytes)
        given = step.their_qpn, step.path_mtu, step.receive_psn, step.send_psn
        link.connect(to, *(self._number(it) for it in given))

    def _control(self, step: Repeat | Try | Require) -> None:
        names = self._tester.names
        match step:
            case Repeat():
                self._repeat(step)
            case Try():
                self._do_or(step)
            case Require():
                found, wanted = names[step.kept.name], resolve(step.wanted, names)
                if not (wanted.holds(found) if isinstance(wanted, Rule) else wanted == found):
                    raise NotMet(f"{step.kept} is {found!r}, not {wanted!r}")

    def _number(self, given: Given) -> int:
        value = resolve(given, self._tester.names)
        assert isinstance(value, int)
        return value

    def _repeat(self, step: Repeat) -> None:
        for _ in range(step.tries - 1):
            try:
                self.do_all(step.steps)
            except NotMet as error:
                self._tester.note(f"once more: {error}")
            else:
                return
        self.do_all(step.steps)

    def _do_or(self, step: Try) -> None:
        try:
            self.do_all(step.steps)
        except NotMet as error:
            self._tester.note(f"otherwise: {error}")
            self.do_all(step.otherwise)

    def _matches(self, what: What, step: Expect | Silence) -> list[Arrival]:
        tester = self._tester
        packet = what if isinstance(what, Packet) else Packet((what,))
        wanted = packet.resolved(tester.names)
        to = None if step.to is None else tester.hwaddr(step.to)
        by = step.by if isinstance(step.by, tuple) else (step.by,)
        return [
            it
            for it in tester.arrivals[self._mark :]
            if it.heard.queue_pair in by
            and not it.is_taken
            and wanted.is_met_by(it.packet)
            and (to is None or self._went_to(it, to))
        ]

    def _went_to(self, arrival: Arrival, to: bytes) -> bool:
        """Return whether a datagram went to the hardware address; without a GRH it was unicast."""
        dgid = arrival.heard.dgid
        return (dgid or self._link.address(arrival.heard.queue_pair)[4:]) == to[4:]

    def _expect(self, step: Expect) -> None:
        until_s = self._sent_s + step.within_s
        at_most = step.count if step.exactly else step.at_most
        if at_most is not None:
            self._tester.hear(until_s)
        else:
            self._tester.hear(until_s, lambda: len(self._matches(step.packet, step)) >= step.count)
        found = self._matches(step.packet, step)
        if len(found) < step.count or (at_most is not None and len(found) > at_most):
            times = "" if step.count == 1 and at_most is None else f"{step.count} times "
            if at_most is not None and at_most != step.count:
                times += f"to {at_most} times "
            raise NotMet(
                f"expected {times}within {step.within_s:g} s: {self._words(step.packet)}; "
                f"{len(found)} came; {self._instead()}"
            )
        found = found[: step.count]
        for it in found:
            it.is_taken = True
        if found and found[0].heard.at_s - self._sent_s < step.after_s:
            raise NotMet(
                f"{found[0].packet} came after {found[0].heard.at_s - self._sent_s:.2f} s, "
                f"before {step.after_s:g} s"
            )
        if step.apart_s is not None:
            least, most = step.apart_s
            for one, other in itertools.pairwise(found):
                gap = other.heard.at_s - one.heard.at_s
                if not least <= gap <= most:
                    raise NotMet(f"{gap:.2f} s apart, not {least:g} to {most:g} s: {one.packet}")
        for name, (layer, of) in step.keep.items():
            value = next(it for it in found[-1].packet.layers if it.name == layer).values[of]
            assert isinstance(value, int | str | bytes)
            self._tester.names[name] = value

    def _silence(self, step: Silence) -> None:
        if step.for_s is not None:
            self._tester.hear(self._link.now() + step.for_s)
        else:
            if not self._suite.ping():
                raise NotMet("the host answers no ping any more")
            self._tester.hear(self._link.now() + FENCE_S)
        if found := self._matches(step.packet, step):
            raise NotMet(f"this came, and must not: {found[0].packet}")

    def _words(self, what: What) -> str:
        packet = what if isinstance(what, Packet) else Packet((what,))
        return str(packet.resolved(self._tester.names))

    def _instead(self) -> str:
        others = [it for it in self._tester.arrivals[self._mark :] if not it.is_taken]
        others = [it for it in others if it.heard.queue_pair is not QueuePair.WATCHER]
        if not others:
            return "nothing else came"
        lines = "; ".join(str(it.packet) for it in others[:LINES_MAX])
        return f"heard: {lines}" + (" ..." if len(others) > LINES_MAX else "")
