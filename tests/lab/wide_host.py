# SPDX-License-Identifier: BSD-2-Clause
"""A host with more floating-point state than this one, for a program that traces others.

    python wide_host.py BYTES REPORT PROGRAM [ARGUMENT]...

It stops PROGRAM, the kernel of a machine, at each ptrace call for NT_X86_XSTATE, and answers as a host
does whose state has BYTES bytes, such as 11008 with AMX: PTRACE_GETREGSET fills as many, and
PTRACE_SETREGSET fails with EFAULT unless it gets all of them. What is beyond this host's own state, the
tail, is a number that changes with each answer: a tail that comes back whole is one of these numbers.
REPORT gets the counts as JSON.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Final

# linux/ptrace.h
TRACEME, CONT, GETREGS, SETREGS, SYSCALL, SETOPTIONS = 0, 7, 12, 13, 24, 0x4200
GETREGSET, SETREGSET = 0x4204, 0x4205
TRACESYSGOOD, TRACEEXEC, TRACESECCOMP, EXITKILL = 1, 0x10, 0x80, 0x100000
EVENT_SECCOMP: Final = 7
NT_X86_XSTATE: Final = 0x202  # linux/elf.h
REGISTERS: Final = 27  # struct user_regs_struct has as many words
R10, RAX, RDX, RDI, ORIG_RAX = 7, 10, 12, 14, 15

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def _ptrace(request: int, pid: int, data: object = None) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")


def _filter() -> None:
    """Stop this process, and what it executes, at the two requests; linux/filter.h, linux/seccomp.h."""
    load, equal, ret = 0x20, 0x15, 0x06
    rules = [
        (load, 0, 0, 0),  # the number of the call
        (equal, 0, 4, 101),  # ptrace
        (load, 0, 0, 16),  # its first argument
        (equal, 1, 0, GETREGSET),
        (equal, 0, 1, SETREGSET),
        (ret, 0, 0, 0x7FF00000),  # SECCOMP_RET_TRACE
        (ret, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *rule) for rule in rules))
    program = struct.pack("@HP", len(rules), ctypes.addressof(code))
    for arguments in ((38, 1, 0, 0, 0), (22, 2, program)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        if _libc.prctl(*arguments) < 0:
            raise OSError(ctypes.get_errno(), "prctl")


class WideHost:
    """The answers to the program `pid`, whose first stop is behind it."""

    def __init__(self, pid: int, size_bytes: int) -> None:
        self.counts = {"gets": 0, "sets": 0, "refused": 0, "damaged": 0}
        self._pid = pid
        self._size_bytes = size_bytes
        self._own_bytes = 0  # of this host, once it has answered
        self._memory = -1

    def serve(self) -> int:
        """Answer until the program ends; return its status as a shell does."""
        asked: tuple[int, int, int] | None = None  # the vector, the buffer and its length
        request, number = CONT, 0
        while True:
            _ptrace(request, self._pid, number)
            _, status = os.waitpid(self._pid, 0)
            if not os.WIFSTOPPED(status):
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
            request, number = CONT, 0
            if status >> 8 == signal.SIGTRAP | EVENT_SECCOMP << 8:
                asked = self._enter()
                request = SYSCALL if asked else CONT
            elif status >> 8 == signal.SIGTRAP | 0x80:
                assert asked is not None
                self._leave(*asked)
            elif status >> 16 == 0:
                number = os.WSTOPSIG(status)

    def _registers(self) -> ctypes.Array[ctypes.c_ulong]:
        registers = (ctypes.c_ulong * REGISTERS)()
        _ptrace(GETREGS, self._pid, ctypes.byref(registers))
        return registers

    def _enter(self) -> tuple[int, int, int] | None:
        """Look at a request that begins; return what a GETREGSET asked for."""
        registers = self._registers()
        if registers[RDX] != NT_X86_XSTATE:
            return None
        if self._memory < 0:
            self._memory = os.open(f"/proc/{self._pid}/mem", os.O_RDWR)
        vector = registers[R10]
        base, length = struct.unpack("@PN", os.pread(self._memory, 16, vector))
        if registers[RDI] == GETREGSET:
            return vector, base, length
        self.counts["sets"] += 1
        if length < self._size_bytes:
            self.counts["refused"] += 1
            registers[ORIG_RAX] = ctypes.c_ulong(-1).value
            registers[RAX] = ctypes.c_ulong(-errno.EFAULT).value
            _ptrace(SETREGS, self._pid, ctypes.byref(registers))
        elif self._size_bytes > self._own_bytes:
            tail = os.pread(
                self._memory, self._size_bytes - self._own_bytes, base + self._own_bytes
            )
            (number,) = struct.unpack_from("@Q", tail)
            if not 0 < number <= self.counts["gets"] or tail != self._tail(number, len(tail)):
                self.counts["damaged"] += 1
        return None

    def _leave(self, vector: int, base: int, length: int) -> None:
        """Lengthen this host's answer to a GETREGSET."""
        if self._registers()[RAX] != 0:
            return
        self.counts["gets"] += 1
        (self._own_bytes,) = struct.unpack("@N", os.pread(self._memory, 8, vector + 8))
        more = min(length, self._size_bytes) - self._own_bytes
        if more > 0:
            number = self._tail(self.counts["gets"], more)
            os.pwrite(self._memory, number, base + self._own_bytes)
            os.pwrite(self._memory, struct.pack("@N", self._own_bytes + more), vector + 8)

    @staticmethod
    def _tail(number: int, length: int) -> bytes:
        return struct.pack("@Q", number) * (length // 8)


def main(size_bytes: int, report: Path, command: list[str]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            _ptrace(TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            _filter()
            os.execv(command[0], command)
        finally:
            os._exit(127)
    os.waitpid(pid, 0)
    _ptrace(SETOPTIONS, pid, TRACESYSGOOD | TRACEEXEC | TRACESECCOMP | EXITKILL)
    host = WideHost(pid, size_bytes)
    try:
        return host.serve()
    finally:
        report.write_text(json.dumps(host.counts))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
