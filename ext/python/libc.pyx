# SPDX-License-Identifier: BSD-2-Clause
# cython: binding=False
"""The functions of the C library that Python does not offer; each raises `OSError`."""

import os

from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t, uintptr_t

cdef extern from "<sched.h>" nogil:
    int c_setns "setns"(int fd, int kind)
    int c_unshare "unshare"(int flags)

cdef extern from "<sys/mount.h>" nogil:
    int c_mount "mount"(const char *source, const char *target, const char *kind, unsigned long flags,
                        const void *options)
    int c_umount "umount2"(const char *target, int flags)

cdef extern from "<sys/prctl.h>" nogil:
    int c_prctl "prctl"(int option, ...)

cdef extern from "<sys/syscall.h>" nogil:
    long SYS_capget
    long SYS_capset

cdef extern from "<unistd.h>" nogil:
    long c_syscall "syscall"(long number, ...)

cdef extern from "<linux/capability.h>":
    uint32_t _LINUX_CAPABILITY_VERSION_3

    struct __user_cap_header_struct:
        uint32_t version
        int pid

    struct __user_cap_data_struct:
        uint32_t effective
        uint32_t permitted
        uint32_t inheritable


cdef long checked(long result) except -1:
    if result < 0:
        raise OSError(errno, os.strerror(errno))
    return result


def prctl(
    int option,
    unsigned long first=0,
    unsigned long second=0,
    unsigned long third=0,
    unsigned long fourth=0,
) -> int:
    """prctl(2)."""
    return checked(c_prctl(option, first, second, third, fourth))


def setns(int fd, int kind) -> None:
    """Move the calling thread into the namespace of `fd`; `kind` is its CLONE flag."""
    checked(c_setns(fd, kind))


def unshare(int flags) -> None:
    """Move the calling thread into new namespaces."""
    checked(c_unshare(flags))


def mount(bytes source, bytes target, bytes kind, unsigned long flags, bytes options=b"") -> None:
    """mount(2)."""
    checked(c_mount(source, target, kind, flags, <char *>options))


def unmount(bytes target, int flags) -> None:
    """umount2(2)."""
    checked(c_umount(target, flags))


def permitted_capabilities() -> int:
    """The permitted set of the calling thread, a bit for each capability."""
    cdef __user_cap_header_struct header
    cdef __user_cap_data_struct data[2]
    header.version, header.pid = _LINUX_CAPABILITY_VERSION_3, 0
    checked(c_syscall(SYS_capget, &header, data))
    return data[0].permitted | <uint64_t>data[1].permitted << 32


def set_capabilities(uint64_t mask, uint64_t inheritable) -> None:
    """Make `mask` the permitted and the effective set of the calling thread."""
    cdef __user_cap_header_struct header
    cdef __user_cap_data_struct data[2]
    cdef int word
    header.version, header.pid = _LINUX_CAPABILITY_VERSION_3, 0
    for word in range(2):
        data[word].effective = data[word].permitted = <uint32_t>(mask >> 32 * word)
        data[word].inheritable = <uint32_t>(inheritable >> 32 * word)
    checked(c_syscall(SYS_capset, &header, data))


def syscall(long number, *arguments: int | bytes) -> int:
    """A system call without a function of its own, with at most 4 arguments: numbers, or bytes that the
    kernel reads."""
    cdef long values[4]
    cdef int index = 0
    values[:] = [0, 0, 0, 0]
    for index, argument in enumerate(arguments):
        if isinstance(argument, bytes):
            values[index] = <long><uintptr_t><char *>argument
        else:
            values[index] = argument
    return checked(c_syscall(number, values[0], values[1], values[2], values[3]))
