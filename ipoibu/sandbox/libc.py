# SPDX-License-Identifier: BSD-2-Clause
"""The functions of the C library that Python does not offer: prctl, capget, capset, setns, unshare and
syscall."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import cffi

ffi: Final = cffi.FFI()
ffi.cdef("""
struct cap_header { uint32_t version; int pid; };
struct cap_data { uint32_t effective, permitted, inheritable; };
int capget(struct cap_header *header, struct cap_data *data);
int capset(struct cap_header *header, const struct cap_data *data);
int prctl(int option, ...);
int setns(int fd, int kind);
int unshare(int flags);
long syscall(long number, ...);
""")
libc: Final[Any] = ffi.dlopen(None)

# linux/sched.h
CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000


def prctl(option: int, *arguments: int) -> int:
    """prctl(2); `OSError` if the kernel refuses."""
    values = [ffi.cast("unsigned long", value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return checked(libc.prctl(option, *values))


def syscall(number: int, *arguments: Any) -> int:
    """A system call without a function of its own; each argument is a number or a cffi pointer."""
    values = [ffi.cast("long", value) for value in arguments]
    return checked(libc.syscall(ffi.cast("long", number), *values))


def join_namespace(path: str | Path, kind: int) -> None:
    """Move the calling thread into the namespace of the file `path`; `kind` is its CLONE flag. `OSError`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        checked(libc.setns(fd, kind))
    finally:
        os.close(fd)


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    return int(result)
