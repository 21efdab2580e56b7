# SPDX-License-Identifier: BSD-2-Clause
"""Chooses the rail that carries an interface's traffic: active-backup, as the kernel's bonding driver does
(Documentation/networking/bonding.rst: `primary`, `primary_reselect=always`, `updelay`).

A rail is one of the interface's ports. The active rail stays as long as it is up. When it fails, the
primary takes over if it is up, else the first rail that is up, without a delay. A primary that comes
back becomes active again once it has been up for `updelay_s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class RailState:
    """What is known of one rail. `since_s` is the time of its last change, of the monotonic clock."""

    is_up: bool = False
    since_s: float = 0.0

    def note(self, now: float, *, is_up: bool) -> bool:
        """Note an observation; return whether the rail changed."""
        if is_up == self.is_up:
            return False
        self.is_up, self.since_s = is_up, now
        return True


@dataclass(frozen=True, slots=True)
class RailPolicy:
    """`primary` is the index of the preferred rail; with None the active rail stays until it fails."""

    primary: int | None = None
    updelay_s: float = 0.0

    def choose(self, now: float, active: int, rails: Sequence[RailState]) -> int:
        """Return the index of the rail that shall be active; `active` if none is up."""
        primary = self.primary
        if rails[active].is_up:
            if primary is None or not rails[primary].is_up:
                return active
            return primary if now - rails[primary].since_s >= self.updelay_s else active
        if primary is not None and rails[primary].is_up:
            return primary
        return next((index for index, rail in enumerate(rails) if rail.is_up), active)
