# SPDX-License-Identifier: BSD-2-Clause
"""The ports of an interface with several devices, one of which carries its traffic (docs/use/rails.md).

`Rails` polls every port; `RailFollower` polls `Rails`, and has the interface move to the other port, by a
heavy flush if that one has no queue pair yet or is no member of the link. A device that is gone, or that
was not there at the start, is opened as soon as it is there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, Self

from ipoibu.base.device_name import device_text
from ipoibu.base.errors import Closed, IpoibuError, LinkError, NoSuchDevice, NotReady, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import RAIL_REOPEN_S, RAILS_JOINED_MAX
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.subnet.link import params_of
from ipoibu.endpoint.subnet.ports import Ports, sa_counters
from ipoibu.fabric.base import KeptPort
from ipoibu.fabric.device import open_port
from ipoibu.fabric.partition import provision
from ipoibu.fabric.rails import RailsFabric
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.machine.ratelimit import should_log
from ipoibu.proto.rail_policy import RailPolicy, RailState, Reach, is_outdone

_log = logging.getLogger(__name__)

_ABSENT: Final = "the device is not there"


@dataclass(slots=True, eq=False)
class Rail:
    """One port of a device. `port` is None while the device is absent; `why` then says the reason."""

    device: str
    number: int
    port: SharedPort | None = None
    is_gone: bool = False  # the port is of no more use, but a queue pair may use it still
    why: str = _ABSENT
    state: RailState = field(default_factory=RailState)
    refusals: int = 0
    opening: asyncio.Task[None] | None = None
    next_try_s: float = 0.0

    @property
    def place(self) -> str:
        return f"{self.device}/{self.number}"

    def poll(self, now: float) -> None:
        """Note whether the port carries traffic."""
        is_up = False
        if self.port is not None and not self.is_gone:
            try:
                is_up = self.port.active()
            except LinkError as error:
                self.is_gone, self.why = True, str(error)
        if self.state.note(now, is_up=is_up) and not is_up:
            _log.info("rail %s is down", self.place)


class Rails(Ports):
    """The rails of one interface. All methods but `open` run on the interface's loop."""

    def __init__(
        self,
        config: EndpointConfig,
        rails: Sequence[Rail],
        active: int,
        parent: Rails | None = None,
    ) -> None:
        """Take over the ports of `rails`; `open` calls this."""
        self._config = config
        self._parent = parent
        self._is_closed = False
        self._rails = list(rails)
        self._active = active
        self._sa_counts: Counter[str] = Counter()  # of the SA clients of devices that went
        self._loop: asyncio.AbstractEventLoop | None = None
        self._policy = RailPolicy(config.primary, config.rail_updelay_ms / 1000)

    @classmethod
    def open(
        cls, config: EndpointConfig, kept: KeptPort | None = None, parent: Rails | None = None
    ) -> Self:
        """Open every device that is there; the first with what an earlier process has left of its port.

        The rails of a child use the ports that those of its `parent` have open, and follow these.

        `NoSuchDevice` or `NotReady` if none is, about the first; `UsageError` for rails that cannot take
        each other's place; other errors as `open_port`.
        """
        rails = [Rail(device, number) for device, number in config.places]
        missing: list[IpoibuError] = []
        try:
            for rail in rails:
                try:
                    left = kept if rail is rails[0] else None
                    rail.port = _opener(config, parent)(rail.device, rail.number, left)
                except (NoSuchDevice, NotReady) as error:
                    missing.append(error)
                    rail.why = str(error)
                    _log.warning("rail %s: %s", rail.place, error)
            present = [rail for rail in rails if rail.port is not None]
            if not present:
                raise missing[0]
            for rail in present:
                _check_like(config, present[0].port, rail.port)
            now = time.monotonic()
            for rail in present:
                rail.poll(now)
            made = cls(config, rails, rails.index(present[0]), parent)
            made._active = made._choose(now, updelay_s=0)  # nothing is active yet
            return made
        except BaseException:
            for rail in rails:
                if rail.port is not None:
                    rail.port.close()
            raise

    @property
    def port(self) -> SharedPort:
        """The port of the active rail."""
        port = self._rails[self._active].port
        assert port is not None, "a rail becomes active while its port is up"
        return port

    @property
    def active(self) -> int:
        """The index of the active rail."""
        return self._active

    @property
    def ports(self) -> tuple[SharedPort | None, ...]:
        """The port of each rail; None while its device is absent."""
        return tuple(None if rail.is_gone else rail.port for rail in self._rails)

    def up(self, now: float) -> int:
        """Return a bit for each rail that carries traffic: those that are up and no suspects."""
        return sum(rail.state.is_good(now) << index for index, rail in enumerate(self._rails))

    @property
    def is_gone(self) -> bool:
        return self._rails[self._active].is_gone

    def why(self) -> str:
        return self._rails[self._active].why

    def first_link(self) -> PartitionParams:
        """Return the parameters of the link of the active rail. Where an SA refuses or is silent, another
        rail that is up becomes active; the first error if every rail fails. Blocks; before `look`."""
        refused: LinkError | None = None
        for _ in self._rails:
            try:
                return params_of(self.port, self._config)
            except LinkError as error:
                refused = refused or error
                now = time.monotonic()
                if not self.avoid(now, str(error)):
                    break
                self._active = self._choose(now)
        assert refused is not None, "there are two rails at least"
        raise refused

    def look(
        self, now: float, loop: asyncio.AbstractEventLoop, joining: Collection[int] = ()
    ) -> bool:
        """Poll every rail, choose the active one, and return whether that one is up. The rails of `joining`
        are no members of the link yet."""
        self._loop = loop
        for index, rail in enumerate(self._rails):
            if rail.port is None or rail.is_gone:
                self._reopen(rail, now, loop)
            rail.poll(now)
            rail.state.is_joining = index in joining
        self._active = self._choose(now)
        return self._rails[self._active].state.is_up

    def _choose(self, now: float, updelay_s: float | None = None) -> int:
        """Return the rail that shall be active: in a child, that of the parent where it is good here."""
        parent, policy = self._parent, self._policy
        if parent is not None and not parent._is_closed:
            policy = RailPolicy(parent._active)
        elif updelay_s is not None:
            policy = replace(policy, updelay_s=updelay_s)
        return policy.choose(now, self._active, [rail.state for rail in self._rails])

    def compare(self, now: float, hosts: Collection[Reach]) -> None:
        """Note which rails reach fewer hosts with several rails than another that is good."""
        good = [index for index, rail in enumerate(self._rails) if rail.state.is_good(now)]
        for index, rail in enumerate(self._rails):
            rail.state.compare(now, is_poor=is_outdone(index, good, hosts))

    def note_heard(self) -> None:
        """The active rail reaches a neighbour, or its SA has made us a member of the link."""
        self._rails[self._active].state.note_heard()

    def avoid(self, now: float, why: str) -> bool:
        """Avoid the active rail for a while, if another rail is up; return whether one is."""
        active = self._rails[self._active]
        if not any(rail.state.is_good(now) for rail in self._rails if rail is not active):
            return False
        _log.warning("rail %s: %s", active.place, why.removeprefix(f"{active.place}: "))
        active.state.silent(now)
        return True

    def sa_counters(self) -> Counter[str]:
        counts = self._sa_counts.copy()
        for rail in self._rails:
            counts += sa_counters(rail.port)
        return counts

    def snapshot(self, now: float) -> list[dict[str, Any]]:
        return [
            {
                "device": rail.device,
                "port": rail.number,
                "state": self._state(now, index, rail),
                "since_s": round(now - rail.state.since_s, 3),
            }
            for index, rail in enumerate(self._rails)
        ]

    def _state(self, now: float, index: int, rail: Rail) -> str:
        if rail.port is None or rail.is_gone:
            return "absent"
        if not rail.state.is_up:
            return "down"
        if index == self._active:
            return "active"
        if not rail.state.is_good(now):
            return "suspect"
        if rail.state.is_joining:
            return "joining"
        return "sharing" if self._config.is_spreading else "backup"

    def close(self) -> None:
        self._is_closed = True
        for rail in self._rails:
            if rail.opening is not None:
                with contextlib.suppress(RuntimeError):  # the loop has ended, and the task with it
                    rail.opening.cancel()
            self._part(rail)

    def lend(self, device: str, number: int) -> SharedPort:
        """Return another handle on the port of a rail, for a child; any thread may call it.

        `NoSuchDevice` while the device is absent. After `close`, open the device anew.
        """
        if self._is_closed:
            return _opened(self._config, device, number)
        (rail,) = (it for it in self._rails if (it.device, it.number) == (device, number))
        port = rail.port
        if port is None or rail.is_gone:
            raise NoSuchDevice(rail.why)
        try:
            return port.share()
        except Closed as error:  # meanwhile
            raise NoSuchDevice(str(error)) from error

    def close_gone(self) -> None:
        """Close the ports of devices that have gone, which no queue pair uses any more; but not that of the
        active rail."""
        for rail in self._rails:
            if rail.is_gone and rail is not self._rails[self._active]:
                self._part(rail)

    def _part(self, rail: Rail) -> None:
        port, rail.port = rail.port, None
        rail.is_gone = False
        if port is None:
            return
        self._sa_counts += sa_counters(port)
        self._close(port)

    def _close(self, port: SharedPort) -> None:
        if port.sa is None or self._loop is None or not self._loop.is_running():
            port.close()
        else:  # its SA client waits for answers
            self._loop.run_in_executor(None, port.close)

    def open_joined(
        self, config: EndpointConfig, port: SharedPort, params: PartitionParams
    ) -> RailsFabric | None:
        if not self._joins(config, port):
            return None
        return RailsFabric.open(
            self.ports,
            self.active,
            self.up(time.monotonic()),
            params,
            is_spreading=config.is_spreading,
            is_connected=config.is_connected,
            faults=config.faults,
        )

    def _joins(self, config: EndpointConfig, port: SharedPort) -> bool:
        """Return whether all rails get queue pairs, and not the active one alone."""
        is_spreading = config.is_spreading
        place = f"{port.info.device}/{port.info.port}: rail_mode {config.rail_mode}"
        if is_spreading and port.sa is not None:
            raise UsageError(f"{place} is for links without a subnet administrator: leave it out")
        if is_spreading and not port.capabilities.rails:
            raise UsageError(
                f"{place} needs queue pairs for datagrams, which iWARP lacks: leave it out"
            )
        return (
            len(self.ports) <= RAILS_JOINED_MAX
            and (config.queues, config.mesh) == (1, None)
            and config.ethernet is None
            and port.capabilities.rails
            and port.capabilities.multicast
        )

    # ---- a device that comes, or comes back

    def _reopen(self, rail: Rail, now: float, loop: asyncio.AbstractEventLoop) -> None:
        if rail.opening is None and now >= rail.next_try_s:
            rail.next_try_s = now + RAIL_REOPEN_S
            rail.opening = loop.create_task(self._try(rail))

    async def _try(self, rail: Rail) -> None:
        opening = asyncio.ensure_future(
            asyncio.to_thread(_opener(self._config, self._parent), rail.device, rail.number)
        )
        try:
            port = await asyncio.shield(opening)
            try:
                _check_like(self._config, self._other(rail), port)
            except BaseException:
                port.close()
                raise
            rail.port = port
            rail.is_gone, rail.refusals = False, 0
            _log.warning("rail %s is there", rail.place)
        except asyncio.CancelledError:  # the thread goes on
            opening.add_done_callback(_close_result)
            raise
        except IpoibuError as error:
            rail.why = str(error)
            rail.refusals += 1
            if not isinstance(error, NoSuchDevice | NotReady) and should_log(rail.refusals):
                _log.warning("rail %s: %s", rail.place, error)
        finally:
            rail.opening = None

    def _other(self, rail: Rail) -> SharedPort | None:
        return next((it.port for it in self._rails if it is not rail and it.port), None)


