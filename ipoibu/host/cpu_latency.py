# SPDX-License-Identifier: BSD-2-Clause
"""A bound on the exit latency of idle CPUs (Documentation/power/pm_qos_interface.rst).

A packet for a sleeping CPU waits until that CPU has woken up, on every hop; this may take longer
than all work on the packet. The kernel applies the smallest bound that any process holds.
"""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipoibu.base.errors import IpoibuError, NotPermitted, UsageError
from ipoibu.base.limits import CPU_LATENCY_MAX_US

CPU_LATENCY_PATH: Final = Path("/dev/cpu_dma_latency")


@contextlib.contextmanager
def bounded_cpu_latency(us: int, path: Path = CPU_LATENCY_PATH) -> Iterator[None]:
    """Cap the exit latency of this machine's idle CPUs to `us` microseconds inside the `with` block.

    With 0 they do not sleep at all, which costs power and, on a virtual machine, CPU time of the
    other machines. Raises `UsageError` (out of bounds), `NotPermitted` (only root may do this) or
    `IpoibuError` (this kernel does not offer it).
    """
    if not 0 <= us <= CPU_LATENCY_MAX_US:
        raise UsageError(f"CPU latency {us}: expected 0 to {CPU_LATENCY_MAX_US} microseconds")
    with contextlib.ExitStack() as held:
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            held.callback(os.close, fd)
            os.write(fd, struct.pack("=i", us))
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise NotPermitted(
                    f"{path} is closed to this user: run as root, or leave --cpu-latency out"
                ) from error
            reason = os.strerror(error.errno or 0)
            raise IpoibuError(f"{path}: {reason}; leave --cpu-latency out") from error
        yield
