# SPDX-License-Identifier: BSD-2-Clause
"""What a process asks of the kernel about its children and itself. By ctypes, because this part of the
lab has to run where nobody has compiled ipoibu's C."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
from functools import cache
from typing import Final

PR_SET_CHILD_SUBREAPER: Final = 36  # linux/prctl.h
PR_SET_NO_NEW_PRIVS: Final = 38
PTRACE_TRACEME: Final = 0  # linux/ptrace.h
SECCOMP: Final = 317  # its number on x86_64: asm/unistd_64.h
SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC = 1, 1  # linux/seccomp.h
_ALLOW: Final = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)  # BPF_RET, SECCOMP_RET_ALLOW

_libc: Final = ctypes.CDLL(None, use_errno=True)


def set_subreaper(on: bool) -> None:
    """Make this process adopt the orphans among its descendants, or no longer."""
    unused = ctypes.c_ulong(0)
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(on), unused, unused, unused))


def be_traced() -> None:
    """Let the parent trace this process, as a machine's kernel traces its own; OSError if it may not."""
    _check(_libc.ptrace(PTRACE_TRACEME, 0, None, None))


@cache
def may_be_traced() -> bool:
    """Say whether a child of this process may be traced; a process of its own tries it."""
    script = f"import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace({PTRACE_TRACEME}, 0, None, None) != 0)"
    return subprocess.run([sys.executable, "-ISc", script], check=False).returncode == 0


def be_filtered() -> None:
    """Take a filter of system calls, as a process of a machine does, one that lets all of them pass; OSError
    if this process may not.
    """
    unused = ctypes.c_ulong(0)
    rules = ctypes.create_string_buffer(_ALLOW, len(_ALLOW))
    program = struct.pack("@HP", 1, ctypes.addressof(rules))
    _check(_libc.prctl(PR_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), unused, unused, unused))
    _check(
        _libc.syscall(
            ctypes.c_long(SECCOMP), SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, program
        )
    )


def _check(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
