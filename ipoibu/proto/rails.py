# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the rail that carries an interface's traffic: active-backup, as the kernel's bonding driver does
(Documentation/networking/bonding.rst: `primary`, `primary_reselect=always`, `updelay`).

A rail is one of the interface's ports. The active rail stays as long as it is up. When it fails, the
primary takes over if it is up, else the first rail that is up, without a delay. A primary that comes
back becomes active again once it has been up for `updelay_s`.

Where hosts with several rails know each other (`ext/rails`), a rail that reaches fewer of them than
another does not stay active: so all hosts on separate wires leave the wire that one of them has lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ipoibu.limits import RAIL_POOR_S, RAIL_SUSPECT_MAX_S, RAIL_SUSPECT_MIN_S


@dataclass(slots=True)
class RailState:
    """Describes one rail; times are of the monotonic clock.

    `is_up` says whether its port carries traffic, `since_s` since when. Until `suspect_until_s` the rail
    is avoided, because nobody answered over it, and `suspect_s` is how long the next time. Since `poor_s`
    another rail reaches more hosts. With `is_joining` the subnet administrator has not made its port a member
    of the link, which it would have to become first.
    """

    is_up: bool = False
    since_s: float = 0.0
    suspect_until_s: float = 0.0
    suspect_s: float = RAIL_SUSPECT_MIN_S
    poor_s: float = math.inf
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
        """Note whether another rail reaches more hosts than this one."""
        self.poor_s = min(self.poor_s, now) if is_poor else math.inf

    def is_best(self, now: float) -> bool:
        """Return whether the rail is good, and no other has reached more hosts for a while."""
        return self.is_good(now) and now - self.poor_s < RAIL_POOR_S

    def heard(self) -> None:
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
