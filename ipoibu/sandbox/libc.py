# SPDX-License-Identifier: BSD-2-Clause
"""The functions of the C library that Python does not offer: prctl, capget, capset, setns, unshare, mount,
umount2 and syscall (ext/python/libc.pyx). Each raises `OSError`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ipoibu.sandbox._libc import (
    mount,
    permitted_capabilities,
    prctl,
    set_capabilities,
    setns,
    syscall,
    unmount,
    unshare,
)

__all__ = [
    "CLONE_NEWNET",
    "CLONE_NEWNS",
    "CLONE_NEWUSER",
    "PR_SET_CHILD_SUBREAPER",
    "PR_SET_PDEATHSIG",
    "join_namespace",
    "mount",
    "permitted_capabilities",
    "prctl",
    "set_capabilities",
    "setns",
    "syscall",
    "unmount",
    "unshare",
]

# linux/sched.h
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
# linux/prctl.h
PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36


def join_namespace(path: str | Path, kind: int) -> None:
    """Move the calling thread into the namespace of the file `path`; `kind` is its CLONE flag. `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        setns(fd, kind)
    finally:
        os.close(fd)
