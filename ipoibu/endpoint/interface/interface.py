# SPDX-License-Identifier: BSD-2-Clause
"""The interface: data path, engine, shells and subnet of one IPoIB link, on an open port.

`up` and `down` follow the port. `flush` follows the subnet, in the kernel's three levels
(`__ipoib_ib_dev_flush` of ipoib_ib.c). heavy_flush.py describes the heavy flush, which replaces the
data path; subnet.py follows a packet to an unknown neighbour.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from ipoibu.base.addr import Gid, HwAddr
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import IPV6_MIN_MTU
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.datapath.capture import Tap
from ipoibu.endpoint.datapath.connections import Connections
from ipoibu.endpoint.datapath.datapath import DataPath, mtus_of
from ipoibu.endpoint.handover import Handover
from ipoibu.endpoint.interface.carrier import Carrier
from ipoibu.endpoint.interface.event_log import EventLog
from ipoibu.endpoint.interface.heavy_flush import HeavyFlush
from ipoibu.endpoint.interface.peer_watch import PeerWatch
from ipoibu.endpoint.interface.port_follower import PortFollower
from ipoibu.endpoint.interface.port_watch import PortWatch
from ipoibu.endpoint.interface.shell import Shell
from ipoibu.endpoint.interface.transitions import Transitions
from ipoibu.endpoint.subnet.all_groups import AllGroupsWish
from ipoibu.endpoint.subnet.ports import Ports
from ipoibu.endpoint.subnet.subnet import Subnet
from ipoibu.fabric.base import Fabric
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.context import Dad
from ipoibu.proto.effects import AddressVerdict, Effect, Lease6Changed, LeaseChanged, LinkChanged
from ipoibu.proto.engine import Engine, LinkConfig
from ipoibu.proto.machine.transition import Topic, Transition

if TYPE_CHECKING:
    from ipoibu.endpoint.dhcp.shell import DhcpShell

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")


class Interface:
    """One IPoIB interface; every method but the constructor runs on the loop's thread."""

    def __init__(
        self,
        path: DataPath,
        loop: asyncio.AbstractEventLoop,
        callbacks: Callbacks,
        ports: Ports,
        follow: Callable[[Interface], PortFollower],
    ) -> None:
        """Take over `path`, the data path to the link; nothing runs before `start`.

        The path is on the port of `ports` that carries the traffic, and `follow` makes what follows them.
        """
        self.ports = ports
        self.config = path.config
        self.port = path.port
        self.path = path
        self.loop = loop
        self.counts: Counter[str] = Counter()
        self.retired: Counter[str] = Counter()  # the counters of earlier pumps
        dhcp, dhcp6, guid = self.config.dhcp, self.config.dhcp6, path.port.info.guid
        link = LinkConfig(
            params=path.params,
            hwaddr=path.hwaddr,
            mtu_bytes=path.datagram_mtu_bytes,
            has_sa=self.port.sa is not None,
            dad_ipv4=Dad(self.config.dad_ipv4),
            dad_ipv6=Dad(self.config.dad_ipv6),
            dhcp=None if dhcp is None else dhcp.identity(guid, path.params.pkey),
            dhcp6=None if dhcp6 is None else dhcp6.identity6(guid, path.params.pkey),
            ethernet=self.config.ethernet,
            guest_qpns=path.guest_qpns,
        )
        self._questions: set[asyncio.Task[Any]] = set()
        self.transitions = Transitions()
        self.transitions.add(EventLog(self.config.name, loop.time).take)
        self.engine = Engine(link, random.Random(), self.transitions.note)
        leases: dict[type[Effect], Callable[[Any], None]] = {}
        self._dhcp: DhcpShell | None = None
        if dhcp is not None or dhcp6 is not None:
            from ipoibu.endpoint.dhcp.shell import DhcpShell  # few interfaces have a client

            self._dhcp = DhcpShell(self.config, guid, loop, callbacks.on_lease, callbacks.on_lease6)
            self._dhcp.recall(self.engine, link.dhcp6)
            leases = {LeaseChanged: self._dhcp.note_lease, Lease6Changed: self._dhcp.note_lease6}
        carrier = Carrier(loop, path.port, callbacks.on_link)
        self.shell = Shell(
            loop,
            self.engine,
            path,
            self.counts,
            on_failure=callbacks.on_failure,
            reports={
                AddressVerdict: lambda it: callbacks.on_address(it.address, it.duplicate),
                LinkChanged: lambda it: carrier.note_link(it.is_up),
                **leases,
            },
        )
        self._callbacks = callbacks
        self.peers = PeerWatch(self, self._forget)
        self.all_groups = AllGroupsWish(self.config, self._follow_all_groups)
        self._last_counters: dict[str, int] | None = None
        try:
            self.shell.rc = path.connect(loop, self.counts, self.transitions.note)
            self.tap = Tap(loop, path.pump)
            self._heavy_flush: HeavyFlush | None = HeavyFlush(self)
            self.open_subnet(self.port)
            self._follower = follow(self)
            self._port_watch = PortWatch(self, self._follower, carrier)
        except BaseException:
            self.shell.close()
            path.close()
            raise

    @property
    def params(self) -> PartitionParams:
        """The parameters that all members of the link agree on."""
        return self.path.params

    @property
    def rc(self) -> Connections:
        """The connections of the data path; while a heavy flush makes another, there are none."""
        return self.shell.rc

    @property
    def fabric(self) -> Fabric:
        return self.path.fabric

    @property
    def hwaddr(self) -> HwAddr:
        return self.path.hwaddr

    @property
    def is_severed(self) -> bool:
        """Return whether a heavy flush is making another data path."""
        return self.shell.is_severed

    @property
    def receives_all(self) -> bool:
        """Return whether a multicast router or a proxy needs all groups of the link."""
        return self.all_groups.is_wanted

    def _follow_all_groups(self) -> bool:
        return self.subnet.follow_allmulticast()

    @property
    def place(self) -> str:
        """The interface's name in the log."""
        return f"{self.port.info.device}/{self.port.info.port}, P_Key {self.params.pkey}"

    # ---- life

    def start(self, kept: Handover | None = None) -> None:
        """Begin, with what an earlier process has left."""
        if kept is not None:  # before packets, of which many may wait for one neighbour
            self._take_over(kept)
        self._follower.open_backups()
        self.shell.start()
        self._watch_path()
        self._port_watch.start()
        self.perform(self.engine.start(self.loop.time()))
        self.rc.open()
        self.shell.drain()
        self._follower.start_monitor()

    def _take_over(self, kept: Handover) -> None:
        self.engine.keep_addresses(kept.checked)
        now = self.loop.time()
        # The engine withdraws a permanent entry until the link is up, and all others with it.
        for neighbour in sorted(kept.neighbours, key=lambda each: not each.is_permanent):
            with contextlib.suppress(UsageError):  # no host of this link any more
                if neighbour.is_permanent:
                    effects = self.engine.permanent.set(now, neighbour.ip, neighbour.hwaddr, True)
                else:
                    effects = self.engine.note_learned(now, neighbour.hwaddr, [neighbour.ip])
                self.perform(effects)

    async def release(self) -> None:
        """Give the leases of DHCP and DHCPv6 back, as the configuration says; before `stop`."""
        config, now = self.config, self.loop.time()
        self.perform(
            self.engine.release(
                now,
                dhcp=config.dhcp is not None and config.dhcp.is_released,
                dhcp6=config.dhcp6 is not None and config.dhcp6.is_released,
            )
        )
        if self._dhcp is not None:
            await self._dhcp.release(self.engine)

    def close(self) -> None:
        """Release the data path after `stop`, on any thread; wait until the lease is stored."""
        self.path.close()
        if self._dhcp is not None:
            self._dhcp.close()

    def close_ports(self) -> None:
        """Close the port, or those of all rails, after `close`."""
        self.ports.close()

    def stop(self) -> None:
        """Leave the groups and stop the pump; the caller then calls `close`."""
        for question in self._questions:
            question.cancel()
        self.perform(self.engine.stop(self.loop.time()))
        self._port_watch.carrier.stop()
        self.subnet.stop_listening()
        if self._heavy_flush is not None:
            self._heavy_flush.close()
        self.subnet.close()
        self._follower.close_backups()
        self._stop_reading()
        self._port_watch.stop()
        self._stop_path()
        self.shell.close()
        # They refer to this interface: without them Python frees it at once.
        self._heavy_flush = None
        self._follower = PortFollower()
        del self._port_watch, self.peers, self.all_groups, self.subnet, self.shell.subnet

    def ask(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` until `stop`."""
        self._questions.add(self.loop.create_task(work))

    async def answer(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Run a question of the application, which `stop` cancels."""
        task = asyncio.ensure_future(work)
        self._questions.add(task)
        try:
            return await task
        finally:
            self._questions.discard(task)
            task.cancel()

    def perform(self, effects: Iterable[Effect]) -> None:
        """Carry out effects of the engine."""
        self.shell.perform(effects)

    def set_busy_poll(self, busy_poll_us: int | None) -> None:
        """Change the time to poll before sleep, also for the data path after a heavy flush."""
        self.config = replace(self.config, busy_poll_us=busy_poll_us)
        if not self.shell.is_severed:
            self.path.pump.busy_poll(busy_poll_us)

    def set_mode(self, mode: str) -> None:
        """Change the sending mode, by another queue pair: the link goes down and comes up (the kernel's
        `ipoib_set_mode`). `UsageError` or `LinkError` if the link, the port or another option forbids it."""
        config = replace(self.config, mode=mode)
        if config == self.config:
            return
        if config.is_connected:
            self.port.cm()  # raises where the port has no CM
        datagram_mtu_bytes, _ = mtus_of(config, self.params)
        if (datagram_mtu_bytes < IPV6_MIN_MTU) != (self.path.datagram_mtu_bytes < IPV6_MIN_MTU):
            raise UsageError(
                f"mode: IPv6 needs an MTU of {IPV6_MIN_MTU}: start the interface again"
            )
        self.config = config
        self.demand_flush(f"the mode is {mode} now")

    def _watch_path(self) -> None:
        self.peers.listen()
        self._port_watch.watch_events(self.path.event_fd)

    def _stop_reading(self) -> None:
        self.shell.stop_reading()
        self._port_watch.ignore_events()

    def _stop_path(self) -> None:
        """Disconnect the connections while the pump runs, stop the pump, and then destroy them."""
        self.rc.close()
        self.path.pump.stop()
        self.rc.release()

    # ---- up and down, with the port

    def up(self) -> None:
        """Follow a port that carries traffic now: bring the link up, and accept connections."""
        self._port_event("up")
        self.rc.open()

    def down(self) -> None:
        """Follow a port that carries no traffic: take down the link and every connection."""
        self._port_event("down")
        self._port_watch.carrier.port_down()
        self.rc.down()

    def _port_event(self, event: str) -> None:
        self.perform(self.engine.port_event(self.loop.time(), event))

    def move(self, path: DataPath) -> None:
        """Go on over the port of `path`, another rail's; connections begin anew there."""
        self.path, self.port = path, path.port
        self._port_watch.follow(path.port)
        self.shell.note_moved(path)
        if self._try_rc(lambda: self.rc.move(path.port.cm, path.rc_config)):
            self._port_watch.note_gid()

    def demand_flush(self, why: str) -> None:
        """Make another data path, by a heavy flush."""
        assert self._heavy_flush is not None, "it runs"
        self._heavy_flush.demand(why)

    def note_device_gone(self) -> None:
        """Keep the last counters of the fabric, whose device is gone."""
        self._last_counters = self.fabric.counters()

    def fabric_counters(self) -> dict[str, int]:
        """The fabric's counters; the last ones of a device that is gone."""
        return self.fabric.counters() if self._last_counters is None else self._last_counters

    def fabric_drop_sources(self) -> dict[str, Gid]:
        """The senders of the packets that the fabric dropped last; none of a device that is gone."""
        return self.fabric.drop_sources() if self._last_counters is None else {}

    def change_port(self, port: SharedPort) -> None:
        """Have the data path that the heavy flush under way makes be on this port."""
        self.port = port
        self._port_watch.follow(port)
        assert self._heavy_flush is not None, "it runs"
        self.subnet.leave_port(self._heavy_flush.restart)
        self.open_subnet(port)

    def open_subnet(self, port: SharedPort, received: Collection[Gid] = ()) -> Subnet:
        """Ask the SA of this port from now on, if it has one; the port is a member of these groups
        already."""
        if port.sa is None:
            self.subnet = Subnet(self)
        else:
            from ipoibu.endpoint.subnet.sa_subnet import SaSubnet  # few links need it

            self.subnet = SaSubnet(self, port.sa, received)
        self.shell.subnet = self.subnet
        return self.subnet

    def set_received(self, groups: Collection[Gid]) -> None:
        """The port is a member of these groups, and of no others."""
        self._follower.set_received(groups)

    def avoid_rail(self, why: str) -> None:
        """Avoid the active rail for a while, where another is up: it does not lead to the link."""
        self._follower.avoid(why)

    def note_joined(self) -> None:
        """The SA has made us a member of the broadcast group."""
        self._follower.note_joined()

    def rename_rc(self) -> bool:
        """Have connected mode listen at the address of the path; return whether it does."""
        return self._try_rc(lambda: self.rc.rename(self.path.hwaddr))

    def _try_rc(self, change: Callable[[], None]) -> bool:
        try:
            change()
        except LinkError as error:
            _log.warning(
                "%s: connected mode does not listen at the new address yet: %s",
                self.path.hwaddr.gid,
                error,
            )
            return False
        return True

    def _forget(self, hwaddr: HwAddr) -> None:
        """End the connections with a host that is no peer any more."""
        self.rc.forget(hwaddr)

    # ---- flushes, with the subnet

    def flush(self, level: Flush, why: str | None = None) -> None:
        """Follow a change of the subnet, as `level` says. `why` gives a heavy flush a reason besides the
        P_Key table.

        Light: ask for paths and groups again, and use the old ones meanwhile. Normal: take the link down
        and up. Heavy: make another queue pair.
        """
        heavy_flush = self._heavy_flush
        if heavy_flush is None:
            return  # the interface stopped before the SA client's notice arrived
        self._note_sa(f"{level.name.lower()} flush", why or "the subnet changed")
        if heavy_flush.is_under_way:
            heavy_flush.demand(level.name)
        elif level is Flush.LIGHT:
            self.subnet.refresh()
        elif level is Flush.NORMAL:
            self.subnet.close_all_groups()
            self._port_event("down")  # connections that peers opened stay, as in the kernel
            self._port_event("up")
        else:
            why = why or self.subnet.why_heavy()
            if why is not None:
                heavy_flush.demand(why)

    def note_sa_silent(self) -> None:
        """Log that the SA does not answer any more; when it answers again, a light flush follows."""
        self._note_sa("silent", "the subnet administrator does not answer")

    def _note_sa(self, state: str, cause: str) -> None:
        self.transitions.note(Transition(Topic.SA, self.place, "", state, cause))

    def sever(self) -> None:
        """Take the link down and end the queue pair; no packet passes until `resume`."""
        self.subnet.close_all_groups()
        self._port_event("down")
        self._follower.close_backups()
        self._stop_reading()
        self._stop_path()
        self.shell.sever()
        self.peers.keep()
        self.fabric.close()

    async def find_link(self) -> PartitionParams:
        """Join the link again, and return the parameters that it has now."""
        if self.ports.is_gone:
            raise LinkError(self.ports.why())
        return await self.subnet.find_link()

    def leave_link(self) -> None:
        """Undo `find_link`."""
        self.subnet.leave_link()

    def fail(self, reason: str) -> None:
        """End the interface, which cannot go on."""
        self._callbacks.on_failure(reason)

    def resume(self, params: PartitionParams) -> None:
        """Make another queue pair and pump, over the same device, for the same engine; bring the link up."""
        self.subnet.note_pkey(params)
        before = self.path
        path = DataPath.open(self.config, self.port, before.device, params, self.ports)
        try:
            self.engine.note_renewed(params, path.hwaddr, path.datagram_mtu_bytes, path.guest_qpns)
            rc = path.connect(self.loop, self.counts, self.transitions.note)
        except BaseException as error:
            path.close()
            if isinstance(error, UsageError):
                self.fail(str(error))
            raise
        self.retired.update(before.pump.counters())
        self.retired["commands_dropped"] += before.pump.commands_dropped
        self.tap.follow(path.pump)
        before.close()
        self.path, self._last_counters = path, None
        self._port_watch.note_gid()
        self.subnet.note_renewed()
        self._follower.open_backups()
        self.shell.resume(path, rc)
        self._watch_path()
        self.peers.meet_again()
        if self._port_watch.is_active:
            self.up()
        else:
            self.leave_link()  # the engine, which knows nothing of this membership, joins with the port
        self.shell.drain()
        if path.mtu_bytes != before.mtu_bytes:
            self._callbacks.on_mtu(path.mtu_bytes)
