# SPDX-License-Identifier: BSD-2-Clause
"""Follows the port of an interface: whether it is up, its GID, and the carrier that `ip link` shows."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ipoibu.base.errors import LinkError
from ipoibu.endpoint.interface.carrier import Carrier
from ipoibu.endpoint.interface.port_follower import PortFollower
from ipoibu.endpoint.interface_contract import InterfaceContract
from ipoibu.fabric.base import Port

_log = logging.getLogger(__name__)


class PortWatch:
    """Looks at the port regularly, and when the device reports an event; every method runs on the
    interface's loop."""

    def __init__(
        self, interface: InterfaceContract, follower: PortFollower, carrier: Carrier
    ) -> None:
        self.carrier: Final = carrier
        self.is_active = True
        """False while the port carries no traffic."""
        self._interface = interface
        self._follower = follower
        self._timer: asyncio.TimerHandle | None = None
        self._why_down: str | None = None  # the reason in the log, while the port is down
        self._gid = interface.port.info.gid
        self._event_fd: int | None = None

    def start(self) -> None:
        """Look at the port regularly until `stop`."""
        self._timer = self._interface.loop.call_later(self._follower.period_s, self._poll)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def watch_events(self, event_fd: int | None) -> None:
        """Hear of the events of a data path's device."""
        self._event_fd = event_fd
        if event_fd is not None:
            self._interface.loop.add_reader(event_fd, self.look)

    def ignore_events(self) -> None:
        """Hear of no event any more: the data path ends."""
        if self._event_fd is not None:
            self._interface.loop.remove_reader(self._event_fd)

    def follow(self, port: Port) -> None:
        """The interface is on another rail's port."""
        self.carrier.follow(port)

    def note_gid(self) -> None:
        """The queue pair and its listeners have the GID that the port has now."""
        self._gid = self._interface.port.info.gid

    def look(self) -> None:
        """Follow the port's state and GID."""
        interface = self._interface
        try:
            active = self._follower.look(interface.port)
        except LinkError as error:
            self.stop()
            self.ignore_events()
            interface.fail(str(error))
            return
        if interface.is_severed:
            self.is_active = active  # `Interface.resume` reads this and the GID
            if not active:
                self.carrier.port_down()
            return
        if interface.fabric.is_stale:
            self.is_active = active
            self._replace_stale()
            return
        self._follow_gid()
        self._follow_state(active)

    def _poll(self) -> None:
        self.start()
        self.look()

    def _follow_gid(self) -> None:
        interface = self._interface
        gid = interface.port.info.gid
        if gid != self._gid and interface.rename_rc():  # if not, the next look tries again
            self._gid = gid
            now = interface.loop.time()
            interface.perform(interface.engine.port_event(now, "gid", interface.hwaddr))

    def _follow_state(self, active: bool) -> None:
        interface = self._interface
        if active != self.is_active:
            self.is_active = active
            if active:
                _log.warning("%s: the port is up", interface.port.info.device)
                self._why_down = None
                interface.up()
            else:
                interface.down()
        if not active:
            self._log_why_down()

    def _log_why_down(self) -> None:
        """Log that the port is down, once for each reason."""
        port = self._interface.port
        why = port.why_down()
        if why != self._why_down:
            self._why_down = why
            text = f"the port is down: {why}" if why else "the port is down"
            _log.warning("%s: %s", port.info.device, text)

    def _replace_stale(self) -> None:
        """Make another data path: the port, or that of another rail, has another GID."""
        interface, info = self._interface, self._interface.port.info
        if interface.engine.is_up:
            interface.engine.keep_ours()
        if info.gid == self._gid:
            interface.demand_flush("another rail has another GID")
        else:
            by = f", by {info.gid_by}" if info.gid_by else ""
            interface.demand_flush(f"the GID is {info.gid} now, not {self._gid}{by}")
