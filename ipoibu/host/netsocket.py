# SPDX-License-Identifier: BSD-2-Clause
"""A blocking netlink socket: sequence numbers, dumps, and errors with the kernel's reasons.

The route sync has to notice an overrun (ENOBUFS), which libraries for netlink hide.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

from ipoibu.base.closing import Closing
from ipoibu.base.errors import LinkError, NoSuchDevice, NotPermitted
from ipoibu.host.namespace import HERE, Namespace

# linux/netlink.h
SOL_NETLINK: Final = 270
NETLINK_CAP_ACK: Final = 10
NETLINK_EXT_ACK: Final = 11
NETLINK_GET_STRICT_CHK: Final = 12
NLM_F_REQUEST: Final = 0x001
NLM_F_MULTI: Final = 0x002
NLM_F_ACK: Final = 0x004
NLM_F_DUMP_INTR: Final = 0x010
NLM_F_ACK_TLVS: Final = 0x200
NLM_F_DUMP: Final = 0x300
NLM_F_REPLACE: Final = 0x100
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLM_F_APPEND: Final = 0x800
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
NLMSGERR_ATTR_MSG: Final = 1

RECEIVE_BYTES: Final = 1 << 17  # more than the 32 KiB of the largest part of a dump
# The kernel's state may change during a dump: repeat it, and accept the last.
_DUMP_TRIES: Final = 16


class NetlinkSocket(Closing):
    """A blocking rtnetlink socket of a network namespace, for one thread.

    In another namespace than the thread's, each exchange has a socket of its own.
    """

    def __init__(self, namespace: Namespace = HERE) -> None:
        self.namespace = namespace
        self._kept = _open(namespace) if namespace.is_here else None
        self._sequence = 0
        self.was_interrupted = False

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()

    def ask(self, kind: int, flags: int, body: bytes, action: str) -> list[tuple[bytes, int]]:
        """Return all answers of `exchange`."""
        return list(self.exchange(kind, flags, body, action))

    def exchange(
        self, kind: int, flags: int, body: bytes, action: str
    ) -> Iterator[tuple[bytes, int]]:
        """Send a message, which is `body` behind its netlink header, and yield (datagram, offset) of each
        answer. `action` begins the text of an error.

        Afterwards `was_interrupted` says whether the kernel's state changed during a dump.
        """
        self.was_interrupted = False
        self._sequence += 1
        length, flags = 16 + len(body), NLM_F_REQUEST | flags
        message = struct.pack("=IHHII", length, kind, flags, self._sequence, 0) + body
        if self._kept is None:
            return self._exchange_once(message, action)
        with _errors_of(action):
            self._kept.send(message)
        return self._answers(self._kept, action)

    def _exchange_once(self, message: bytes, action: str) -> Iterator[tuple[bytes, int]]:
        with _errors_of(action):
            opened = _open(self.namespace)
        with opened:
            with _errors_of(action):
                opened.send(message)
            yield from self._answers(opened, action)

    def exchange_all(self, kind: int, body: bytes, action: str) -> list[tuple[bytes, int]]:
        """Return all answers to a dump, which the method repeats if the kernel's state changed meanwhile."""
        for _ in range(_DUMP_TRIES):
            answers = list(self.exchange(kind, NLM_F_DUMP, body, action))
            if not self.was_interrupted:
                break
        return answers

    def _answers(self, opened: socket.socket, action: str) -> Iterator[tuple[bytes, int]]:
        while True:
            with _errors_of(action):
                data = opened.recv(RECEIVE_BYTES)
            for offset, kind, flags, sequence in split(data):
                if sequence != self._sequence:
                    continue  # a late answer to a request that failed
                self.was_interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    code, reason = verdict(data, offset, kind, flags)
                    if code:
                        raise refusal(code, action, reason)
                    return
                yield data, offset
                if not flags & NLM_F_MULTI:  # with the flag more messages follow, up to NLMSG_DONE
                    return


@contextlib.contextmanager
def _errors_of(action: str) -> Iterator[None]:
    """Have errors of the socket itself, which may be closed, say what failed."""
    try:
        yield
    except OSError as error:
        raise refusal(error.errno or errno.EIO, action, "") from error


def _open(namespace: Namespace) -> socket.socket:
    opened = namespace.netlink_socket()
    try:
        # With strict checking (Linux 4.20) the kernel filters dumps by interface.
        for option in (NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK):
            opened.setsockopt(SOL_NETLINK, option, 1)
        opened.bind((0, 0))
    except BaseException:
        opened.close()
        raise
    return opened


def split(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield (offset, type, flags, sequence) of each message in a datagram."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, flags, sequence = struct.unpack_from("=IHHI", data, offset)
        if length < 16:
            return
        yield offset, kind, flags, sequence
        offset += (length + 3) & ~3


def verdict(data: bytes, offset: int, kind: int, flags: int) -> tuple[int, str]:
    """Return the errno (0: success) of an NLMSG_ERROR or NLMSG_DONE, and the kernel's text, which may be
    empty."""
    (length,) = struct.unpack_from("=I", data, offset)
    if length < 20:
        return 0, ""
    (code,) = struct.unpack_from("=i", data, offset + 16)
    reason = ""
    if flags & NLM_F_ACK_TLVS:
        at = offset + 20 + (16 if kind == NLMSG_ERROR else 0)  # NETLINK_CAP_ACK: header only
        for attribute, value in attributes(data, at, offset + length):
            if attribute == NLMSGERR_ATTR_MSG:
                reason = value.rstrip(b"\0").decode(errors="replace")
    return -code, reason


def attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of the attributes from `at` to `end`, up to one that makes no sense."""
    while at + 4 <= min(end, len(data)):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + size]
        at += (size + 3) & ~3


def refusal(code: int, action: str, reason: str) -> LinkError | NoSuchDevice | NotPermitted:
    text = os.strerror(code) + (f" ({reason})" if reason else "")
    if code in (errno.EPERM, errno.EACCES):
        # The kernel answers EACCES also if IPv6 is disabled on this interface.
        if code == errno.EPERM:
            return NotPermitted(f"{action} needs CAP_NET_ADMIN: run as root")
    elif code == errno.ENODEV:
        return NoSuchDevice(f"{action}: no such interface")
    error = LinkError(f"{action}: {text}")
    error.__cause__ = OSError(code, text)
    return error


def refused_with(error: LinkError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None
