# SPDX-License-Identifier: BSD-2-Clause
"""The limit of the process's file descriptors: raises it, checks that it leaves room for the next
interface, and logs once that it is reached."""

from __future__ import annotations

import errno
import logging
import os
import resource
import time

from ipoibu.base.errors import LinkError
from ipoibu.base.limits import (
    DESCRIPTORS_LOG_S,
    INTERFACE_DESCRIPTORS,
    PROCESS_SPARE_DESCRIPTORS,
    TX_QUEUE_DESCRIPTORS,
)

_log = logging.getLogger(__name__)


def raise_limit() -> None:
    """Raise the limit of the process (the soft one) as far as the administrator allows (the hard one)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # some containers forbid it
        _log.info("the limit of open files stays at %d: %s", soft, error)


def check_room(name: str, queues: int) -> None:
    """Raise `LinkError` if the process may not open the descriptors of one more interface."""
    needed = INTERFACE_DESCRIPTORS + TX_QUEUE_DESCRIPTORS * (queues - 1)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    if used + needed + PROCESS_SPARE_DESCRIPTORS > limit:
        raise LinkError(
            f"{name}: an interface needs {needed} file descriptors, and this process uses {used} of the"
            f" {limit} that it may have: raise the limit (`ulimit -n`, LimitNOFILE= of systemd)"
        )


class Shortage:
    """Logs that there is no free descriptor: the first time, and then once a minute at most."""

    def __init__(self) -> None:
        self._logged: float | None = None

    def is_one(self, error: object) -> bool:
        """Return whether `error` says that there is no free descriptor, and log that; any thread may call
        this."""
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            return False
        now = time.monotonic()
        if self._logged is None or now - self._logged >= DESCRIPTORS_LOG_S:
            self._logged = now
            _log.warning(
                "new clients have to wait: %s; raise the limit (`ulimit -n`, LimitNOFILE= of systemd)",
                os.strerror(error.errno),
            )
        return True


SHORTAGE = Shortage()
