# SPDX-License-Identifier: BSD-2-Clause
"""The paths of a link to its ports and groups, as the engine's machines see them.

`Paths` serves a link without a subnet administrator (SA). `sa.path` has the table of a link with one, and
says what the states mean.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ipoibu.base.addr import Gid, IpAddress
from ipoibu.base.ib import Destination
from ipoibu.base.limits import IP_PACKET_MAX_BYTES
from ipoibu.proto.effects import Effect


class State(enum.Enum):
    NONE = "none"
    ASKED = "asked"
    KNOWN = "known"
    STALE = "stale"
    BACKOFF = "backoff"


@dataclass(frozen=True, slots=True)
class SaPath:
    """A path as the SA gives it; `mtu_bytes` is the largest IP packet that it carries."""

    destination: Destination
    mtu_bytes: int = IP_PACKET_MAX_BYTES


@dataclass(frozen=True, slots=True)
class PathInfo:
    """A path as `ipoibu path` shows it; the destination and the MTU are None until the SA gives them."""

    gid: Gid
    state: str
    destination: Destination | None
    mtu_bytes: int | None
    next_hops: tuple[IpAddress, ...]
    waiting: int = 0


class Paths:
    """The paths of a link without an SA: each is what the link's parameters say, and nothing is asked."""

    def state(self, gid: Gid) -> State:
        return State.NONE

    def gids(self) -> list[Gid]:
        """Return the GIDs of all paths, so that the caller can ask for a few at a time."""
        return []

    def snapshot(self, gids: Iterable[Gid]) -> list[PathInfo]:
        """Return the paths to those of `gids` that still have an entry."""
        return []

    def pass_on(self, now: float, effects: Iterable[Effect]) -> list[Effect]:
        """Return the effects that may happen now, and those that became possible since the last call."""
        return list(effects)

    def note_path_resolved(self, now: float, gid: Gid, path: SaPath) -> None: ...

    def note_refused(self, now: float, gid: Gid, reason: str) -> None: ...

    def note_joined(self, now: float, group: Gid, path: SaPath) -> None: ...

    def note_resigned(self, now: float, group: Gid) -> None: ...

    def revalidate(self, now: float, only: Gid | None = None) -> None: ...

    def note_changed(self, now: float, group: Gid, *, exists: bool) -> None: ...

    def note_rerouted(self, is_affected: Callable[[IpAddress], bool]) -> None: ...

    def clear(self, now: float) -> None: ...
