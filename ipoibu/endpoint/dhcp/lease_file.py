# SPDX-License-Identifier: BSD-2-Clause
"""The file that keeps a DHCP lease over restarts: one for each interface of a port and each IP version.

    {"address": "10.0.0.7/24", "server": "10.0.0.1", "since": 1790000000.0, "message": "0201..."}

`since` is when the client asked for the lease, in seconds of Unix time; `message` the acknowledgement, or
the reply of DHCPv6, in hexadecimal. The other keys are for readers: of DHCPv6 `server` is a DUID.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from dataclasses import dataclass
from pathlib import Path

LEASE_FILE_MAX_BYTES = 16_384  # a message of an Ethernet MTU has 3000 digits


@dataclass(frozen=True, slots=True)
class Stored:
    """A message and the Unix time of its request."""

    message: bytes
    since_s: float


class LeaseFile:
    """The file of the interface `name` on the port `guid` in `directory`. Every method may block."""

    def __init__(self, directory: Path, name: str, guid: bytes, suffix: str) -> None:
        self.path = directory / f"{name}-{guid.hex()}{suffix}"

    def read(self) -> Stored | None:
        """Return what the file has; None without a file, `ValueError` if it is damaged or another user's,
        `OSError`."""
        try:
            raw = _content(self.path)
        except FileNotFoundError:
            return None
        try:
            content = json.loads(raw)
            stored = Stored(bytes.fromhex(content["message"]), float(content["since"]))
        except (KeyError, TypeError, OverflowError, RecursionError) as error:
            raise ValueError("no lease") from error
        if not math.isfinite(stored.since_s):
            raise ValueError("no lease")
        return stored

    def write(self, address: str, server: str, message: bytes, since_s: float) -> None:
        """Replace the file; `OSError`."""
        content = {
            "address": address,
            "server": server,
            "since": round(since_s, 3),
            "message": message.hex(),
        }
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        draft = self.path.with_name(f"{self.path.name}.new")
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with open(fd, "w", encoding="ascii") as file:
                file.write(json.dumps(content) + "\n")
            draft.rename(self.path)
        except OSError:  # the disk is full
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def remove(self) -> None:
        """Remove the file, if there is one; `OSError`."""
        self.path.unlink(missing_ok=True)


def _content(path: Path) -> bytes:
    """Return the begin of a file that only we and root can have written and put there; `OSError`,
    `ValueError`."""
    directory = path.parent.stat()
    if directory.st_uid not in (0, os.geteuid()):
        raise ValueError(f"its directory belongs to another user ({directory.st_uid})")
    if directory.st_mode & stat.S_IWOTH and not directory.st_mode & stat.S_ISVTX:
        raise ValueError("every user may change its directory")
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would block
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("not a regular file")
        if status.st_uid not in (0, os.geteuid()):
            raise ValueError(f"it belongs to another user ({status.st_uid})")
        if status.st_mode & stat.S_IWOTH:
            raise ValueError("every user may change it")
        return file.read(LEASE_FILE_MAX_BYTES)
