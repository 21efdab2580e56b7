# SPDX-License-Identifier: BSD-2-Clause
"""Queue pair 1 (GSI) of a port, for a communication manager: the built-in HCA's, or the kernel's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from ipoibu._core import SoftGsi, SoftHca
from ipoibu.base.addr import DEFAULT_PKEY, Gid, PKey, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.proto.cm.connection import MadSource
from ipoibu.wire import cm_code
from ipoibu.wire.mad import GSI_QKEY

_log = logging.getLogger(__name__)


class GsiPort(Protocol):
    """Sends and receives datagrams of 256 bytes. Only one thread at a time calls it."""

    @property
    def fd(self) -> int:
        """After `arm`, readable when a datagram has arrived."""
        ...

    @property
    def address(self) -> tuple[Gid, int]:
        """The port's present GID and LID; the LID is 0 where the fabric routes by GID."""
        ...

    def arm(self) -> None: ...

    def send(self, destination: Destination, pkey: PKey, raw: bytes) -> bool:
        """Return whether the port accepted the datagram, which may still get lost."""
        ...

    def receive(self) -> tuple[MadSource, bytes] | None:
        """Return the next datagram, or None; does not block."""
        ...

    def wait_ms(self) -> float | None:
        """Return the time after which `receive` may find a datagram though `fd` is not readable."""
        ...

    def close(self) -> None: ...


class SoftGsiPort:
    """Queue pair 1 of the built-in HCA, whose GID never changes.

    `OSError`: another communication manager has it.
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

    def wait_ms(self) -> float | None:
        return self._gsi.wait_ms()

    def close(self) -> None:
        self._gsi.close()


class UmadGsiPort:
    """Queue pair 1 of a kernel device's port, for the class of the communication manager.

    `LinkError`: the kernel's own manager has the class (ib_cm is loaded). `info` returns the present
    state of the port.
    """

    def __init__(self, device: str, port: int, info: Callable[[], MadPortInfo]) -> None:
        self._info = info
        from ipoibu.fabric.sa.umad import UmadPort  # loads the parser of its declarations

        self._umad = UmadPort(
            device, port, [cm_code.SEND], mgmt_class=cm_code.CLASS, version=cm_code.CLASS_VERSION
        )
        if not self._umad.hears_unasked:
            self._umad.close()
            raise LinkError(
                f"{device}/{port}: the kernel's ib_cm answers requests for connections; to answer them "
                "here: modprobe -r ib_cm, after the modules that use it (rdma_ucm, rdma_cm)"
            )

    @property
    def fd(self) -> int:
        return self._umad.fileno()

    @property
    def address(self) -> tuple[Gid, int]:
        info = self._info()
        return info.gid, info.lid

    def arm(self) -> None:
        """Do nothing: the descriptor is readable while a datagram waits."""

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
        while (mad := self._umad.receive()) is not None:
            if mad.status == 0:  # any other status marks a datagram that we could not send
                return self._source(mad), mad.raw
        return None

    def wait_ms(self) -> float | None:
        return None

    def _source(self, mad: MadIn) -> MadSource:
        keys = self._info().pkeys
        pkey = keys[mad.pkey_index].full if mad.pkey_index < len(keys) else DEFAULT_PKEY
        return MadSource(Qpn(mad.qpn), mad.gid, mad.lid, mad.sl, pkey)

    def close(self) -> None:
        self._umad.close()
