# SPDX-License-Identifier: BSD-2-Clause
"""How long an idle CPU may take to wake up (Documentation/power/pm_qos_interface.rst).

A packet that meets a sleeping CPU waits until it is awake, on every hop; that may cost more than all
that is done for the packet. The kernel keeps its CPUs to the smallest bound that any process holds.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ipoibu.errors import IpoibuError, NotPermitted, UsageError
from ipoibu.limits import CPU_LATENCY_MAX_US

CPU_LATENCY_PATH: Final = Path("/dev/cpu_dma_latency")


class CpuLatency:
    """Idle CPUs of this machine wake up within `us` microseconds, as long as this is open.

    0: they do not sleep at all, which costs power and, on virtual machines, the time of others. Raises
    `UsageError` (out of bounds), `NotPermitted` (root alone may), `IpoibuError` (a kernel without).
    """

    def __init__(self, us: int, path: Path = CPU_LATENCY_PATH) -> None:
        if not 0 <= us <= CPU_LATENCY_MAX_US:
            raise UsageError(f"CPU latency {us}: expected 0 to {CPU_LATENCY_MAX_US} microseconds")
        self._fd = -1
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            os.write(self._fd, struct.pack("=i", us))
        except OSError as error:
            self.close()
            if error.errno in (errno.EACCES, errno.EPERM):
                raise NotPermitted(
                    f"{path} is closed to this user: run as root, or leave --cpu-latency out"
                ) from error
            reason = os.strerror(error.errno or 0)
            raise IpoibuError(f"{path}: {reason}; leave --cpu-latency out") from error

    def close(self) -> None:
        """Let go of the bound; safe to call again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
