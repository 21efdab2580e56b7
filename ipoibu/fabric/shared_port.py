# SPDX-License-Identifier: BSD-2-Clause
"""One open port for several endpoints: a parent interface and its children."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ipoibu.errors import Closed, LinkError, UsageError
from ipoibu.fabric.base import Fabric, MeshFabric, MeshOptions, MeshPort, Port, RcFabric, RcPort
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.sa.service import SaService
from ipoibu.ib import PartitionParams, PortInfo


class SharedPort:
    """Gives the port to many users, one call at a time; the last one that closes closes it.

    What the port says once is told to every user: that it was down since the user last asked, or
    that the device is gone. `lent`: the port stays open, it is someone else's to close.
    """

    def __init__(self, port: Port, *, lent: bool = False) -> None:
        self._port = port
        self._lent = lent
        self._lock = threading.Lock()
        self._users: set[PortUse] = set()
        self._gone: LinkError | None = None
        self._closed = False

    @property
    def users(self) -> int:
        return len(self._users)

    def use(self) -> PortUse:
        """Another user, who closes it."""
        user = PortUse(self)
        with self._lock:
            if self._closed:
                raise Closed(f"{self.info.device}/{self.info.port}: the port is closed")
            self._users.add(user)
        return user

    # ---- for users

    @property
    def info(self) -> PortInfo:
        return self._port.info

    @property
    def administrator(self) -> SaService | None:
        """The subnet administrator's client, where the port has one."""
        return getattr(self._port, "administrator", None)

    def may_control(self) -> bool:
        """Whether queue pairs of ours may have a controlled Q_Key (B3); a port that does not say
        asks for no privilege."""
        ask: Callable[[], bool] = getattr(self._port, "may_control", lambda: True)
        return ask()

    def active(self, asker: PortUse) -> bool:
        with self._lock:
            if self._gone is not None:
                raise self._gone
            try:
                up = self._port.active()
            except LinkError as error:
                self._gone = error
                raise
            if not up:
                for user in self._users:
                    user.missed_down |= user.was_up  # the others know
            missed, asker.missed_down = asker.missed_down, False
            asker.was_up = up and not missed
            return asker.was_up

    def open_ud(self, params: PartitionParams) -> Fabric:
        with self._lock:
            return self._port.open_ud(params)

    def open_connected(self, params: PartitionParams) -> RcFabric:
        with self._lock:
            return self._connectable().open_connected(params)

    def communication(self) -> CmService:
        with self._lock:
            return self._connectable().communication()

    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> MeshFabric:
        with self._lock:
            if not hasattr(self._port, "open_mesh"):
                raise UsageError(
                    f"{self.info.device}/{self.info.port}: peers are for iWARP devices; "
                    "here multicast finds them"
                )
            port: MeshPort = self._port  # type: ignore[assignment]
            return port.open_mesh(params, options)

    def _connectable(self) -> RcPort:
        if not hasattr(self._port, "open_connected"):
            raise LinkError(
                f"{self.info.device}/{self.info.port}: no connected mode on this device"
            )
        port: RcPort = self._port  # type: ignore[assignment]
        return port

    def release(self, user: PortUse) -> None:
        with self._lock:
            if user not in self._users:
                return
            self._users.discard(user)
            if not self._users:
                self._closed = True
                if not self._lent:
                    self._port.close()


class PortUse:
    """One user's hold on a `SharedPort`: a port like any other, from one thread at a time."""

    def __init__(self, shared: SharedPort) -> None:
        self.shared = shared
        self.was_up = True  # the last answer
        self.missed_down = False

    @property
    def info(self) -> PortInfo:
        return self.shared.info

    @property
    def administrator(self) -> SaService | None:
        return self.shared.administrator

    def may_control(self) -> bool:
        return self.shared.may_control()

    def active(self) -> bool:
        return self.shared.active(self)

    def open_ud(self, params: PartitionParams) -> Fabric:
        return self.shared.open_ud(params)

    def open_connected(self, params: PartitionParams) -> RcFabric:
        return self.shared.open_connected(params)

    def communication(self) -> CmService:
        return self.shared.communication()

    def open_mesh(self, params: PartitionParams, options: MeshOptions) -> MeshFabric:
        return self.shared.open_mesh(params, options)

    def close(self) -> None:
        """Let go of the port. Safe to repeat."""
        self.shared.release(self)
