# SPDX-License-Identifier: BSD-2-Clause
"""One open port for several endpoints: a parent interface and its children."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from ipoibu.base.errors import Closed, LinkError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.fabric.base import Capabilities, Fabric, MeshOptions, PeersUnderlay, Port

if TYPE_CHECKING:
    from ipoibu.fabric.cm.gsi import GsiPort
    from ipoibu.fabric.cm.service import CmService
    from ipoibu.fabric.sa.client import SaClient
    from ipoibu.fabric.unicast.reception import Receptions


@dataclass(slots=True)
class _Device:
    """The port itself. `lock` guards calls to it; the last of `users` closes it unless it is `lent`."""

    port: Port
    lent: bool
    lock: threading.Lock = field(default_factory=threading.Lock)
    users: set[SharedPort] = field(default_factory=set)
    receptions: Receptions | None = None
    gone: LinkError | None = None


class SharedPort(Port):
    """One user's handle on a port; `share` makes a handle for another user.

    Users may be on different threads: one call at a time reaches the port. The last handle that closes
    closes the port, unless the port is `lent`: then its owner closes it. Every user sees the one-shot
    events of the port: that it was down since the user's last call of `active`, or that the device is
    gone.
    """

    def __init__(self, device: _Device) -> None:
        self._device, self._port = device, device.port
        self._was_up = True  # the last answer of `active`
        self._missed_down = False
        device.users.add(self)

    @classmethod
    def wrap(cls, port: Port, *, lent: bool = False) -> Self:
        """Make the first handle."""
        return cls(_Device(port, lent))

    def share(self) -> Self:
        """Make a handle for another user; `Closed` if this one is closed."""
        with self._device.lock:
            if self not in self._device.users:
                raise Closed(f"{self._place}: the port is closed")
            return type(self)(self._device)

    @property
    def users(self) -> int:
        return len(self._device.users)

    @property
    def info(self) -> PortInfo:
        return self._port.info

    @property
    def capabilities(self) -> Capabilities:
        return self._port.capabilities

    @property
    def socket_fd(self) -> int | None:
        return self._port.socket_fd if self in self._device.users else None

    @property
    def sa(self) -> SaClient | None:
        return self._port.sa

    @property
    def underlay(self) -> PeersUnderlay | None:
        return self._port.underlay

    @property
    def receptions(self) -> Receptions:
        """The listeners that the peers of every user's link dial."""
        with self._device.lock:
            if self._device.receptions is None:
                from ipoibu.fabric.unicast.reception import Receptions  # few links name their peers

                self._device.receptions = Receptions()
            return self._device.receptions

    def may_control(self) -> bool:
        return self._port.may_control()

    def why_down(self) -> str:
        with self._device.lock:
            return self._port.why_down() if self._device.gone is None else ""

    def active(self) -> bool:
        device = self._device
        with device.lock:
            if device.gone is not None:
                raise device.gone
            try:
                up = self._port.active()
            except LinkError as error:
                device.gone = error
                raise
            if not up:
                # Each user that saw the port up has to learn of this once.
                for user in device.users:
                    user._missed_down |= user._was_up
            missed, self._missed_down = self._missed_down, False
            self._was_up = up and not missed
            return self._was_up

    def speed_mbps(self) -> int | None:
        with self._device.lock:
            return self._port.speed_mbps()

    def open_ud(self, params: PartitionParams) -> Fabric:
        with self._device.lock:
            return self._port.open_ud(params)

    def open_connected(self, params: PartitionParams) -> Fabric:
        with self._device.lock:
            return self._port.open_connected(params)

    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> Fabric:
        with self._device.lock:
            return self._port.open_mesh(params, options)

    def cm(self) -> CmService:
        with self._device.lock:
            return self._port.cm()

    def open_gsi(self) -> GsiPort:
        with self._device.lock:
            return self._port.open_gsi()

    def close(self) -> None:
        """Give up the handle. Safe to repeat."""
        device = self._device
        with device.lock:
            if self not in device.users:
                return
            device.users.discard(self)
            if not device.users and not device.lent:
                self._port.close()
