# SPDX-License-Identifier: BSD-2-Clause
"""How an interface follows its port. This one has one port; `rail_follower.py` has several."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ipoibu.base.addr import Gid
from ipoibu.fabric.shared_port import SharedPort

PORT_POLL_S: Final = 1.0  # the longest delay until we notice that a port went down or came back


class PortFollower:
    """Every method runs on the interface's loop. Only `look` does something for a single port."""

    @property
    def period_s(self) -> float:
        """How long after one look the next one comes."""
        return PORT_POLL_S

    def look(self, port: SharedPort) -> bool:
        """Return whether `port`, which carries the traffic, is up."""
        return port.active()

    def start_monitor(self) -> None:
        """Ask the monitored neighbours, if there are any."""

    def avoid(self, why: str) -> None:
        """Avoid the port for a while, where another is up: it does not lead to the link."""

    def note_joined(self) -> None:
        """The SA has made the port a member of the broadcast group."""

    def set_received(self, groups: Collection[Gid]) -> None:
        """The port is a member of these groups, and of no others."""

    def open_backups(self) -> None:
        """Have the ports that wait join what the active one joins."""

    def close_backups(self) -> None:
        """End that."""
