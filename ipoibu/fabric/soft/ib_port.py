# SPDX-License-Identifier: BSD-2-Clause
"""The built-in HCA in an InfiniBand personality: `soft:NETDEV@UMAD`.

Control is that of a real InfiniBand port: LID, P_Keys, groups and paths come from the SA
that the port UMAD (a device of libibumad, such as ibsim's) belongs to. Data is RoCEv2 on
NETDEV. The GID connects the two: the net device's link-local address has to be the port's GID, so that
the LID and the GID of a path lead to the same port.
"""

from __future__ import annotations

from dataclasses import replace

from ipoibu.base.addr import Gid
from ipoibu.base.device_name import PREFIX, SEPARATOR
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.fabric.base import Capabilities, KeptPort, PeersUnderlay
from ipoibu.fabric.cm.gsi import GsiPort
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.plain import MeshlessPort
from ipoibu.fabric.sa.client import SaClient
from ipoibu.fabric.soft.port import SoftPort, SoftUd


class SoftIbPort(MeshlessPort):
    """The built-in HCA's port behind the GID and the LID of a port that an SA administers."""

    def __init__(self, netdev: str, umad: str, kept: KeptPort | None = None) -> None:
        self._soft = SoftPort(PREFIX + netdev, kept)
        try:
            self._sa = SaClient.start(lambda: SaClient.open(umad, 1))
        except BaseException:
            self._soft.close()
            raise
        try:
            self._umad = umad
            self._check_gid(self._sa.info.gid)
            self._info = replace(
                self._soft.info,
                device=f"{PREFIX}{netdev}{SEPARATOR}{umad}",
                link_layer="InfiniBand",
            )
        except BaseException:
            self.close()
            raise

    def _check_gid(self, gid: Gid) -> None:
        soft = self._soft.info
        if soft.gid != gid:
            raise LinkError(
                f"{soft.device}: its GID is {soft.gid}, that of {self._umad} is {gid}: "
                f"ip address add {gid}/64 dev {soft.netdev}, and remove the other address"
            )

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        return self._soft.capabilities

    @property
    def socket_fd(self) -> int:
        return self._soft.socket_fd

    @property
    def sa(self) -> SaClient:
        return self._sa

    @property
    def underlay(self) -> PeersUnderlay | None:
        return self._soft.underlay

    def may_control(self) -> bool:
        return self._soft.may_control()

    def active(self) -> bool:
        is_active = self._soft.active()
        self._check_gid(self._info.gid)  # another one leads to no port of the subnet
        return is_active and self._sa.info.is_active

    def why_down(self) -> str:
        if self._sa.info.is_active:
            return self._soft.why_down()
        return "the InfiniBand port is not active: no subnet manager has set it up"

    def speed_mbps(self) -> int | None:
        return self._soft.speed_mbps()

    def open_ud(self, params: PartitionParams) -> SoftUd:
        return self._soft.open_ud(params, needs_lid=True)

    def open_connected(self, params: PartitionParams) -> SoftUd:
        return self._soft.open_connected(params, needs_lid=True)

    def cm(self) -> CmService:
        return self._soft.cm()

    def open_gsi(self) -> GsiPort:
        return self._soft.open_gsi()

    def close(self) -> None:
        try:
            self._sa.close()
        finally:
            self._soft.close()
