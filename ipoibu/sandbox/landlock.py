# SPDX-License-Identifier: BSD-2-Clause
"""Landlock: the files and TCP ports that this thread, and every thread that it starts, may use.

Facts from landlock(7) and Documentation/userspace-api/landlock.rst. A path without a rule is
closed for what the kernel's version of Landlock handles.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from struct import Struct
from typing import Final

from ipoibu.sandbox.errors import Unavailable
from ipoibu.sandbox.libc import syscall

# linux/landlock.h
_RULESET: Final = Struct("=QQQ")  # the rights that it handles: of files, of TCP; the scopes
_PATH_BENEATH: Final = Struct("=Qi")  # rights, descriptor
_NET_PORT: Final = Struct("=QQ")  # rights, port

# The same numbers on every architecture
_CREATE_RULESET: Final = 444
_ADD_RULE: Final = 445
_RESTRICT_SELF: Final = 446
_CREATE_RULESET_VERSION: Final = 1
_RULE_PATH_BENEATH: Final = 1
_RULE_NET_PORT: Final = 2


class Access(IntFlag):
    """Rights on files, linux/landlock.h."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ: Final = Access.READ_FILE | Access.READ_DIR
WRITE: Final = READ | Access.WRITE_FILE
DEVICE: Final = WRITE | Access.IOCTL_DEV
FILES: Final = WRITE | Access.MAKE_REG | Access.REMOVE_FILE | Access.TRUNCATE
SOCKETS: Final = (
    READ
    | Access.MAKE_SOCK
    | Access.MAKE_SYM
    | Access.REMOVE_FILE
    | Access.MAKE_DIR
    | Access.REMOVE_DIR
    | Access.REFER
)
_OF_FILES: Final = (
    Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV
)

# The rights that each version of the interface handles besides those of earlier versions
_FS_SINCE: Final = {
    1: Access(Access.REFER - 1),
    2: Access.REFER,
    3: Access.TRUNCATE,
    5: Access.IOCTL_DEV,
}
_NET_SINCE: Final = 4
_SCOPES_SINCE: Final = 6
_BIND_TCP: Final = 1 << 0
_CONNECT_TCP: Final = 1 << 1
_SCOPE_ABSTRACT_UNIX_SOCKET: Final = 1 << 0
_SCOPE_SIGNAL: Final = 1 << 1


@dataclass(frozen=True, slots=True)
class PathRule:
    """Permits `access` on the path and on everything below it; a path that is missing needs no rule."""

    path: Path
    access: Access


# Descriptors of directories of /proc that rules name. The kernel makes a new inode, which no rule
# knows, when it has forgotten such a directory; it does not forget one that is open.
_pinned: Final[list[int]] = []


def version() -> int:
    """The kernel's version of Landlock; `Unavailable` if it has none."""
    try:
        return syscall(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
    except OSError as error:
        raise Unavailable(f"this kernel has no Landlock ({error.strerror})") from error


@dataclass(frozen=True, slots=True)
class TcpPorts:
    """The ports that TCP may connect to (None: all) and bind to."""

    connects: Collection[int] | None = ()
    binds: Collection[int] = ()


def restrict(rules: Sequence[PathRule], tcp: TcpPorts, *, abstract_sockets: bool) -> int:
    """Confine this thread, which needs no_new_privs, for ever; return the version of Landlock.

    Without `abstract_sockets` the thread cannot connect to abstract Unix sockets of other processes. From
    version 6 of Landlock on, the thread can signal no process but its own.
    """
    known = version()
    fs = Access(0)
    for since, rights in _FS_SINCE.items():
        if since <= known:
            fs |= rights
    net = {_BIND_TCP: tcp.binds, _CONNECT_TCP: tcp.connects} if known >= _NET_SINCE else {}
    handled = sum(access for access, ports in net.items() if ports is not None)
    scopes = _SCOPE_SIGNAL | (0 if abstract_sockets else _SCOPE_ABSTRACT_UNIX_SOCKET)
    size = 24 if known >= _SCOPES_SINCE else 16 if known >= _NET_SINCE else 8
    fd = syscall(_CREATE_RULESET, _RULESET.pack(fs, handled, scopes), size, 0)
    try:
        for rule in rules:
            _add_path(fd, rule, fs)
        for access, ports in net.items():
            for port in ports or ():
                attribute = _NET_PORT.pack(access, port)
                syscall(_ADD_RULE, fd, _RULE_NET_PORT, attribute, 0)
        syscall(_RESTRICT_SELF, fd, 0)
    finally:
        os.close(fd)
    return known


def _add_path(ruleset: int, rule: PathRule, handled: Access) -> None:
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
    access = rule.access & handled & (~Access(0) if is_directory else _OF_FILES)
    try:
        attribute = _PATH_BENEATH.pack(access, fd)
        syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, attribute, 0)
    finally:
        if rule.path.is_relative_to("/proc"):
            _pinned.append(fd)
        else:
            os.close(fd)
