# SPDX-License-Identifier: BSD-2-Clause
"""Checks that the machines of a lab reach each other in all ways that the kernel's own ib_ipoib does.

Two machines try everything towards each other. Of more each tries it with the next one, around a ring.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.judge import COMMON, SCRIPTS
from ipoibu.lab.machines.lab import Lab
from ipoibu.lab.machines.machine import CommandFailed, Machine
from ipoibu.lab.machines.plan import LINK_MTU
from ipoibu.lab.machines.runner import SCENARIOS, prelude
from ipoibu.lab.machines.stream import end_of

ATTEMPT_S: Final = 120.0  # for what one machine tries; each script gives up earlier
HEARING_S: Final = 35.0  # for a datagram to a group; `receive_group` gives up after 30 s
DETAIL_CHARACTERS: Final = 4096  # of what a failed attempt said
PRELUDE: Final = prelude(*SCRIPTS, SCENARIOS / "lab_machine.sh")
CONNECTED_BYTES: Final = 60000  # of echo data and headers, in one message


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that `host` tried towards `peer`; `detail` is what a failed attempt said."""

    host: str
    peer: str
    behaviour: str
    ok: bool
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "peer": self.peer,
            "check": self.behaviour,
            "ok": self.ok,
            "detail": self.detail,
        }

    def __str__(self) -> str:
        return f"{'ok  ' if self.ok else 'FAIL'}  {self.host} -> {self.peer}: {self.behaviour}"


def check(lab: Lab) -> Iterator[Outcome]:
    """Yield each outcome as it is known, half a minute for each pair; `MachineFailed` if a machine fails."""
    hosts = [it for it in lab.guests if it.interface == "ib0"]
    following = [*hosts[1:], hosts[0]]
    for first, second in list(zip(hosts, following, strict=True))[: 1 if len(hosts) == 2 else None]:
        pair = _Pair(first, second, lab, len(hosts))
        for own, other in ((first, second), (second, first)):
            yield from pair.try_all(own, other)
        yield from pair.restart_both()


class _Pair:
    """Two machines that try everything towards each other."""

    def __init__(self, first: Machine, second: Machine, lab: Lab, hosts: int) -> None:
        self._machines = (first, second)
        self._plans = {it.name: it for it in lab.plans}
        self._hosts = hosts
        mtu = min(int(it.succeed("cat /sys/class/net/ib0/mtu")) for it in self._machines)
        connected = self._plans[first.name].mode == "connected"
        self._largest = min(mtu, CONNECTED_BYTES + 28 if connected else LINK_MTU)

    def try_all(self, own: Machine, other: Machine) -> Iterator[Outcome]:
        """Let `own` try everything but restarts towards `other`."""
        (arp, nd, sizes4, sizes6, all_nodes, group4, group6, tcp4, tcp6, udp, *_) = COMMON
        size = self._largest - 28  # without the headers of IPv4 and ICMP
        for behaviour, script in (
            (arp, f"five_pings {other.ipv4}"),
            (nd, f"five_pings {other.ipv6}"),
            (
                f"it pings over IPv4 with {size} bytes",
                f"five_pings {other.ipv4} -s {size} -M do",
            ),
            (
                f"it pings over IPv6 with {size - 20} bytes",
                f"five_pings {other.ipv6} -s {size - 20} -M do",
            ),
            (sizes4, f"every_size {other.ipv4}"),
            (sizes6, f"every_size {other.ipv6}"),
            (all_nodes, f"all_nodes_answer {self._hosts}"),
        ):
            yield _try(own, other, behaviour, script)
        yield _hear(
            own,
            other,
            group4,
            "UDP4-RECVFROM:5000,ip-add-membership=239.1.2.3:ib0",
            f"UDP4-DATAGRAM:239.1.2.3:5000,ip-multicast-if={other.ipv4}",
        )
        yield _hear(
            own,
            other,
            group6,
            "UDP6-RECVFROM:5001,ipv6-join-group=[ff12::1234]:ib0",
            "UDP6-DATAGRAM:[ff12::1234%ib0]:5001",
        )
        yield _stream(own, other, tcp4, other.ipv4)
        yield _stream(own, other, tcp6, other.ipv6)
        # A machine's socket holds few packets.
        yield _stream(own, other, udp, other.ipv4, "-u -b 5M -l 4000")

    def restart_both(self) -> Iterator[Outcome]:
        """Let the interface of each machine end and come back, and both find each other again."""
        first, second = self._machines
        for machine, behaviour in zip(self._machines, COMMON[-2:], strict=True):
            kind = self._plans[machine.name].kind
            restarted = _try(machine, machine, behaviour, f"interface_again {kind}")
            for own, other in ((first, second), (second, first)):
                answer = f"until_true 20 'an answer' ping -q -c 1 -W 1 {other.ipv4}"
                found = _try(own, other, behaviour, answer)
                yield (
                    found
                    if restarted.ok
                    else Outcome(own.name, other.name, behaviour, ok=False, detail=restarted.detail)
                )


def _try(own: Machine, other: Machine, behaviour: str, script: str) -> Outcome:
    """Run a script, which fails if `own` cannot do that."""
    counted = f"{PRELUDE}if {script} 2>&1; then true; else counters; false; fi"
    try:
        status, said = own.execute(counted, ATTEMPT_S)
    except CommandFailed as failure:
        status, said = 1, str(failure)
    ok = status == 0
    return Outcome(
        own.name, other.name, behaviour, ok, "" if ok else end_of(said, DETAIL_CHARACTERS)
    )


def _hear(own: Machine, other: Machine, behaviour: str, member: str, sender: str) -> Outcome:
    """Let `other` send to a group that `own` has joined, again and again until it arrives."""
    hearing = own.start(f"{PRELUDE}receive_group {member}")
    deadline = time.monotonic() + HEARING_S
    while hearing.is_running and time.monotonic() < deadline:
        other.execute(f"echo hello, group | socat -u STDIN '{sender}'", ATTEMPT_S)
    ok = "hello" in hearing.wait(ATTEMPT_S).output
    return Outcome(own.name, other.name, behaviour, ok, "" if ok else hearing.errors)


def _stream(
    own: Machine, other: Machine, behaviour: str, address: str, options: str = ""
) -> Outcome:
    """Let `own` send to `other` for a second."""
    server = other.start(f"exec iperf3 -s -1 -B {address}")
    try:
        if other.execute(f"{PRELUDE}listening 5201", ATTEMPT_S).status != 0:
            raise LabError(f"machine {other.name}: iperf3: {server.output}{server.errors}")
        return _try(own, other, behaviour, f"iperf3 -c {address} -t 1 -J {options}")
    finally:
        server.kill()
        server.wait(ATTEMPT_S)
