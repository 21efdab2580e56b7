# SPDX-License-Identifier: BSD-2-Clause
"""The communication manager's thread, on a queue pair 1 that never runs dry."""

from __future__ import annotations

import os
import threading

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.ib import Destination
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.proto.cm.cm import CmConfig, MadSource
from ipoibu.wire.mad import MAD_LEN

WAIT_S = 20.0


class Flood:
    """Always has another datagram, until `dry` is set."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.dry = threading.Event()
        self.flowing = threading.Event()

    @property
    def address(self) -> tuple[Gid, int]:
        return Gid(bytes(16)), 0

    def wait_ms(self) -> float | None:
        return None

    def arm(self) -> None:
        pass

    def send(self, destination: Destination, pkey: PKey, raw: bytes) -> bool:
        return True

    def receive(self) -> tuple[MadSource, bytes] | None:
        self.flowing.set()
        return None if self.dry.is_set() else (MadSource(Qpn(1), None), bytes(MAD_LEN))

    def close(self) -> None:
        os.close(self.fd)


def test_a_flood_of_datagrams_does_not_keep_interfaces_waiting() -> None:
    flood = Flood()
    config = CmConfig(
        gid=Gid(bytes(16)),
        ca_guid=1,
        path_mtu_bytes=1024,
        ack_timeout=14,
        connection_retries=7,
        rnr_retries=7,
    )
    cm = GsiCm(flood, config)
    served = threading.Event()

    def subscribe() -> None:
        cm.subscribe(frozenset({1}), lambda event: None)
        served.set()

    thread = threading.Thread(target=subscribe)
    try:
        assert flood.flowing.wait(WAIT_S)
        thread.start()
        assert served.wait(WAIT_S)  # during the flood
    finally:
        flood.dry.set()
        thread.join()
        cm.close()
