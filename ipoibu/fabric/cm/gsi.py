# SPDX-License-Identifier: BSD-2-Clause
"""Queue pair 1 of a port, as who makes connections needs it: of the built-in HCA, or the kernel's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ipoibu._core import SoftGsi, SoftHca
from ipoibu.addr import DEFAULT_PKEY, Gid, PKey, Qpn
from ipoibu.errors import LinkError
from ipoibu.fabric.sa.umad import MadIn, MadPortInfo, MadTo, UmadPort
from ipoibu.ib import Destination
from ipoibu.proto.cm_connection import MadSource
from ipoibu.wire import cm_code
from ipoibu.wire.mad import GSI_QKEY

_log = logging.getLogger(__name__)


class GsiPort(Protocol):
    """A mailbox of 256-byte datagrams; one thread at a time."""

    @property
    def fd(self) -> int:
        """Readable when `receive` has something, after `arm`."""
        ...

    @property
    def address(self) -> tuple[Gid, int]:
        """The port's GID and LID now; the LID is 0 where the fabric routes by GID."""
        ...

    def arm(self) -> None: ...

    def send(self, destination: Destination, pkey: PKey, raw: bytes) -> bool:
        """Whether it was taken; a datagram that was may still be lost."""
        ...

    def receive(self) -> tuple[MadSource, bytes] | None:
        """What is there, without waiting."""
        ...

    def close(self) -> None: ...


class SoftGsiPort:
    """Of the built-in HCA, where nobody else has it. GIDs never change there.

    `OSError`: another has it.
    """

    def __init__(self, hca: SoftHca) -> None:
        self._gsi = SoftGsi(hca)
        self.address = Gid(hca.gid), 0

    @property
    def fd(self) -> int:
        return self._gsi.fd

    def arm(self) -> None:
        self._gsi.arm()

    def send(self, destination: Destination, pkey: PKey, raw: bytes) -> bool:
        return self._gsi.send(destination, GSI_QKEY, pkey, raw)

    def receive(self) -> tuple[MadSource, bytes] | None:
        datagram = self._gsi.receive()
        if datagram is None:
            return None
        sgid, qpn, pkey, raw = datagram
        return MadSource(Qpn(qpn), Gid(sgid), pkey=PKey(pkey)), raw

    def close(self) -> None:
        self._gsi.close()


class UmadGsiPort:
    """Of a port of the kernel, for the communication manager's class, where the kernel's own is not there.

    `LinkError`: it is (ib_cm is loaded). `info` tells what the port is like now.
    """

    def __init__(self, device: str, port: int, info: Callable[[], MadPortInfo]) -> None:
        self._info = info
        self._umad = UmadPort(
            device, port, [cm_code.SEND], mgmt_class=cm_code.CLASS, version=cm_code.CLASS_VERSION
        )
        if not self._umad.hears_unasked:
            self._umad.close()
            raise LinkError(
                f"{device}/{port}: the kernel's ib_cm answers requests for connections; to answer them "
                "here: modprobe -r ib_cm, and before it what uses it (rdma_ucm, rdma_cm)"
            )

    @property
    def fd(self) -> int:
        return self._umad.fileno()

    @property
    def address(self) -> tuple[Gid, int]:
        info = self._info()
        return info.gid, info.lid

    def arm(self) -> None:
        """The descriptor is readable as long as there is something."""

    def send(self, destination: Destination, pkey: PKey, raw: bytes) -> bool:
        keys = self._info().pkeys
        own = max((known for known in keys if known.full == pkey.full), default=None)
        if own is None:
            return False
        to = MadTo(
            destination.dlid,
            destination.qpn,
            destination.sl,
            keys.index(own),
            destination if destination.needs_grh else None,
        )
        try:
            self._umad.send(raw, to, 0)
        except OSError as error:
            _log.debug("a management datagram to %s: %s", destination.gid, error)
            return False
        return True

    def receive(self) -> tuple[MadSource, bytes] | None:
        while (found := self._umad.receive()) is not None:
            if found.status == 0:  # others are ours, back again
                return self._source(found), found.raw
        return None

    def _source(self, found: MadIn) -> MadSource:
        keys = self._info().pkeys
        pkey = keys[found.pkey_index].full if found.pkey_index < len(keys) else DEFAULT_PKEY
        return MadSource(Qpn(found.qpn), found.gid, found.lid, found.sl, pkey)

    def close(self) -> None:
        self._umad.close()
