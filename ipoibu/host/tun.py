# SPDX-License-Identifier: BSD-2-Clause
"""Creation of the TUN device, which only the pump reads and writes, and attachment to an existing one.

A device that we create is not persistent: it ends with its descriptor, so a process leaves no interface
behind, however it dies. If an io_uring was reading the device, the device outlives the process for a moment.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Self

from ipoibu.base.closing import Closing
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted, UsageError
from ipoibu.base.interface_name import check_name

TUN_PATH: Final = "/dev/net/tun"
VNET_HEADER_BYTES: Final = 16  # ext/core/frame.h: leaves room for the encapsulation header
DYING_S: Final = 3.0  # a TUN may outlive its process for this time

# linux/if_tun.h
TUNSETIFF: Final = 0x400454CA
TUNGETIFF: Final = 0x800454D2
TUNSETOFFLOAD: Final = 0x400454D0
TUNGETVNETHDRSZ: Final = 0x800454D7
TUNSETVNETHDRSZ: Final = 0x400454D8
TUNSETCARRIER: Final = 0x400454E2  # Linux 5.0
IFF_TUN: Final = 0x0001
IFF_TAP: Final = 0x0002
IFF_MULTI_QUEUE: Final = 0x0100  # Linux 3.8
IFF_PERSIST: Final = 0x0800  # Linux 3.8; TUNGETIFF reports it
IFF_NO_PI: Final = 0x1000
IFF_VNET_HDR: Final = 0x4000
TUN_F_CSUM: Final = 0x01
TUN_F_TSO4: Final = 0x02
TUN_F_TSO6: Final = 0x04
TUN_F_TSO_ECN: Final = 0x08
TUN_F_USO4: Final = 0x20  # Linux 6.2; the kernel takes both USO flags or none
TUN_F_USO6: Final = 0x40

# We request these one after the other, each together with those that the kernel has granted before.
_OFFLOADS: Final = (
    (TUN_F_CSUM, ("csum",)),
    (TUN_F_TSO4 | TUN_F_TSO6, ("tso4", "tso6")),
    (TUN_F_TSO_ECN, ("ecn",)),
    (TUN_F_USO4 | TUN_F_USO6, ("uso4", "uso6")),
)


class NameTaken(IpoibuError):
    """An interface of that name exists already in this network namespace."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"an interface {name!r} exists already in this network namespace;"
            " choose another name, or see `ip link show`"
        )


