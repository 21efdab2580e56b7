# SPDX-License-Identifier: BSD-2-Clause
"""The host's detection of address conflicts: RFC 5227."""

from __future__ import annotations

from typing import Final

from ipoibu.conform.packet import Names
from tests.doubles.peer.arp import ArpPart
from tests.doubles.peer.host import Host

TAKEN: Final = "169.254.77.7"
NOBODY: Final = "0.0.0.0"
WAIT_S: Final = 0.3  # up to 1 s
BETWEEN_S: Final = 1.3  # 1 to 2 s
ANNOUNCE_S: Final = 2.0  # after the last probe, and between announcements
DEFEND_S: Final = 10.0


class ConflictPart:
    """Probes for a new address, announces it, and defends the first one."""

    def __init__(self, host: Host, arp: ArpPart) -> None:
        self._host = host
        self._arp = arp
        self._run = 0  # counts the times that the address came and went
        self._is_probing = False
        self._defended_s = -DEFEND_S
        arp.hear = self._hear
        host.acts["take4"] = self._take
        host.acts["drop4"] = self._drop

    def _take(self, names: Names) -> None:
        self._drop(names)
        self._is_probing = True
        if self._host.deviates("answers for an address that it probes for"):
            self._arp.more.add(TAKEN)
        self._host.later(WAIT_S, self._probe, self._run, 1)

    def _drop(self, names: Names) -> None:
        self._run += 1
        self._is_probing = False
        self._arp.more.discard(TAKEN)

    def _probe(self, run: int, number: int) -> None:
        host = self._host
        if run != self._run:
            return
        by_own = host.deviates("probes by the new address")
        self._arp.ask(host.ipv4 if by_own else NOBODY, TAKEN)
        if number < (2 if host.deviates("probes twice") else 3):
            pause_s = 0.2 if host.deviates("probes without a pause") else BETWEEN_S
            host.later(pause_s, self._probe, run, number + 1)
        else:
            host.later(ANNOUNCE_S, self._announce, run, 1)

    def _announce(self, run: int, number: int) -> None:
        host = self._host
        if run != self._run:
            return
        self._is_probing = False
        self._arp.more.add(TAKEN)
        self._arp.ask(TAKEN, TAKEN)
        if number == 1 and not host.deviates("announces an address once"):
            host.later(ANNOUNCE_S, self._announce, run, 2)

    def _hear(self, operation: int, hwaddr: bytes, source: str, target: str) -> None:
        host = self._host
        if hwaddr[1:] == host.hwaddr[1:]:
            return
        owned = source == TAKEN and not host.deviates("ignores the owner while it probes")
        probed = (operation, source, target) == (1, NOBODY, TAKEN)
        if probed and host.deviates("ignores another host's probe"):
            probed = False
        if self._is_probing and (owned or probed):
            self._drop({})
        if source == host.ipv4 and not host.deviates("defends no address"):
            self._defend()

    def _defend(self) -> None:
        host = self._host
        now_s = host.wire.now()
        if now_s - self._defended_s < DEFEND_S and not host.deviates("defends without a limit"):
            return
        self._defended_s = now_s
        self._arp.ask(host.ipv4, host.ipv4)
