# SPDX-License-Identifier: BSD-2-Clause
"""The DHCP client's lease outside of the engine: its file, its listener, and its end.

Everything runs on the engine's thread, but for the file: a thread of its own writes it, because a disk
may block.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ipoibu.addr import PKey
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.lease_file import LeaseFile
from ipoibu.errors import BadFrame
from ipoibu.proto.context import DhcpIdentity
from ipoibu.proto.dhcp import grant_untrusted
from ipoibu.proto.dhcp_state import State
from ipoibu.proto.effects import LeaseChanged
from ipoibu.proto.engine import Engine
from ipoibu.wire.dhcp_lease import Lease

_log = logging.getLogger(__name__)

_LOOK_S = 0.02  # whether the address is given back


def identity_of(config: EndpointConfig, guid: bytes, pkey: PKey) -> DhcpIdentity | None:
    """Return the identity of the endpoint's DHCP client, None without one."""
    return config.dhcp.identity(guid, pkey) if config.dhcp is not None else None


class DhcpShell:
    """Keeps the leases of one interface, and calls `on_lease` with each new one, None when it is gone."""

    def __init__(
        self,
        config: EndpointConfig,
        guid: bytes,
        loop: asyncio.AbstractEventLoop,
        on_lease: Callable[[Lease | None], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._on_lease = on_lease
        directory = config.dhcp.lease_dir if config.dhcp is not None else None
        self._file = LeaseFile(directory, config.name, guid) if directory is not None else None
        self._writer: ThreadPoolExecutor | None = None
        self._is_told = False

    def recall(self, engine: Engine) -> None:
        """Have the engine ask for the lease in the file; before it starts. Blocks."""
        if self._file is None or engine.dhcp is None:
            return
        try:
            stored = self._file.read()
            if stored is None:
                return
            age_s = max(0.0, time.time() - stored.since_s)
            engine.dhcp.recall(grant_untrusted(stored.message, self._loop.time() - age_s))
        except (BadFrame, ValueError) as error:
            _log.warning("%s: %s is damaged: %s", self._config.name, self._file.path, error)
        except OSError as error:
            self._tell(error)

    def changed(self, effect: LeaseChanged) -> None:
        """Take the engine's effect."""
        self._on_lease(effect.lease)
        if self._file is None:
            return
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "ipoibu-lease")
        since_s = time.time() - (self._loop.time() - effect.since_s)
        self._writer.submit(self._keep, self._file, effect, since_s)

    async def release(self, engine: Engine) -> None:
        """Wait until the server has been told that the address is free, if it needs to be."""
        while engine.dhcp is not None and engine.dhcp.state is State.RELEASING:
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Wait until the file is written."""
        if self._writer is not None:
            self._writer.shutdown()

    def _keep(self, file: LeaseFile, effect: LeaseChanged, since_s: float) -> None:
        try:
            if effect.lease is None or effect.message is None:
                file.remove()
            else:
                file.write(effect.lease, effect.message, since_s)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if self._is_told:
            return
        self._is_told = True
        _log.warning(
            "%s: the lease is not kept over restarts: %s: %s",
            self._config.name,
            error.filename,
            error.strerror,
        )
