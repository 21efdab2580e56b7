# SPDX-License-Identifier: BSD-2-Clause
"""Opens an endpoint whose device may appear, or get its address, a little later."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from concurrent.futures import Executor
from typing import Final

from ipoibu.base.errors import IpoibuError, NoSuchDevice, NotReady
from ipoibu.base.limits import OPEN_RETRY_S, OPEN_WAIT_LOGGED_S, OPEN_WAIT_S
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.endpoint.contract import EndpointContract

_log: Final = logging.getLogger(__name__)


async def open_when_ready(
    config: InterfaceConfig, endpoint: EndpointContract, executor: Executor, stop: asyncio.Event
) -> None:
    """Open the endpoint when its device is ready, or raise why it is not, after the wait or `stop`."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    is_logged = False
    while True:
        try:
            await loop.run_in_executor(executor, endpoint.open)
        except (NotReady, NoSuchDevice) as error:
            waited_s, wait_s = loop.time() - began, _wait_s(config, error)
            if waited_s >= wait_s or stop.is_set():
                raise
            is_long = wait_s > OPEN_WAIT_S  # after a short wait the caller reports the error soon
            if is_long and waited_s >= OPEN_WAIT_LOGGED_S and not is_logged:
                is_logged = True
                _log.warning("%s: waits up to %d s for the device: %s", config.name, wait_s, error)
        else:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(OPEN_RETRY_S):
                await stop.wait()


def _wait_s(config: InterfaceConfig, error: IpoibuError) -> float:
    """Return how long to wait. A missing device may be a typing error, so only a missing address gets time
    by default."""
    if config.wait is not None:
        return config.wait
    return OPEN_WAIT_S if isinstance(error, NotReady) else 0.0
