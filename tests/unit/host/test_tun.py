# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno
import fcntl
import os
import socket

import pytest

from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted, UsageError
from ipoibu.host import tun
from ipoibu.host.tun import NameTaken, Tun


def _opening(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def refuse(path: str, flags: int) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (errno.ENOENT, NoSuchDevice, "modprobe tun"),
        (errno.ENODEV, NoSuchDevice, "modprobe tun"),
        (errno.EACCES, NotPermitted, "CAP_NET_ADMIN"),
        (errno.EMFILE, IpoibuError, "Too many open files"),
    ],
)
def test_a_tun_node_that_does_not_open_says_why_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[IpoibuError], word: str
) -> None:
    _opening(monkeypatch, code)
    with pytest.raises(kind, match=word):
        Tun.open("ib0")


class Ioctls:
    """A TUN node where the request in `refused` fails."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        refused: dict[int, int],
        known_offloads: int | None = None,
    ) -> None:
        self._known_offloads = known_offloads
        self.calls: list[tuple[int, bytes | int]] = []
        self.opened: list[int] = []
        self._refused = refused
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(fcntl, "ioctl", self.ioctl)

    def open(self, path: str, flags: int) -> int:
        assert flags & os.O_NONBLOCK
        assert flags & os.O_CLOEXEC
        left, right = socket.socketpair()
        right.close()
        self.opened.append(left.detach())
        return self.opened[-1]

    def ioctl(self, fd: int, request: int, argument: bytes | int) -> int:
        self.calls.append((request, argument))
        if request in self._refused:
            raise OSError(self._refused[request], "refused")
        if request == tun.TUNSETOFFLOAD and self._known_offloads is not None:
            assert isinstance(argument, int)
            if argument & ~self._known_offloads:
                raise OSError(errno.EINVAL, "unknown offload")
        return 0


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_the_interface_has_a_16_byte_vnet_header_and_no_packet_information(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Ioctls(monkeypatch, {})
    with Tun.open("ibtest0") as device:
        assert device.offload == ("csum", "tso4", "tso6", "ecn", "uso4", "uso6")
        fd = device.fd
    assert not _is_open(fd)
    device.close()
    name, size, *_, offload = node.calls
    # linux/if_tun.h: IFF_TUN 0x1 | IFF_NO_PI 0x1000 | IFF_VNET_HDR 0x4000, little-endian
    assert name == (0x400454CA, b"ibtest0".ljust(16, b"\0") + b"\x01\x50" + bytes(22))
    assert size == (0x400454D8, b"\x10\0\0\0")
    # TUN_F_CSUM 1, TSO4 2, TSO6 4, TSO_ECN 8, USO4 0x20, USO6 0x40
    assert offload == (0x400454D0, 0x6F)


@pytest.mark.parametrize(
    ("known", "granted"),
    [
        (0x6F, ("csum", "tso4", "tso6", "ecn", "uso4", "uso6")),
        (0x1F, ("csum", "tso4", "tso6", "ecn")),  # before Linux 6.2
        (0x67, ("csum", "tso4", "tso6", "uso4", "uso6")),
        (0x01, ("csum",)),
        (0x00, ()),
    ],
)
def test_what_a_kernel_refuses_is_done_without(
    monkeypatch: pytest.MonkeyPatch, known: int, granted: tuple[str, ...]
) -> None:
    node = Ioctls(monkeypatch, {}, known)
    with Tun.open("ibtest0") as device:
        assert device.offload == granted
    # The last granted request counts; refused requests change nothing.
    asked = [value for request, value in node.calls if request == tun.TUNSETOFFLOAD]
    taken = [value for value in asked if isinstance(value, int) and not value & ~known]
    assert taken[-1:] == ([known & ~0x10] if granted else [])


def test_super_frames_are_not_asked_for_when_they_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = Ioctls(monkeypatch, {})
    with Tun.open("ibtest0", super_frames=False) as device:
        assert device.offload == ("csum",)
    assert [value for request, value in node.calls if request == tun.TUNSETOFFLOAD] == [1]


@pytest.mark.parametrize(
    ("code", "kind"),
    [(errno.EPERM, NotPermitted), (errno.EBUSY, NameTaken), (errno.EINVAL, IpoibuError)],
)
def test_a_refused_creation_leaves_no_descriptor(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[IpoibuError]
) -> None:
    node = Ioctls(monkeypatch, {tun.TUNSETIFF: code})
    with pytest.raises(kind):
        Tun.open("ibtest0")
    assert not _is_open(node.opened[0])


def test_each_queue_is_a_descriptor_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Ioctls(monkeypatch, {})
    with Tun.open("ibtest0", queues=3) as device:
        assert (device.fd, *device.more) == tuple(node.opened)
    assert not any(_is_open(fd) for fd in node.opened)
    attached = [argument for request, argument in node.calls if request == tun.TUNSETIFF]
    # as above, and IFF_MULTI_QUEUE 0x100
    assert attached == [b"ibtest0".ljust(16, b"\0") + b"\x01\x51" + bytes(22)] * 3
    others = [request for request, _ in node.calls if request != tun.TUNSETIFF]
    assert others.count(tun.TUNSETVNETHDRSZ) == 1  # the size is the device's


@pytest.mark.parametrize("code", [errno.EINVAL, errno.E2BIG, errno.EBUSY])
def test_queues_that_the_kernel_refuses_are_a_clear_word(
    monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    node = Ioctls(monkeypatch, {})
    taken = 0 if code == errno.EINVAL else 2
    plain = node.ioctl

    def refuse(fd: int, request: int, argument: bytes | int) -> int:
        if request == tun.TUNSETIFF and len(node.opened) > taken:
            raise OSError(code, "refused")
        return plain(fd, request, argument)

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    with pytest.raises(UsageError, match=f"queue {taken + 1} of 4 .*leave --queues out"):
        Tun.open("ibtest0", queues=4)
    assert not any(_is_open(fd) for fd in node.opened)


def test_a_name_that_an_interface_has_already_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Ioctls(monkeypatch, {})
    with pytest.raises(NameTaken, match="'lo' exists already") as caught:
        Tun.open("lo")
    assert caught.value.exit_code == 1
    assert node.calls == []  # TUNSETIFF would attach to a persistent TUN of that name


@pytest.mark.parametrize(
    ("code", "kind", "word"),
    [
        (errno.EPERM, NotPermitted, "belongs to another user"),
        (errno.EBUSY, LinkError, "another process"),
        (errno.EINVAL, UsageError, "is not a TUN"),
        (errno.ENOMEM, IpoibuError, "Cannot allocate memory"),
    ],
)
def test_a_tun_that_refuses_to_be_attached_says_why(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[IpoibuError], word: str
) -> None:
    node = Ioctls(monkeypatch, {tun.TUNSETIFF: code})
    with pytest.raises(kind, match=word):
        Tun.attach("lo")
    assert not any(_is_open(fd) for fd in node.opened)


def test_attaching_creates_no_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Ioctls(monkeypatch, {})
    with pytest.raises(NoSuchDevice, match="no persistent TUN 'ibtest0'"):
        Tun.attach("ibtest0")
    assert node.calls == []
    assert not any(_is_open(fd) for fd in node.opened)
