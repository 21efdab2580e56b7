# SPDX-License-Identifier: BSD-2-Clause
"""Transitions: the changes of state of an interface's links, neighbours, groups and the like, for
observers such as `ipoibu monitor`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipoibu.base.addr import Gid, HwAddr, IpAddress, Mac


class Topic(enum.Enum):
    LINK = "link"
    ADDRESS = "addr"
    LEASE = "lease"
    NEIGHBOUR = "neigh"
    GROUP = "mcast"
    CONNECTION = "conn"
    PATH = "path"
    SA = "sa"
    DROP = "drop"
    GUEST = "guest"


class GuestChange(enum.StrEnum):
    """Says what has become of an address behind a TAP."""

    LEARNED = "learned"  # a guest has it
    MOVED = "moved"  # another guest has it
    GONE = "gone"  # no guest has it any more
    REFUSED = "refused"  # a guest used it that may not


@dataclass(frozen=True, slots=True)
class Transition:
    """The `subject` went from the state `before` to `after` because of `cause`, an input of its machine.

    `hwaddr` is the hardware address of a neighbour, `former` the address before; `detail` the kind of
    a group's membership, or the role in a connection; `reason` why a connection ended, in words. Of the
    topic DROP, `subject` is the peer, and `after` the counter of the message that we dropped. Of the topic
    GUEST, `subject` is an address, and `hwaddr` and `former` are MACs of guests; `detail` says what has
    become of the address (`GuestChange`).
    """

    topic: Topic
    subject: IpAddress | Gid | HwAddr | str
    before: str
    after: str
    cause: str
    hwaddr: HwAddr | Mac | None = None
    detail: str = ""
    former: HwAddr | Mac | None = None
    reason: str = ""


# An observer must not block, and must not call back.
Observer = Callable[[Transition], None]


def ignore(transition: Transition) -> None:
    """Observe nothing."""


def step(
    topic: Topic,
    subject: IpAddress | Gid | HwAddr | str,
    before: enum.Enum,
    after: enum.Enum,
    fed: enum.Enum,
    **more: Any,
) -> Transition:
    """Return the transition that one step of a state machine made."""
    return Transition(topic, subject, before.value, after.value, fed.value, **more)
