# SPDX-License-Identifier: BSD-2-Clause
"""A simulated link in real time, whose hosts have the kernel's TUN and TAP devices in namespaces.

So kernels, DHCP programs and bridges judge the engine alone, without the C core.
"""

from __future__ import annotations

import fcntl
import os
import selectors
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, Self

from ipoibu.base.errors import BadFrame
from ipoibu.host.tun import IFF_NO_PI, IFF_TUN, TUNSETIFF
from ipoibu.lab.namespace import LabNamespace
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.wire import ip, udp
from tests.doubles.ethernet_host import EthernetHost
from tests.doubles.simulation import TEMPLATE, Host, Simulation

IFF_TAP: Final = 0x0002
MTU: Final = 2044
_TICK_S: Final = 0.002


def _device(namespace: LabNamespace, name: str, mode: int) -> int:
    def make() -> int:
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), mode | IFF_NO_PI))
        return fd

    return namespace.inside(make)


class SlowLink:
    """Runs until the end of the `with` block; all calls go to its thread."""

    def __init__(self) -> None:
        self.simulation = Simulation(1)
        self._selector = selectors.DefaultSelector()
        self._lock = threading.RLock()
        self._is_over = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self._fds: list[int] = []
        self._hosts: dict[int, EthernetHost] = {}
        self._written: list[Callable[[], None]] = []
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        self._thread.join()
        for fd in self._fds:
            os.close(fd)
        if self._failure is not None:
            raise self._failure

    def call(self, what: Callable[[], Any]) -> Any:
        """Run `what` while the link stands still."""
        with self._lock:
            return what()

    def tap(self, namespace: LabNamespace, config: EthernetConfig | None = None) -> EthernetHost:
        """Make the TAP `ib0` of a host with Ethernet hand-off."""
        fd = _device(namespace, "ib0", IFF_TAP)
        self._fds.append(fd)
        return self.call(lambda: self._plug(fd, config or EthernetConfig()))  # type: ignore[no-any-return]

    def restart(self, host: EthernetHost) -> EthernetHost:
        """Kill the engine, and start another one with another queue pair on the same TAP."""

        def again() -> EthernetHost:
            fd = next(it for it, key in self._hosts.items() if key is host)
            host.kill()
            self._selector.unregister(fd)
            return self._plug(fd, EthernetConfig())

        return self.call(again)  # type: ignore[no-any-return]

    def tun(self, namespace: LabNamespace, *addresses: str) -> Host:
        """Make the TUN `ib0` of an ordinary host with these addresses."""
        fd = _device(namespace, "ib0", IFF_TUN)
        self._fds.append(fd)

        def plug() -> Host:
            host = self.simulation.host(*addresses)
            self._selector.register(fd, selectors.EVENT_READ, lambda: _read_tun(fd, host))
            self._written.append(lambda: _write_tun(fd, host))
            return host

        return self.call(plug)  # type: ignore[no-any-return]

    def _plug(self, fd: int, config: EthernetConfig) -> EthernetHost:
        template = replace(TEMPLATE, ethernet=config)
        host = self.simulation.plug(EthernetHost, template)
        host.open(lambda raw: _write(fd, raw))
        host.start()
        self._hosts[fd] = host
        self._selector.register(fd, selectors.EVENT_READ, lambda: _read_tap(fd, host))
        return host

    def _run(self) -> None:
        try:
            while not self._is_over:
                ready = self._selector.select(_TICK_S)
                with self._lock:
                    for key, _ in ready:
                        key.data()
                    self.simulation.run(time.monotonic() - self._start - self.simulation.now)
                    for write in self._written:
                        write()
                if not ready:
                    time.sleep(_TICK_S)
        except BaseException as error:
            self._failure = error


def _read(fd: int) -> list[bytes]:
    packets: list[bytes] = []
    with suppress(BlockingIOError, OSError):  # OSError: the device is down
        while len(packets) < 64:
            packets.append(os.read(fd, 65536))
    return packets


def _write(fd: int, raw: bytes) -> None:
    with suppress(OSError):  # the device is down, or full
        os.write(fd, raw)


def _read_tap(fd: int, host: EthernetHost) -> None:
    for raw in _read(fd):
        host.guest(raw)


def _read_tun(fd: int, host: Host) -> None:
    for raw in _read(fd):
        try:
            packet = ip.parse_untrusted(raw)
            upper = packet.upper_untrusted()
        except BadFrame:
            continue
        is_dhcp = upper.protocol == udp.PROTOCOL and upper.payload[2:4] == bytes((0, 67))
        is_report = upper.protocol == ip.IGMP or (
            upper.protocol == ip.ICMPV6 and upper.payload[0] in (131, 132, 143)
        )
        if is_dhcp or is_report:
            host.report(raw)
        else:
            host.send(raw)


def _write_tun(fd: int, host: Host) -> None:
    for packets in (host.received, host.delivered):
        for raw in packets:
            _write(fd, raw)
        packets.clear()
