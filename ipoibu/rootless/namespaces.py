# SPDX-License-Identifier: BSD-2-Clause
"""User and network namespaces that an ordinary user may create (user_namespaces(7)).

The process keeps its user and group, and files keep their owners. It gets all capabilities
over the new namespaces, and none over anything else.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from pathlib import Path
from typing import Final

from ipoibu.base.errors import IpoibuError, NotPermitted
from ipoibu.base.privilege import CAP_NET_ADMIN, CAP_NET_RAW
from ipoibu.sandbox import capabilities
from ipoibu.sandbox.libc import (
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWUSER,
    join_namespace,
    unshare,
)

CAP_NET_BIND_SERVICE: Final = 10  # linux/capability.h

# The rights of a command over the network of its namespace, as root has over the host's
NETWORK: Final = frozenset((CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW))

# linux/sockios.h, linux/if.h
SIOCGIFFLAGS: Final = 0x8913
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 0x1
_IFREQ: Final = struct.Struct("16sH22x")  # the name of the interface, its flags

_SYSCTL: Final = Path("/proc/sys")

# (setting, the value that forbids namespaces, a value that permits them)
_SETTINGS: Final = (
    ("kernel/unprivileged_userns_clone", 0, 1),  # Debian before 11
    ("user/max_user_namespaces", 0, 10000),
    ("user/max_net_namespaces", 0, 10000),
    ("kernel/apparmor_restrict_unprivileged_userns", 1, 0),  # Ubuntu from 23.10 on
)


def create() -> None:
    """Move this process, which has one thread, into a new user and a new network namespace.

    `NotPermitted` names the setting that forbids it.
    """
    uid, gid = os.geteuid(), os.getegid()
    _create(CLONE_NEWUSER | CLONE_NEWNET, f"{uid} {uid} 1", f"{gid} {gid} 1")


def become_root() -> None:
    """Move this process, which has one thread, into a new user, network and mount namespace, where its
    user is root. Files that it makes belong to its user outside. `NotPermitted` as for `create`."""
    uid, gid = os.geteuid(), os.getegid()
    _create(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS, f"0 {uid} 1", f"0 {gid} 1")


def _create(flags: int, uid_map: str, gid_map: str) -> None:
    try:
        unshare(flags)
        Path("/proc/self/setgroups").write_text("deny")  # else only root may map its group
        Path("/proc/self/uid_map").write_text(uid_map)
        Path("/proc/self/gid_map").write_text(gid_map)
    except OSError as error:
        raise refusal(error) from error


def join_user(pid: int) -> None:
    """Move this process, which has one thread, into the user namespace of `pid`."""
    _join(pid, "user", CLONE_NEWUSER)


def join_network(pid: int) -> None:
    """Move the calling thread into the network namespace of `pid`; others stay where they are."""
    _join(pid, "net", CLONE_NEWNET)


def raise_loopback() -> None:
    """Set `lo` of the calling thread's network namespace up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags = _IFREQ.unpack(fcntl.ioctl(any_socket, SIOCGIFFLAGS, _IFREQ.pack(b"lo", 0)))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, _IFREQ.pack(name, flags | IFF_UP))


def keep_network_capabilities() -> None:
    """Keep the capabilities of `NETWORK`, and none else, over the execution of a program."""
    capabilities.keep_for_programs(NETWORK)


def _join(pid: int, kind: str, flag: int) -> None:
    try:
        join_namespace(f"/proc/{pid}/ns/{kind}", flag)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise NotPermitted(
            f"cannot enter the {kind} namespace of process {pid}: {reason}"
        ) from error


def refusal(error: OSError, settings: Path = _SYSCTL) -> IpoibuError:
    """The error that names the setting by which the kernel refused a namespace."""
    if error.errno not in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EINVAL, errno.ENOSYS):
        return IpoibuError(f"no user namespace: {os.strerror(error.errno or 0)}")
    for setting, forbidden, permitted in _SETTINGS:
        try:
            value = int((settings / setting).read_text())
        except (OSError, ValueError):
            continue
        if value == forbidden:
            name = setting.replace("/", ".")
            return NotPermitted(
                f"this machine forbids user namespaces: run `sysctl -w {name}={permitted}` as root"
            )
    return NotPermitted(
        f"this machine forbids user namespaces ({os.strerror(error.errno or 0)}):"
        " a container's seccomp profile or SELinux may do so; `ipoibu up` as root needs none"
    )