@dataclass(slots=True)
class Tun(Closing):
    """An open TUN device. It owns `fd` (non-blocking, close-on-exec) until `close`, and the descriptors
    `more` of its further queues.

    `offload` lists the work that the kernel leaves to the reader: "csum" (checksums), "tso4", "tso6",
    "ecn", "uso4" and "uso6" (super-frames of TCP and UDP). The interface of one that is not `owned` is the
    administrator's to configure.
    """

    name: str
    fd: int
    offload: tuple[str, ...]
    more: tuple[int, ...] = ()
    is_tap: bool = False
    owned: bool = True

    @classmethod
    def open(
        cls, name: str, *, super_frames: bool = True, queues: int = 1, tap: bool = False
    ) -> Self:
        """Create the interface `name` in this network namespace, down and without addresses.

        Without `super_frames` the kernel segments its packets to the MTU itself. A `tap` has Ethernet frames.

        Raises `UsageError` (bad name, or more queues than the kernel allows), `NameTaken`,
        `NotPermitted`, `NoSuchDevice` (no /dev/net/tun).
        """
        kind = IFF_TAP if tap else IFF_TUN
        return cls._make(name, partial(_add_queue, kind), super_frames, queues, tap)

    @classmethod
    def attach(cls, name: str, *, super_frames: bool = True, queues: int = 1) -> Self:
        """Attach to the persistent TUN `name` of this network namespace; its owner needs no capability.

        Raises `NoSuchDevice` (no such interface), `NotPermitted` (another user's), `UsageError` (not a
        persistent TUN, or other queues), `LinkError` (another process uses it).
        """
        tun = cls._make(name, _join_queue, super_frames, queues, False)
        tun.owned = False
        return tun

    @classmethod
    def adopt(
        cls,
        name: str,
        fds: Sequence[int],
        *,
        super_frames: bool,
        queues: int,
        persistent: bool,
        tap: bool = False,
    ) -> Self:
        """Go on with an interface that another process has opened; takes over `fds`, one for each queue.

        Raises `LinkError`, and closes `fds`, if that is not the interface `name` of this network namespace
        as `open`, or `attach` if `persistent`, makes it.
        """
        try:
            if len(fds) != queues or not _exists(name):
                raise LinkError(f"{name}: there are {len(fds)} queues of it, not {queues}")
            for fd in fds:
                _check_queue(fd, name, is_multi=queues > 1, persistent=persistent, tap=tap)
            tun = cls._of(name, fds, super_frames, tap)
            tun.owned = not persistent
            return tun
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    @classmethod
    def _of(cls, name: str, fds: Sequence[int], super_frames: bool, is_tap: bool) -> Self:
        """Take over the queues, and negotiate offloads."""
        fd, *more = fds
        offload = _set_offload(fd, _OFFLOADS if super_frames else _OFFLOADS[:1])
        return cls(name, fd, offload, tuple(more), is_tap)

    @classmethod
    def _make(
        cls,
        name: str,
        add: Callable[[int, str, int, int], None],
        super_frames: bool,
        queues: int,
        is_tap: bool,
    ) -> Self:
        check_name(name)
        fds: list[int] = []
        try:
            for number in range(queues):
                fds.append(_open_node())
                add(fds[-1], name, number, queues)
            return cls._of(name, fds, super_frames, is_tap)
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise

    def set_carrier(self, up: bool) -> None:
        """Give the interface a carrier (LOWER_UP), or take it away; `OSError` before Linux 5.0."""
        fcntl.ioctl(self.fd, TUNSETCARRIER, struct.pack("i", up))

    def current_name(self) -> str:
        """Return the interface's name, in whichever network namespace it is; `OSError` if it is gone."""
        request = fcntl.ioctl(self.fd, TUNGETIFF, bytes(40))
        return os.fsdecode(request[:16].split(b"\0")[0])

    def close(self) -> None:
        """Remove the interface; safe to call again."""
        if self.fd >= 0:
            for fd in (self.fd, *self.more):
                os.close(fd)
            self.fd, self.more = -1, ()


def _stays(name: str) -> bool:
    """Return whether the interface exists and is not the TUN of a process that died just now: the kernel
    ends such a TUN with its last pending read, a moment later."""
    deadline = time.monotonic() + DYING_S
    while _exists(name):
        if not Path(f"/sys/class/net/{name}/tun_flags").exists() or time.monotonic() > deadline:
            return True
        time.sleep(0.025)
    return False


def _exists(name: str) -> bool:
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True


