# SPDX-License-Identifier: BSD-2-Clause
"""The functions of the C library that Python does not offer: prctl, capget, capset, setns, unshare and
syscall (ext/python/libc.pyx). Each raises `OSError`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ipoibu.sandbox._libc import (
    permitted_capabilities,
    prctl,
    set_capabilities,
    setns,
    syscall,
    unshare,
)

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWUSER",
    "join_namespace",
    "permitted_capabilities",
    "prctl",
    "set_capabilities",
    "setns",
    "syscall",
    "unshare",
]

# linux/sched.h
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000


def join_namespace(path: str | Path, kind: int) -> None:
    """Move the calling thread into the namespace of the file `path`; `kind` is its CLONE flag. `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(fd, kind)
    finally:
        os.close(fd)
