# SPDX-License-Identifier: BSD-2-Clause
"""Transitions: the changes of state of an interface's links, neighbours, groups and the like, for
observers such as `ipoibu monitor`."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ipoibu.addr import Gid, HwAddr, IpAddress


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


@dataclass(frozen=True, slots=True)
class Transition:
    """The `subject` went from the state `before` to `after` because of `cause`, an input of its machine.

    `hwaddr` is the hardware address of a neighbour, `former` the address before; `detail` the kind of
    a group's membership, or the role in a connection; `reason` why a connection ended, in words. Of the
    topic DROP, `subject` is the peer, and `after` the counter of the message that we dropped.
    """

    topic: Topic
    subject: IpAddress | Gid | HwAddr | str
    before: str
    after: str
    cause: str
    hwaddr: HwAddr | None = None
    detail: str = ""
    former: HwAddr | None = None
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