def _open_node() -> int:
    try:
        return os.open(TUN_PATH, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _no_tun(error) from error


def _set_interface(fd: int, name: str, number: int, queues: int, kind: int = IFF_TUN) -> None:
    """Make `fd` queue `number` of the interface, whose frames begin with our header."""
    flags = kind | IFF_NO_PI | IFF_VNET_HDR | (IFF_MULTI_QUEUE if queues > 1 else 0)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    if number == 0:
        fcntl.ioctl(fd, TUNSETVNETHDRSZ, struct.pack("i", VNET_HEADER_BYTES))


def _check_queue(fd: int, name: str, *, is_multi: bool, persistent: bool, tap: bool) -> None:
    """Raise `LinkError` unless `fd` is a queue as `_set_interface` makes it."""
    try:
        request = fcntl.ioctl(fd, TUNGETIFF, bytes(40))
        header = fcntl.ioctl(fd, TUNGETVNETHDRSZ, bytes(4))
    except OSError as error:
        raise LinkError(f"{name}: {os.strerror(error.errno or 0)}") from error
    flags = IFF_TUN | IFF_TAP | IFF_NO_PI | IFF_VNET_HDR
    wanted = flags & ~(IFF_TUN if tap else IFF_TAP)
    wanted |= (IFF_MULTI_QUEUE if is_multi else 0) | (IFF_PERSIST if persistent else 0)
    has = struct.unpack_from("=H", request, 16)[0] & (flags | IFF_MULTI_QUEUE | IFF_PERSIST)
    if os.fsdecode(request[:16].split(b"\0")[0]) != name or has != wanted:
        raise LinkError(f"{name}: it is another interface")
    if struct.unpack("i", header)[0] != VNET_HEADER_BYTES or os.get_blocking(fd):
        raise LinkError(f"{name}: another program has opened it")


def _join_queue(fd: int, name: str, number: int, queues: int) -> None:
    """Make `fd` queue `number` of the persistent interface."""
    if not _exists(name):  # TUNSETIFF would create it
        raise _no_persistent(name)
    try:
        _set_interface(fd, name, number, queues)
    except OSError as error:
        raise _not_attached(name, queues, error) from error
    request = fcntl.ioctl(fd, TUNGETIFF, bytes(40))
    if not struct.unpack_from("=H", request, 16)[0] & IFF_PERSIST:
        raise _no_persistent(name)


def _no_persistent(name: str) -> NoSuchDevice:
    return NoSuchDevice(
        f"no persistent TUN {name!r} in this network namespace: make it with"
        f" `ip tuntap add {name} mode tun user USER`, or leave --tun attach out"
    )


def _not_attached(name: str, queues: int, error: OSError) -> IpoibuError:
    if error.errno == errno.EPERM:
        return NotPermitted(
            f"{name} belongs to another user: make it with"
            f" `ip tuntap add {name} mode tun user {os.geteuid()}`"
        )
    if error.errno == errno.EBUSY:
        return LinkError(f"{name}: another process is attached to this TUN")
    if error.errno == errno.EINVAL:
        other = (
            "has one queue: leave --queues out" if queues > 1 else "has multi_queue: use --queues"
        )
        return UsageError(f"{name} is not a TUN (`ip tuntap` lists them), or it {other}")
    return IpoibuError(f"{name}: {os.strerror(error.errno or 0)} while attaching to the TUN")


def _add_queue(kind: int, fd: int, name: str, number: int, queues: int) -> None:
    """Make `fd` queue `number` of the interface; queue 0 creates it."""
    # Check first: TUNSETIFF would silently attach to a persistent TUN device of that name.
    if number == 0 and _stays(name):
        raise NameTaken(name)
    try:
        _set_interface(fd, name, number, queues, kind)
    except OSError as error:
        if queues > 1 and (number > 0 or error.errno == errno.EINVAL):
            raise UsageError(
                f"{name}: the kernel refuses queue {number + 1} of {queues} of a TUN"
                f" ({os.strerror(error.errno or 0)}): leave --queues out, or ask for fewer"
            ) from error
        if error.errno in (errno.EBUSY, errno.EEXIST):
            raise NameTaken(name) from error
        raise _no_tun(error) from error


def _set_offload(fd: int, wanted: tuple[tuple[int, tuple[str, ...]], ...]) -> tuple[str, ...]:
    # The kernel itself does the work that it refuses to leave to us, and its vnet headers do not request
    # it.
    flags = 0
    granted: tuple[str, ...] = ()
    for flag, names in wanted:
        try:
            fcntl.ioctl(fd, TUNSETOFFLOAD, flags | flag)
        except OSError:
            continue
        flags, granted = flags | flag, granted + names
    return granted


def _no_tun(error: OSError) -> IpoibuError:
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return NoSuchDevice(
            f"{TUN_PATH} is missing: run `modprobe tun`, or in a container add --device {TUN_PATH}"
        )
    if error.errno in (errno.EPERM, errno.EACCES):
        return NotPermitted(
            f"creating a TUN interface through {TUN_PATH} needs CAP_NET_ADMIN: run as root"
        )
    return IpoibuError(f"{TUN_PATH}: {os.strerror(error.errno or 0)} while creating the interface")
