# SPDX-License-Identifier: BSD-2-Clause
"""The promises of `Port` and `Fabric` (ipoibu/fabric/base.py), as checks for any device's port."""

from __future__ import annotations

import ipaddress
import time
from typing import Final

import pytest

from ipoibu import Endpoint, EndpointConfig
from ipoibu.base.addr import MULTICAST_QPN, Gid, PKey
from ipoibu.base.errors import IpoibuError, LinkError, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.base import Fabric, MeshOptions, Port
from ipoibu.wire import mgid

PARAMS: Final = PartitionParams(pkey=PKey(0xFFFF), qkey=0x0B1B, mtu_bytes=2048)
GROUP: Final = mgid.broadcast(PARAMS.pkey)
OTHER: Final = Gid.parse("ff12:401b:ffff::1")
WAIT_S: Final = 60.0


def check_port(port: Port) -> None:
    """Check the control side of an open port, and close it."""
    info, capabilities = port.info, port.capabilities
    assert info.device
    assert info.port >= 1
    assert not info.gid.is_multicast
    assert info.guid == info.gid.interface_id
    assert type(port.active()) is bool
    assert type(port.may_control()) is bool
    if capabilities.rc:
        fabric = port.open_connected(PARAMS)
        _check_fabric(fabric)
        _check_connection(fabric)
        fabric.close()
    else:
        for refused in (port.cm, port.open_gsi, lambda: port.open_connected(PARAMS)):
            with pytest.raises(LinkError, match=info.device):
                refused()
    if capabilities.mesh:
        fabric = port.open_mesh(PARAMS, MeshOptions())
        _check_fabric(fabric)
        fabric.close()
    else:
        with pytest.raises(UsageError, match=info.device):
            port.open_mesh(PARAMS, MeshOptions())
    fabric = port.open_ud(PARAMS)
    _check_fabric(fabric)
    if capabilities.tx_queues:
        tx_queues = fabric.open_tx_queues(2)
        natives = [fabric.native, *(tx_queue.native for tx_queue in tx_queues)]
        assert len(set(map(id, natives))) == 3
    else:
        with pytest.raises(LinkError):
            fabric.open_tx_queues(1)
    if not capabilities.rc:
        with pytest.raises(LinkError):
            fabric.open_connection()
    for _ in range(2):
        fabric.close()
    port.close()


def _check_fabric(fabric: Fabric) -> None:
    assert 1 < fabric.qpn < MULTICAST_QPN
    assert fabric.native is not None
    assert fabric.event_fd is None or fabric.event_fd >= 0
    for mgid_ in (GROUP, OTHER, GROUP):  # the caller may attach a group again
        fabric.attach(mgid_)
    fabric.attach(OTHER, 0xC001)  # with another LID
    for _ in range(2):  # at the second call it is not attached any more
        fabric.detach(GROUP)
    fabric.listen(lambda _hwaddr, _addresses: None, lambda _hwaddr: None)
    fabric.announce([ipaddress.ip_address("10.0.0.1")])
    assert fabric.peers() == []
    counters = fabric.counters()
    assert {type(name) for name in counters} <= {str}
    assert {type(count) for count in counters.values()} <= {int}


def _check_connection(fabric: Fabric) -> None:
    connection = fabric.open_connection()
    assert connection.qpn > 1
    assert connection.native is not None
    assert connection.retries in (None, 0)
    connection.stop()
    for _ in range(2):
        connection.close()


def check_packets(a: Port, b: Port) -> None:
    """Check the packet side: endpoints on two ports of one link exchange unicasts and multicasts."""
    group = ipaddress.ip_address("224.1.2.3")
    with (
        Endpoint(EndpointConfig("a", a.info.device), port=a) as first,
        Endpoint(EndpointConfig("b", b.info.device), port=b) as second,
    ):
        first.address_added(ipaddress.ip_interface("10.0.0.1/24"))
        second.address_added(ipaddress.ip_interface("10.0.0.2/24"))
        second.join(group)
        for address in ("10.0.0.2", str(group)):
            _passes(first, second, _packet("10.0.0.1", address))
        _passes(second, first, _packet("10.0.0.2", "10.0.0.1"))


def _packet(source: str, target: str) -> bytes:
    """Return an IPv4 packet of an experimental protocol."""
    head = bytes.fromhex("4500001c0000000040fd0000")
    ends = b"".join(ipaddress.ip_address(text).packed for text in (source, target))
    return head + ends + b"contract"


def _passes(source: Endpoint, target: Endpoint, packet: bytes) -> None:
    """Send the packet until it arrives; the link comes up and resolves meanwhile."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        source.send([packet])
        if packet in target.recv(timeout=0.1):
            return
    raise IpoibuError(f"{packet[16:20].hex()}: nothing arrived within {WAIT_S} s")
