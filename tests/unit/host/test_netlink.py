# SPDX-License-Identifier: BSD-2-Clause
"""Against the kernel, as far as it needs no privilege, and against message bytes."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

import pytest
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from ipoibu.errors import LinkError, NoSuchDevice, NotPermitted
from ipoibu.host.netlink import Monitor, Netlink, Route, _refusal, _route, _split, _verdict


def test_the_loopback_interface_is_found_by_name_and_by_index() -> None:
    with Netlink() as netlink:
        found = netlink.link("lo")
        assert found is not None
        assert (found.name, found.index) == ("lo", socket.if_nametoindex("lo"))
        assert netlink.link(found.index) == found


def test_an_interface_that_is_not_there_is_none() -> None:
    with Netlink() as netlink:
        assert netlink.link("ib-not-there") is None
        assert netlink.link(1 << 30) is None
        assert netlink.addresses(1 << 30) == set()
        assert netlink.routes(1 << 30) == []


def test_a_broken_off_answer_does_not_reach_the_next_request() -> None:
    with Netlink() as netlink:
        assert netlink.link("ib-not-there") is None
        assert netlink.link("lo") is not None


# An NLMSG_ERROR for sequence 5 as Linux 6.18 sends it with NETLINK_CAP_ACK and NETLINK_EXT_ACK:
# header 16, error -101 (ENETUNREACH), request header 16, attribute 1 with the kernel's own words.
REFUSED = bytes.fromhex(
    "48000000 0200 0003 05000000 00000000"
    "9bffffff"
    "30000000 1800 0505 05000000 00000000"
    "2300 0100" + b"Nexthop has invalid gateway\0".hex() + "00000000"
)


def test_a_refusal_carries_the_error_and_the_kernels_words() -> None:
    (message,) = _split(REFUSED)
    assert message == (0, 2, 0x300, 5)
    assert _verdict(REFUSED, 0, 2, 0x300) == (errno.ENETUNREACH, "Nexthop has invalid gateway")


def test_an_acknowledgement_is_no_refusal() -> None:
    done = bytes.fromhex("24000000 0200 0001 05000000 00000000 00000000") + bytes(16)
    assert _verdict(done, 0, 2, 0x100) == (0, "")


def test_a_message_of_impossible_length_ends_the_datagram() -> None:
    assert list(_split(bytes(64))) == []
    assert list(_split(b"\x10\0\0")) == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EPERM, NotPermitted),
        (errno.ENODEV, NoSuchDevice),
        (errno.EACCES, LinkError),  # "IPv6 is disabled on this interface"
        (errno.ENETUNREACH, LinkError),
    ],
)
def test_each_refusal_has_its_family(code: int, kind: type[Exception]) -> None:
    error = _refusal(code, "adding route 10.0.0.0/8", "")
    assert type(error) is kind
    assert str(error).startswith("adding route 10.0.0.0/8")


def _answer(family: int, kind: int, attributes: list[Any], bits: int) -> Any:
    message = rtmsg()
    message["family"], message["type"], message["dst_len"] = family, kind, bits
    message["table"] = 254
    message["attrs"] = attributes
    message.encode()
    decoded = rtmsg(message.data)
    decoded.decode()
    return decoded


def test_a_route_without_destination_is_the_default_route() -> None:
    answer = _answer(socket.AF_INET, 1, [["RTA_OIF", 7], ["RTA_GATEWAY", "10.0.0.9"]], 0)
    assert _route(answer, 7) == Route(
        ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_address("10.0.0.9"), "unicast"
    )
    answer = _answer(socket.AF_INET6, 1, [["RTA_OIF", 7]], 0)
    assert _route(answer, 7) == Route(ipaddress.ip_network("::/0"), None, "unicast")


def test_an_ipv4_network_may_have_an_ipv6_gateway() -> None:
    via = {"family": socket.AF_INET6, "addr": "fe80::7"}
    attributes = [["RTA_OIF", 7], ["RTA_DST", "10.6.0.0"], ["RTA_VIA", via]]
    found = _route(_answer(socket.AF_INET, 1, attributes, 16), 7)
    assert found is not None
    assert found.via == ipaddress.ip_address("fe80::7")


def test_the_first_next_hop_over_our_interface_is_taken_and_the_others_are_counted() -> None:
    hops = [
        {"oif": 3, "hops": 0, "flags": 0, "attrs": [["RTA_GATEWAY", "10.3.0.1"]]},
        {"oif": 7, "hops": 0, "flags": 0, "attrs": [["RTA_GATEWAY", "10.7.0.1"]]},
        {"oif": 7, "hops": 0, "flags": 0, "attrs": [["RTA_GATEWAY", "10.7.0.2"]]},
    ]
    attributes = [["RTA_DST", "10.8.0.0"], ["RTA_MULTIPATH", hops]]
    answer = _answer(socket.AF_INET, 1, attributes, 16)
    found = _route(answer, 7)
    assert found is not None
    assert (found.via, found.paths) == (ipaddress.ip_address("10.7.0.1"), 3)
    assert _route(answer, 8) is None


@pytest.mark.parametrize("kind", [2, 4, 5, 7], ids=["local", "anycast", "multicast", "unreachable"])
def test_routes_whose_packets_never_reach_the_interface_are_left_out(kind: int) -> None:
    answer = _answer(socket.AF_INET, kind, [["RTA_OIF", 7], ["RTA_DST", "10.0.0.1"]], 32)
    assert _route(answer, 7) is None


def test_a_broadcast_route_keeps_its_kind() -> None:
    answer = _answer(socket.AF_INET, 3, [["RTA_OIF", 7], ["RTA_DST", "10.0.0.255"]], 32)
    found = _route(answer, 7)
    assert found is not None
    assert found.kind == "broadcast"


class Notices:
    """Stands for the monitor's socket: datagrams, errors, then nothing more."""

    def __init__(self, *waiting: bytes | OSError) -> None:
        self._waiting = list(waiting)

    def recv(self, size: int) -> bytes:
        if not self._waiting:
            raise BlockingIOError
        head = self._waiting.pop(0)
        if isinstance(head, OSError):
            raise head
        return head

    def close(self) -> None:
        pass


def _monitor(monkeypatch: pytest.MonkeyPatch, *waiting: bytes | OSError) -> Monitor:
    monitor = Monitor(0x0A0B0C0D)
    monitor.close()
    monkeypatch.setattr(monitor, "_socket", Notices(*waiting))
    return monitor


def test_a_notice_about_the_interface_is_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, bytes(20) + bytes.fromhex("0d0c0b0a") + bytes(8))
    assert monitor.changed()
    assert not monitor.changed()


def test_a_notice_about_another_interface_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    other = bytes(20) + bytes.fromhex("0e0c0b0a")
    unaligned = bytes(18) + bytes.fromhex("0d0c0b0a")
    assert not _monitor(monkeypatch, other, unaligned).changed()


def test_an_overrun_is_a_change_and_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, OSError(errno.ENOBUFS, "overrun"), bytes(32))
    assert monitor.changed()
    assert monitor.overruns == 1
    assert not monitor.changed()


def test_another_error_of_the_socket_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = _monitor(monkeypatch, OSError(errno.EBADF, "closed"))
    with pytest.raises(OSError, match="closed"):
        monitor.changed()
