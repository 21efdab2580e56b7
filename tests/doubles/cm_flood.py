# SPDX-License-Identifier: BSD-2-Clause
"""Asks one host for more connections than it grants one port, and prints the answers.

    python -m tests.doubles.cm_flood NETDEV HWADDR [linux|rfc|rdmacm] [COUNT]

runs on the built-in HCA of a net device that no other program uses, and prints how many requests the host
accepted and how many it refused. Use it only against your own hosts.
"""

from __future__ import annotations

import queue
import sys

from ipoibu._core import SoftHca
from ipoibu.base.addr import Gid, HwAddr, Qpn
from ipoibu.base.ib import Destination
from ipoibu.fabric.cm.gsi import SoftGsiPort
from ipoibu.fabric.cm.gsi_cm import GsiCm
from ipoibu.proto.cm.cm import CmConfig
from ipoibu.proto.rc.events import Connect, Ended, Event, Handle, Replied, Role
from ipoibu.wire.cm_private import Private, ServiceForm, service_id

_OURS = Private(Qpn(0x48), 65524)
_FIRST_QPN = 0x1000
_ANSWER_S = 90.0


def flood(netdev: str, victim: HwAddr, form: ServiceForm, count: int) -> tuple[int, int]:
    """Return how many of `count` requests the host accepted, and how many it refused."""
    hca = SoftHca(netdev)
    mtu_bytes = hca.active_mtu_bytes
    config = CmConfig(Gid(hca.gid), ca_guid=7, path_mtu_bytes=mtu_bytes)
    port = GsiCm(SoftGsiPort(hca), config)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    us = port.subscribe(frozenset(), events.put)
    to, service = Destination(victim.gid, victim.qpn), service_id(form, victim.qpn)
    for serial in range(count):
        handle, qpn = Handle(Role.ACTIVE, serial), Qpn(_FIRST_QPN + serial)
        port.request(us, Connect(handle, to, service, qpn, mtu_bytes, _OURS.pack()))
    outcomes = [events.get(timeout=_ANSWER_S) for _ in range(count)]
    port.close()
    hca.close()
    return sum(isinstance(it, Replied) for it in outcomes), sum(
        isinstance(it, Ended) for it in outcomes
    )


def main(netdev: str, hwaddr: str, form: str = "linux", count: str = "200") -> None:
    print(*flood(netdev, HwAddr.parse(hwaddr), ServiceForm[form.upper()], int(count)))


if __name__ == "__main__":
    main(*sys.argv[1:])