def _opened(
    config: EndpointConfig, device: str, number: int, kept: KeptPort | None = None
) -> SharedPort:
    beside = [config.device, *(name for name, _ in config.backups)]
    return SharedPort.wrap(open_port(device, number, kept, config.mesh, beside))


def _opener(config: EndpointConfig, parent: Rails | None) -> Callable[..., SharedPort]:
    """Return what opens a rail's port: for a child it is another handle on the parent's."""
    if parent is None:
        return partial(_opened, config)
    return lambda device, number, kept=None: parent.lend(device, number)


def _close_result(opening: asyncio.Future[SharedPort]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _check_like(config: EndpointConfig, first: SharedPort | None, other: SharedPort | None) -> None:
    """`UsageError` unless the rails can take each other's place."""
    if first is None or other is None or first is other:
        return
    names = f"{_text(first)} and {_text(other)}"
    if (first.sa is None) != (other.sa is None):
        with_sa, without = (first, other) if first.sa is not None else (other, first)
        raise UsageError(
            f"rails {names}: the links differ: {_text(with_sa)} has a subnet administrator,"
            f" and {_text(without)} has none"
        )
    if first.sa is not None:
        return  # the SA gives the parameters when a rail becomes active
    ours, theirs = _params(config, first), _params(config, other)
    if ours != theirs:
        raise UsageError(
            f"rails {names}: the links differ: MTU {ours.mtu_bytes} and {theirs.mtu_bytes} of"
            " InfiniBand; choose an --mtu that both carry"
        )


def _text(port: SharedPort) -> str:
    return device_text(port.info.device, port.info.port)


def _params(config: EndpointConfig, port: SharedPort) -> PartitionParams:
    return provision.link_params(
        port.info,
        pkey=config.pkey,
        qkey=config.qkey,
        mtu_bytes=config.datagram_mtu,
        partitions=config.partitions,
    )
