# SPDX-License-Identifier: BSD-2-Clause
"""Has an interface follow its rails (docs/use/rails.md): at once where the other rail has a queue pair and
is a member of the link, otherwise by a heavy flush over the other port."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ipoibu.base.addr import Gid
from ipoibu.base.device_name import device_text
from ipoibu.base.limits import RAIL_POLL_S
from ipoibu.endpoint.interface.interface import Interface
from ipoibu.endpoint.interface.port_follower import PortFollower
from ipoibu.endpoint.rails.backup_members import BackupMembers
from ipoibu.endpoint.rails.monitor import RailMonitor
from ipoibu.endpoint.rails.rails import Rails
from ipoibu.fabric.shared_port import SharedPort

_log = logging.getLogger(__name__)


class RailFollower(PortFollower):
    """Every method runs on the interface's loop."""

    def __init__(self, interface: Interface, rails: Rails) -> None:
        self._interface = interface
        self._rails = rails
        self._backups: BackupMembers | None = None

    @property
    def period_s(self) -> float:
        return RAIL_POLL_S

    def start_monitor(self) -> None:
        interface, rails = self._interface, self._rails
        if not interface.config.rail_monitor:
            return
        monitor = RailMonitor(
            interface.config.rail_monitor,
            interface.shell.pinger.ping,
            lambda: None if self._is_idle() else interface.path,
            rails.note_heard,
            lambda: self.avoid("no monitored neighbour answers"),
        )
        interface.ask(monitor.run())

    def _is_idle(self) -> bool:
        return not self._interface.engine.is_up or self._interface.shell.is_severed

    # ---- which rail carries the traffic

    def look(self, port: SharedPort) -> bool:
        """Carry the traffic over the active rail; return whether that rail is up."""
        interface, rails = self._interface, self._rails
        now, joined = interface.loop.time(), interface.path.joined
        is_severed = interface.shell.is_severed
        if joined is not None and not (is_severed or interface.config.rail_monitor):
            rails.compare(now, joined.reach())
        before, before_rail = port, rails.active
        joining = self._backups.joining() if self._backups is not None else ()
        is_up, after = rails.look(now, interface.loop, joining), rails.port
        if after is not before:
            interface.counts["rail_changes"] += 1
            places = [device_text(it.info.device, it.info.port) for it in (after, before)]
            why = f"{places[0]} carries the traffic now, not {places[1]}"
            if not is_severed and self._can_move():
                _log.warning("%s: %s", interface.place, why)
                self._move(before_rail)
            else:
                interface.engine.keep_ours()
                interface.demand_flush(why)
                interface.change_port(after)
        elif rails.is_gone and not is_severed:
            interface.demand_flush(rails.why())
            interface.note_device_gone()
        elif joined is not None and not is_severed:
            self._follow_backups()
        rails.close_gone()
        return is_up

    def avoid(self, why: str) -> None:
        """Avoid the active rail for a while, where another is up: it does not lead to the link."""
        self._rails.avoid(self._interface.loop.time(), why)

    def note_joined(self) -> None:
        """The SA has made the active rail a member of the broadcast group. With monitored neighbours, only
        their answers show that the rail is good."""
        if not self._interface.config.rail_monitor:
            self._rails.note_heard()

    def _can_move(self) -> bool:
        """Return whether the active rail has a queue pair and is a member of the link."""
        is_member = self._backups is None or self._backups.is_ready(self._rails.active)
        return self._interface.path.can_move(self._rails) and is_member

    def _move(self, before_rail: int) -> None:
        """Carry the traffic over the active rail, which `_can_move` allows, no more over `before_rail`."""
        interface, rails, backups = self._interface, self._rails, self._backups
        now, before = interface.loop.time(), interface.subnet
        interface.move(interface.path.follow(rails, now))
        if backups is None:
            interface.perform(interface.engine.note_moved(now, interface.path.hwaddr))
            return
        requests = before.hand_over()
        backups.move(before_rail, rails.active)
        subnet = interface.open_subnet(interface.port, before.received)
        interface.perform(interface.engine.note_moved(now, interface.path.hwaddr))
        interface.perform(interface.engine.sa.note_changed(now))
        for request in requests:
            interface.perform(subnet.request(request))

    # ---- the rails that wait

    def _follow_backups(self) -> None:
        """Have the data path use the rails that are up. One whose device has come or gone makes another
        data path necessary."""
        interface, rails = self._interface, self._rails
        if interface.path.can_move(rails):
            interface.path = interface.path.follow(rails, interface.loop.time())
            return
        interface.engine.keep_ours()
        interface.demand_flush("the device of a backup has come or gone")

    def open_backups(self) -> None:
        """Have the rails that wait join what the active one joins, where an SA admits them."""
        interface, joined = self._interface, self._interface.path.joined
        if interface.port.sa is not None and joined is not None:
            ports = [it if joined.has(rail) else None for rail, it in enumerate(joined.ports)]
            self._backups = BackupMembers(
                interface.loop, interface.params, ports, self._rails.active
            )

    def close_backups(self) -> None:
        if self._backups is not None:
            self._backups.close()
            self._backups = None

    def set_received(self, groups: Collection[Gid]) -> None:
        """The active rail is a member of these groups, and of no others."""
        if self._backups is not None:
            self._backups.follow(groups)
