# SPDX-License-Identifier: BSD-2-Clause
"""The host of sockets under drawn packets: no bytes of a peer raise anything, and nothing grows beyond its
cap."""

from __future__ import annotations

import socket
from ipaddress import IPv4Address
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from ipoibu.aio.address import Place
from ipoibu.aio.datagram_socket import Socket
from ipoibu.aio.host import Host
from ipoibu.base.limits import REASSEMBLY_BYTES
from ipoibu.wire import ip
from tests.unit.tables.sockets import quiet_host

OURS: Final = IPv4Address("10.0.0.1")
HOSTS: Final = st.integers(0x0A000000, 0x0A000003).map(IPv4Address)
PACKETS: Final = st.builds(
    ip.Ipv4,
    HOSTS,
    HOSTS,
    st.sampled_from((1, 2, 6, 17)),
    st.binary(max_size=100),
    more_fragments=st.booleans(),
    fragment_offset_bytes=st.sampled_from((0, 8, 16, 65528)),
    identification=st.integers(0, 2),
).map(ip.Ipv4.pack)
FLOWS: Final = st.binary(min_size=12, max_size=12) | st.binary(min_size=36, max_size=36)


def host_with_a_socket() -> Host:
    host = quiet_host()
    Socket(host, socket.AF_INET).bind(Place(OURS, 7000))
    return host


@given(st.lists(st.binary(max_size=300) | PACKETS, max_size=30))
def test_any_packets_end_somewhere(packets: list[bytes]) -> None:
    host = host_with_a_socket()
    host.dispatch(0.0, [(b"", packets)])
    assert host._reassembly.held_bytes <= REASSEMBLY_BYTES


@given(st.lists(st.tuples(FLOWS, st.lists(st.binary(max_size=50), min_size=1, max_size=3))))
def test_any_flows_end_somewhere(runs: list[tuple[bytes, list[bytes]]]) -> None:
    host_with_a_socket().dispatch(0.0, runs)
