# SPDX-License-Identifier: BSD-2-Clause
"""How the daemon reads and writes its TUN; a pair of sockets stands for it."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator

import pytest

from ipoibu import _core
from ipoibu.daemon import daemon as run
from ipoibu.host.tun import Tun


@pytest.fixture
def tun() -> Iterator[Tun]:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        ours.setblocking(False)
        yield Tun("ib0", ours.fileno(), ("csum", "tso4"))


def refuse(number: int) -> Callable[..., None]:
    def make(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return make


def test_a_tun_goes_through_an_io_uring(tun: Tun) -> None:
    device = run._device(tun)
    assert isinstance(device, _core.TunRing)
    assert (device.fd, device.offload, device.owned) == (tun.fd, tun.offload, True)
    tun.owned = False
    assert not run._device(tun).owned


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.ENOMEM])
def test_without_one_it_is_read_packet_by_packet(
    tun: Tun, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(_core, "TunRing", refuse(number))
    caplog.set_level(logging.INFO)
    device = run._device(tun)
    assert isinstance(device, _core.TunDevice)
    assert (device.fd, device.offload) == (tun.fd, tun.offload)
    assert (
        f"ib0: the pump makes a system call for each packet of the TUN, as io_uring failed: [Errno {number}]"
        in caplog.text
    )


@pytest.mark.parametrize("has_ring", [True, False])
def test_several_queues_are_read_alike(
    tun: Tun, has_ring: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tun.more = (os.dup(tun.fd), os.dup(tun.fd))
    kind: type[object] = _core.TunRing
    if not has_ring:
        kind = _core.TunDevice
        monkeypatch.setattr(_core, "TunRing", refuse(errno.EPERM))
    device = run._device(tun)
    assert [type(one) for one in (device, *device.others)] == [kind] * 3
    assert [(one.fd, one.offload) for one in (device, *device.others)] == [
        (fd, tun.offload) for fd in (tun.fd, *tun.more)
    ]
    for fd in tun.more:
        os.close(fd)
