# SPDX-License-Identifier: BSD-2-Clause
"""How the daemon reads and writes its TUN; a pair of sockets stands for it."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator

import pytest

from ipoibu import _core
from ipoibu.daemon import run
from ipoibu.host.tun import Tun


@pytest.fixture
def tun() -> Iterator[Tun]:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        ours.setblocking(False)
        yield Tun("ib0", ours.fileno(), ("csum", "tso4"))


def test_a_tun_goes_through_an_io_uring(tun: Tun) -> None:
    device = run._device(tun)
    assert isinstance(device, _core.TunRing)
    assert (device.fd, device.offload) == (tun.fd, tun.offload)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.ENOMEM])
def test_without_one_it_is_read_packet_by_packet(
    tun: Tun, number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_core, "TunRing", refuse)
    caplog.set_level(logging.INFO)
    device = run._device(tun)
    assert isinstance(device, _core.TunDevice)
    assert (device.fd, device.offload) == (tun.fd, tun.offload)
    assert (
        f"ib0: a system call for each packet, as there is no io_uring: [Errno {number}]"
        in caplog.text
    )


def test_several_queues_are_read_packet_by_packet(tun: Tun) -> None:
    tun.more = (tun.fd,)
    assert isinstance(run._device(tun), _core.TunQueues)
