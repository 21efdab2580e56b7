# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the rail that carries an interface's traffic: active-backup, as the kernel's bonding driver does
(Documentation/networking/bonding.rst: `primary`, `primary_reselect=always`, `updelay`).

A rail is one of the interface's ports. The active rail stays as long as it is up. When it fails, the
primary takes over if it is up, else the first rail that is up, without a delay. A primary that comes
back becomes active again once it has been up for `updelay_s`.

Where hosts with several rails know each other (`ext/rails`), a rail that reaches fewer of them than
another does not stay active: so all hosts on separate wires leave the wire that one of them has lost. Only a
host that has answered on both rails counts for the comparison of two (`is_outdone`): one that is on one wire
only, and as many as somebody invents there, say nothing about the other wire. And no rail makes way for
another that has lost any host which it reaches.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ipoibu.base.limits import RAIL_POOR_MAX_S, RAIL_POOR_S, RAIL_SUSPECT_MAX_S, RAIL_SUSPECT_MIN_S


class Reach(NamedTuple):
    """Says how a host with several rails is reached, with a bit for each of our rails: by which flows go
    there, and on which it has ever answered."""

    usable: int
    reached: int


def is_outdone(rail: int, others: Iterable[int], hosts: Collection[Reach]) -> bool:
    """Return whether one of `others` reaches all hosts that `rail` does and more, among those that have
    answered on both."""
    for other in others:
        both = 1 << rail | 1 << other
        seen = {host.usable & both for host in hosts if host.reached & both == both}
        if 1 << other in seen and 1 << rail not in seen:
            return True
    return False


@dataclass(slots=True)
class RailState:
    """Describes one rail; times are of the monotonic clock.

    `is_up` says whether its port carries traffic, `since_s` since when. Until `suspect_until_s` the rail
    is avoided, because nobody answered over it, and `suspect_s` is how long the next time. Since `poor_s`
    another rail reaches more hosts; after `poor_wait_s` it is avoided, and the last time ended at `rich_s`.
    With `is_joining` the subnet administrator has not made its port a member of the link, which it would have
    to become first.
    """

    is_up: bool = False
    since_s: float = 0.0
    suspect_until_s: float = 0.0
    suspect_s: float = RAIL_SUSPECT_MIN_S
    poor_s: float = math.inf
    poor_wait_s: float = RAIL_POOR_S
    rich_s: float = -math.inf
    is_joining: bool = False

    def note(self, now: float, *, is_up: bool) -> bool:
        """Note an observation; return whether the rail changed."""
        if is_up == self.is_up:
            return False
        self.is_up, self.since_s = is_up, now
        return True

    def is_good(self, now: float) -> bool:
        """Return whether the rail is up and no suspect."""
        return self.is_up and now >= self.suspect_until_s

    def compare(self, now: float, *, is_poor: bool) -> None:
        """Note whether another rail reaches more hosts than this one. The next time we wait twice as long
        before we avoid the rail, unless it has been good for a while: a host that comes and goes on it does
        not move us each time."""
        if is_poor and self.poor_s == math.inf:
            self.poor_s = now
            if now - self.rich_s >= RAIL_POOR_MAX_S:
                self.poor_wait_s = RAIL_POOR_S
        elif not is_poor and self.poor_s != math.inf:
            if now - self.poor_s >= self.poor_wait_s:
                self.poor_wait_s = min(2 * self.poor_wait_s, RAIL_POOR_MAX_S)
            self.poor_s, self.rich_s = math.inf, now

    def is_best(self, now: float) -> bool:
        """Return whether the rail is good, and no other has reached more hosts for a while."""
        return self.is_good(now) and now - self.poor_s < self.poor_wait_s

    def note_heard(self) -> None:
        """A neighbour answered over the rail."""
        self.suspect_s = RAIL_SUSPECT_MIN_S

    def silent(self, now: float) -> None:
        """Nobody answered over the rail: avoid it, twice as long each time."""
        self.suspect_until_s = now + self.suspect_s
        self.suspect_s = min(2 * self.suspect_s, RAIL_SUSPECT_MAX_S)


@dataclass(frozen=True, slots=True)
class RailPolicy:
    """`primary` is the index of the preferred rail; with None the active rail stays until it fails."""

    primary: int | None = None
    updelay_s: float = 0.0

    def choose(self, now: float, active: int, rails: Sequence[RailState]) -> int:
        """Return the index of the rail that shall be active; `active` if none is up. A suspect counts as
        up only where no other rail is, and a rail that is joining only where no other is good."""
        primary = self.primary
        usable = [rail.is_best(now) and not rail.is_joining for rail in rails]
        if not any(usable):
            usable = [rail.is_best(now) for rail in rails]
        if not any(usable):
            usable = [rail.is_good(now) for rail in rails]
        if not any(usable):
            usable = [rail.is_up for rail in rails]
        if usable[active]:
            if primary is None or not usable[primary]:
                return active
            begun_s = max(rails[primary].since_s, rails[primary].suspect_until_s)
            return primary if now - begun_s >= self.updelay_s else active
        if primary is not None and usable[primary]:
            return primary
        return usable.index(True) if any(usable) else active
