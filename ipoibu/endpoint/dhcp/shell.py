# SPDX-License-Identifier: BSD-2-Clause
"""The leases of the DHCP clients outside of the engine: their files, their listeners, and their end.

Everything runs on the engine's thread, but for the file: a thread of its own writes it, because a disk
may block.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import DHCP6_RELEASE_S, LEASE_SKEW_S
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.dhcp.lease_file import LeaseFile
from ipoibu.endpoint.dhcp_config import DhcpConfig
from ipoibu.proto.context import Dhcp6Identity
from ipoibu.proto.dhcp import state as dhcp_state
from ipoibu.proto.dhcp import state6 as dhcp6_state
from ipoibu.proto.dhcp.client import grant_untrusted
from ipoibu.proto.dhcp.client6 import grant6_untrusted
from ipoibu.proto.effects import Lease6Changed, LeaseChanged
from ipoibu.proto.engine import Engine
from ipoibu.wire.dhcp6_lease import Lease6
from ipoibu.wire.dhcp_lease import Lease

_log = logging.getLogger(__name__)

_LOOK_S = 0.02  # whether the address is given back


class LeaseKeeper:
    """Keeps the leases of one client in a file, if it has a directory."""

    def __init__(
        self,
        name: str,
        config: DhcpConfig | None,
        guid: bytes,
        loop: asyncio.AbstractEventLoop,
        suffix: str,
    ) -> None:
        self._name = name
        self._loop = loop
        directory = config.lease_dir if config is not None else None
        self._file = LeaseFile(directory, name, guid, suffix) if directory is not None else None
        self._writer: ThreadPoolExecutor | None = None
        self._is_reported = False

    def recall(self, take: Callable[[bytes, float], None]) -> None:
        """Call `take` with the message in the file and when it was asked for, in seconds of the loop's
        clock. Blocks."""
        if self._file is None:
            return
        try:
            stored = self._file.read()
            if stored is None:
                return
            age_s = time.time() - stored.since_s
            if age_s < -LEASE_SKEW_S:  # nobody knows how old it is
                raise ValueError("it is from the future, or the clock has gone back")
            age_s = max(0.0, age_s)
            take(stored.message, self._loop.time() - age_s)
        except (BadFrame, ValueError) as error:
            _log.warning("%s: no lease from %s: %s", self._name, self._file.path, error)
        except OSError as error:
            self._tell(error)

    def keep(self, address: str, server: str, message: bytes, since_s: float) -> None:
        """Replace the file, which the writer's thread does."""
        since_s = time.time() - (self._loop.time() - since_s)
        self._submit(lambda file: file.write(address, server, message, since_s))

    def remove(self) -> None:
        """Remove the file, which the writer's thread does."""
        self._submit(lambda file: file.remove())

    def close(self) -> None:
        """Wait until the file is written."""
        if self._writer is not None:
            self._writer.shutdown()

    def _submit(self, work: Callable[[LeaseFile], None]) -> None:
        if self._file is None:
            return
        if self._writer is None:
            self._writer = ThreadPoolExecutor(1, "ipoibu-lease")
        self._writer.submit(self._work, self._file, work)

    def _work(self, file: LeaseFile, work: Callable[[LeaseFile], None]) -> None:
        try:
            work(file)
        except OSError as error:
            self._tell(error)

    def _tell(self, error: OSError) -> None:
        if self._is_reported:
            return
        self._is_reported = True
        _log.warning(
            "%s: the lease is not kept over restarts: %s: %s",
            self._name,
            error.filename or (self._file and self._file.path),
            error.strerror,
        )


class DhcpShell:
    """Keeps the leases of one interface, and calls `on_lease` or, of DHCPv6, `on_lease6` with each new one,
    None when it is gone."""

    def __init__(
        self,
        config: EndpointConfig,
        guid: bytes,
        loop: asyncio.AbstractEventLoop,
        on_lease: Callable[[Lease | None], None],
        on_lease6: Callable[[Lease6 | None], None],
    ) -> None:
        self._loop = loop
        self._on_lease = on_lease
        self._on_lease6 = on_lease6
        self._keeper = LeaseKeeper(config.name, config.dhcp, guid, loop, ".lease")
        self._keeper6 = LeaseKeeper(config.name, config.dhcp6, guid, loop, ".lease6")

    def recall(self, engine: Engine, identity6: Dhcp6Identity | None) -> None:
        """Have the engine ask for the leases in the files; before it starts. Blocks."""
        dhcp, dhcp6 = engine.dhcp, engine.dhcp6
        if dhcp is not None:
            self._keeper.recall(
                lambda message, since_s: dhcp.recall(grant_untrusted(message, since_s))
            )
        if dhcp6 is not None and identity6 is not None:
            self._keeper6.recall(
                lambda message, since_s: dhcp6.recall(grant6_untrusted(message, since_s, identity6))
            )

    def note_lease(self, effect: LeaseChanged) -> None:
        """Take the engine's effect about the lease of DHCP."""
        self._on_lease(effect.lease)
        lease, message = effect.lease, effect.message
        if lease is None or message is None:
            self._keeper.remove()
        else:
            packed = message.pack()
            self._keeper.keep(str(lease.address), str(lease.server), packed, effect.since_s)

    def note_lease6(self, effect: Lease6Changed) -> None:
        """Take the engine's effect about the lease of DHCPv6."""
        lease, message = effect.lease, effect.message
        if lease is None or message is None:
            self._on_lease6(None)
            self._keeper6.remove()
        else:
            self._on_lease6(lease.aged(self._loop.time() - effect.since_s))
            server, packed = lease.server.hex(":"), message.pack()
            self._keeper6.keep(str(lease.address), server, packed, effect.since_s)

    async def release(self, engine: Engine) -> None:
        """Wait until the servers have been told that the addresses are free, if they need to be; of DHCPv6
        at most until the second message has had time for its reply."""
        end_s = self._loop.time() + DHCP6_RELEASE_S
        while engine.dhcp is not None and engine.dhcp.state is dhcp_state.State.RELEASING:
            await asyncio.sleep(_LOOK_S)
        while engine.dhcp6 is not None and engine.dhcp6.state is dhcp6_state.State.RELEASING:
            if self._loop.time() >= end_s:
                return
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """Wait until the files are written."""
        self._keeper.close()
        self._keeper6.close()
