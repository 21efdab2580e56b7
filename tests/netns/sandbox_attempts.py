# SPDX-License-Identifier: BSD-2-Clause
"""Confine this process, attempt what the stages forbid and what they permit, and print each ending.

`python sandbox_attempts.py STAGE USER DIRECTORY [MODULE]` prints {"NAME": "ok" or the errno's name}.
DIRECTORY is the only one, besides Python's own, that the process may use after stage 4. The process
acts as if the Python module MODULE were not installed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import resource
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ipoibu.base.privilege import CAP_NET_ADMIN
from ipoibu.sandbox.landlock import DEVICE, READ, SOCKETS, PathRule
from ipoibu.sandbox.stages import Needs, Stage, confine
from ipoibu.sandbox.user import User

_NOBODY = 0x3FFFFFFF  # no process has this number
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)


def _open(path: str | Path) -> Callable[[], None]:
    return lambda: os.close(os.open(path, os.O_RDONLY))


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    path.unlink()


def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _spawn() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def _execute() -> None:
    os.execv("/nonexistent", ["nonexistent"])


def _ioctl_of_terminal() -> None:
    fcntl.ioctl(0, 0x5412, b"x")  # TIOCSTI types a character into the terminal


def _thread() -> None:
    done = []
    thread = threading.Thread(target=lambda: done.append(1))
    thread.start()
    thread.join()
    assert done


def _control_socket(directory: Path) -> None:
    path = directory / "ib0.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen()
    path.unlink()


def _create_tun() -> None:
    fd = os.open("/dev/net/tun", os.O_RDWR)
    try:
        fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", b"sandbox%d", 0x1001))
    finally:
        os.close(fd)


def _socket(family: int, kind: int, protocol: int = 0) -> Callable[[], None]:
    return lambda: socket.socket(family, kind, protocol).close()


def _connect_tcp() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
        client.connect(("127.0.0.1", 9))  # refused if it may be attempted at all


def attempts(directory: Path) -> dict[str, Callable[[], object]]:
    return {
        # forbidden, sooner or later
        "read shadow": _open("/etc/shadow"),
        "read passwd": _open("/etc/passwd"),
        "list root": lambda: list(os.scandir("/root")),
        "write tmp": lambda: _create(directory.parent / "outside"),
        "fork": _fork,
        "execute": _execute,
        "spawn": _spawn,
        "trace": lambda: _call("ptrace", 16, _NOBODY, 0, 0),  # PTRACE_ATTACH
        "read memory": lambda: _call("process_vm_readv", _NOBODY, 0, 0, 0, 0, 0),
        "become root": lambda: os.setuid(0),
        "mount": lambda: _call("mount", b"none", b"/mnt", b"tmpfs", 0, 0),
        "unshare": lambda: _call("unshare", 0x00020000),
        "enter namespace": lambda: _call("setns", -1, 0),
        "change root": lambda: os.chroot("/"),
        "raw socket": _socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "packet socket": _socket(socket.AF_PACKET, socket.SOCK_RAW),
        "vsock": _socket(40, socket.SOCK_STREAM),
        "tcp connect": _connect_tcp,
        "bpf": lambda: _call("syscall", 321, 0, 0, 0),
        "raise limit": lambda: (
            resource.prlimit(
                0, resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            and None
        ),
        "signal parent": lambda: os.kill(os.getppid(), 0),
        "type into terminal": _ioctl_of_terminal,
        # permitted in every stage
        "thread": _thread,
        "map memory": lambda: mmap.mmap(-1, 4096).close(),
        "udp socket": _socket(socket.AF_INET6, socket.SOCK_DGRAM),
        "netlink socket": _socket(socket.AF_NETLINK, socket.SOCK_RAW, 0),
        "control socket": lambda: _control_socket(directory),
        "import": lambda: __import__("wave"),
        "load library": lambda: ctypes.CDLL("libm.so.6"),
        # needs CAP_NET_ADMIN
        "create tun": _create_tun,
        # last, as nothing else is permitted when it succeeds
        "become other": lambda: os.setresuid(12345, 12345, 12345),
    }


def outcome(attempt: Callable[[], object]) -> str:
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "ok"


def main(stage: str, user: str, directory: str, missing: str = "") -> None:
    sys.modules[missing] = None  # type: ignore[assignment]
    rules = [
        PathRule(Path(directory), SOCKETS),
        PathRule(Path("/dev/net/tun"), DEVICE),
        *(PathRule(Path(path), READ) for path in ("/usr", "/lib", "/lib64", "/proc", sys.prefix)),
        PathRule(Path("/etc/ld.so.cache"), READ),
    ]
    needs = Needs(User.parse(user) if user else None, {CAP_NET_ADMIN}, rules)
    confine("test", needs, Stage(int(stage)))
    print(json.dumps({name: outcome(it) for name, it in attempts(Path(directory)).items()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
