# SPDX-License-Identifier: BSD-2-Clause
"""seccomp: the system calls that this process may make (seccomp(2)), through libseccomp.

The kernel answers every other call with ENOSYS, as a kernel that does not know it: libraries then
fall back to older calls. Debian's python3-seccomp and pyseccomp of PyPI have the same interface.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import socket
from functools import cache
from types import ModuleType
from typing import Any, Final

from ipoibu.sandbox.errors import Unavailable
from ipoibu.sandbox.libc import CLONE_NEWNET

# Calls that are permitted with any arguments. Names that this machine does not know are left out.
CALLS: Final = {
    "files": """access chmod close close_range copy_file_range dup dup2 dup3 faccessat faccessat2
        fadvise64 fchmod fchmodat fchown fchownat fcntl fdatasync flock fstat fstatfs fsync ftruncate
        getcwd getdents getdents64 inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
        lseek lstat memfd_create mkdir mkdirat newfstatat open openat openat2 pread64 preadv preadv2
        pwrite64 pwritev pwritev2 read readlink readlinkat readv rename renameat renameat2 rmdir
        sendfile splice stat statfs statx symlink symlinkat umask unlink unlinkat utimensat
        write writev""",
    "events": """epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd
        eventfd2 io_uring_enter io_uring_register io_uring_setup pipe pipe2 poll ppoll pselect6
        select signalfd signalfd4 timerfd_create timerfd_gettime timerfd_settime""",
    "memory": """brk madvise mbind mincore mlock mlock2 mmap mprotect mremap msync munlock munmap
        get_mempolicy membarrier rseq pkey_alloc pkey_free pkey_mprotect""",
    "threads": """exit exit_group futex futex_waitv get_robust_list gettid sched_get_priority_max
        sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
        sched_setaffinity sched_yield set_robust_list set_tid_address arch_prctl getcpu""",
    "signals": """restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigreturn
        rt_sigsuspend rt_sigtimedwait sigaltstack pause wait4 waitid""",
    "time": """clock_getres clock_gettime clock_nanosleep getitimer gettimeofday nanosleep
        setitimer time times""",
    "sockets": """accept accept4 bind connect getpeername getsockname getsockopt listen recvfrom
        recvmmsg recvmsg sendmmsg sendmsg sendto setsockopt shutdown""",
    "identity": """capget getegid geteuid getgid getgroups getpgid getpgrp getpid getppid
        getpriority getrandom getresgid getresuid getrlimit getrusage getsid getuid setrlimit
        sysinfo uname""",
}

# Classes of ioctl(2) requests, as (mask, value); the second byte is the driver's letter.
IOCTLS: Final = (
    (0xFF00, 0x1B00),  # RDMA: uverbs, umad, rdma_cm
    (0xFF00, 0x8900),  # sockets; the kernel demands CAP_NET_ADMIN where they change something
    (0xFFFFFF00, 0x40045400),  # TUN, with an argument to write
    (0xFFFFFF00, 0x80045400),  # TUN, with an argument to read
    (0xFFFFFFFF, 0x5401),  # TCGETS, TIOCGWINSZ: whether a log goes to a terminal
    (0xFFFFFFFF, 0x5413),
    (0xFFFFFFFF, 0x541B),  # FIONREAD
    (0xFFFFFFFF, 0x5411),  # SIOCOUTQ
    (0xFFFFFFFF, 0x5421),  # FIONBIO
    (0xFFFFFFFF, 0x5450),  # FIONCLEX
    (0xFFFFFFFF, 0x5451),  # FIOCLEX
)
FAMILIES: Final = (socket.AF_INET, socket.AF_INET6)
TYPES: Final = (socket.SOCK_STREAM, socket.SOCK_DGRAM)
_BINARY_TREE: Final = 2
_SOCK_TYPE_MASK: Final = 0xF
_CLONE_THREAD: Final = 0x00010000
_TUNGETDEVNETNS: Final = 0x54E3
_PR_SET_NAME: Final = 15
_PR_GET_NAME: Final = 16


@cache
def load() -> ModuleType | None:
    """The binding of libseccomp. Call it before Landlock: pyseccomp starts `ldconfig`."""
    for name in ("seccomp", "pyseccomp"):
        with contextlib.suppress(ImportError, RuntimeError, OSError):
            return importlib.import_module(name)
    return None


def _library() -> ModuleType:
    binding = load()
    if binding is not None:
        return binding
    raise Unavailable("there is no python3-seccomp (Debian) or pyseccomp (PyPI), or no libseccomp")


def restrict(*, enters_namespaces: bool = False) -> None:
    """Confine this thread, which needs no_new_privs, and all that it starts, for ever."""
    seccomp = _library()
    rules = _filter(seccomp)
    if enters_namespaces:
        arg, equal = seccomp.Arg, seccomp.EQ
        _permit(seccomp, rules, "setns", arg(1, equal, CLONE_NEWNET))
        _permit(seccomp, rules, "ioctl", arg(1, equal, _TUNGETDEVNETNS))
    try:
        rules.load()
    except (OSError, RuntimeError) as error:
        raise Unavailable(f"this kernel refuses a seccomp filter ({error})") from error


def _filter(seccomp: ModuleType) -> Any:
    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))
    with contextlib.suppress(OSError, RuntimeError):  # before libseccomp 2.5: a linear search
        rules.set_attr(seccomp.Attr.CTL_OPTIMIZE, _BINARY_TREE)
    for name in " ".join(CALLS.values()).split():
        _permit(seccomp, rules, name)
    arg, equal, masked = seccomp.Arg, seccomp.EQ, seccomp.MASKED_EQ
    for family in (socket.AF_UNIX, socket.AF_NETLINK):
        _permit(seccomp, rules, "socket", arg(0, equal, int(family)))
    _permit(seccomp, rules, "socketpair", arg(0, equal, int(socket.AF_UNIX)))
    for family in FAMILIES:
        for kind in TYPES:
            _permit(
                seccomp,
                rules,
                "socket",
                arg(0, equal, int(family)),
                arg(1, masked, _SOCK_TYPE_MASK, int(kind)),
            )
    for mask, value in IOCTLS:
        _permit(seccomp, rules, "ioctl", arg(1, masked, mask, value))
    # Threads, and no processes: libraries start threads by clone when clone3 is missing.
    _permit(seccomp, rules, "clone", arg(0, masked, _CLONE_THREAD, _CLONE_THREAD))
    for option in (_PR_SET_NAME, _PR_GET_NAME):
        _permit(seccomp, rules, "prctl", arg(0, equal, option))
    _permit(seccomp, rules, "prlimit64", arg(0, equal, 0))  # its own limits
    _permit(seccomp, rules, "tgkill", arg(0, equal, os.getpid()))
    return rules


def _permit(seccomp: ModuleType, rules: Any, name: str, *arguments: Any) -> None:
    with contextlib.suppress(OSError, RuntimeError):  # this libseccomp does not know the name
        rules.add_rule(seccomp.ALLOW, name, *arguments)
