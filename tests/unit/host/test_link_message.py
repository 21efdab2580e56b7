# SPDX-License-Identifier: BSD-2-Clause
"""Our messages to the kernel about links, addresses and routes are those that pyroute2 makes."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from ipoibu.base.addr import IpAddress
from ipoibu.host.address_message import address_body, read_interface
from ipoibu.host.link_message import (
    LinkEntry,
    link_change,
    link_request,
    new_bridge,
    new_veth,
    read_link,
)
from ipoibu.host.route_message import RTA_OIF, route_body, route_head, u32

MAC = "02:00:00:00:00:07"
OTHER_MAC = "02:00:00:00:00:08"
BRIDGE = [["IFLA_INFO_KIND", "bridge"]]
VETH_PEER = [["IFLA_IFNAME", "b"], ["IFLA_ADDRESS", OTHER_MAC], ["IFLA_NET_NS_FD", 5]]
VETH = [
    ["IFLA_INFO_KIND", "veth"],
    ["IFLA_INFO_DATA", {"attrs": [["VETH_INFO_PEER", {"attrs": VETH_PEER}]]}],
]
QUIET = {"attrs": [["AF_INET6", {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", 1]]}]]}


def encoded(kind: type, attributes: list[list[Any]], **fields: int) -> bytes:
    """The whole message, with its netlink header."""
    message = kind()
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = attributes
    message.encode()
    return bytes(message.data)


@pytest.mark.parametrize(
    ("ours", "attributes", "fields"),
    [
        (link_request(7), [], {"index": 7}),
        (link_request("ib0"), [["IFLA_IFNAME", "ib0"]], {}),
        (link_change(7, flags=1, change=1), [], {"index": 7, "flags": 1, "change": 1}),
        (
            link_change(7, mtu_bytes=2044, txqueuelen=256, master=9, addr_gen_mode=1),
            [
                ["IFLA_MTU", 2044],
                ["IFLA_TXQLEN", 256],
                ["IFLA_MASTER", 9],
                ["IFLA_AF_SPEC", QUIET],
            ],
            {"index": 7},
        ),
        (new_bridge("br0"), [["IFLA_IFNAME", "br0"], ["IFLA_LINKINFO", {"attrs": BRIDGE}]], {}),
        (
            new_veth("a", MAC, "b", OTHER_MAC, 5),
            [["IFLA_IFNAME", "a"], ["IFLA_ADDRESS", MAC], ["IFLA_LINKINFO", {"attrs": VETH}]],
            {},
        ),
    ],
)
def test_a_link_message_is_that_of_pyroute2(
    ours: bytes, attributes: list[list[Any]], fields: dict[str, int]
) -> None:
    assert ours.hex() == encoded(ifinfmsg, attributes, **fields)[16:].hex()


def test_the_longest_frames_are_those_of_ipv6_and_of_ipv4() -> None:
    """pyroute2 does not know IFLA_GSO_IPV4_MAX_SIZE, 63 in linux/if_link.h."""
    both = encoded(ifinfmsg, [["IFLA_GSO_MAX_SIZE", 64344]], index=7)[16:] + u32(63, 65004)
    assert link_change(7, frame_bytes=(65004, 64344)).hex() == both.hex()


@pytest.mark.parametrize(
    ("hwaddr", "master", "allmulti", "forwarding", "mode"),
    [(None, None, None, None, None), (MAC, 3, 1, 1, 3), (MAC, 3, 0, 0, 0)],
)
def test_a_link_is_read(
    hwaddr: str | None,
    master: int | None,
    allmulti: int | None,
    forwarding: int | None,
    mode: int | None,
) -> None:
    attributes: list[list[Any]] = [["IFLA_IFNAME", "ib0"], ["IFLA_MTU", 2044]]
    message = encoded(ifinfmsg, attributes, index=7, flags=1)
    if hwaddr is not None and master is not None:
        attributes += [["IFLA_ADDRESS", hwaddr], ["IFLA_MASTER", master]]
        attributes.append(["IFLA_GSO_MAX_SIZE", 64344])
        message = encoded(ifinfmsg, attributes, index=7, flags=1)
        conf = u32(2, forwarding or 0) + bytes((5, 0, 8, 0, mode or 0, 0, 0, 0))
        ipv6 = bytes((4 + len(conf), 0, 10, 0)) + conf
        message += u32(61, allmulti or 0) + bytes((4 + len(ipv6), 0, 26, 0)) + ipv6
        message = len(message).to_bytes(4, "little") + message[4:]
    expected = LinkEntry(
        7,
        1,
        "ib0",
        2044,
        hwaddr,
        master,
        bool(allmulti),
        bool(forwarding),
        mode,
        None if hwaddr is None else 64344,
    )
    assert read_link(b"front" + message, 5) == expected


@pytest.mark.parametrize("text", ["10.0.0.1/24", "10.0.0.1/31", "fd00::1/64"])
@pytest.mark.parametrize("flags", [0, 2])
def test_an_address_message_is_that_of_pyroute2_and_is_read(text: str, flags: int) -> None:
    address = ipaddress.ip_interface(text)
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    ip = str(address.ip)
    attributes: list[list[Any]] = [["IFA_LOCAL", ip], ["IFA_ADDRESS", ip]]
    broadcast = None
    if text == "10.0.0.1/24":
        broadcast = ipaddress.IPv4Address("10.0.0.255")
        attributes.append(["IFA_BROADCAST", str(broadcast)])
    life = {"ifa_preferred": 60, "ifa_valid": 90, "cstamp": 0, "tstamp": 0}
    attributes.append(["IFA_CACHEINFO", life])
    fields = {"family": family, "index": 7, "flags": flags, "prefixlen": address.network.prefixlen}
    theirs = encoded(ifaddrmsg, attributes, **fields)
    ours = address_body(7, address, broadcast=broadcast, flags=flags, lifetimes_s=(60, 90))
    assert ours.hex() == theirs[16:].hex()
    assert read_interface(theirs, 0) == (7, address, flags)


def test_the_local_address_of_a_point_to_point_link_and_the_long_flags_are_read() -> None:
    attributes: list[list[Any]] = [
        ["IFA_ADDRESS", "10.0.0.2"],
        ["IFA_LOCAL", "10.0.0.1"],
        ["IFA_FLAGS", 0x880],
    ]
    message = encoded(
        ifaddrmsg, attributes, family=socket.AF_INET, index=7, prefixlen=32, flags=128
    )
    assert read_interface(message, 0) == (7, ipaddress.ip_interface("10.0.0.1/32"), 0x880)


@pytest.mark.parametrize(
    ("network", "via", "scope"),
    [
        ("10.1.0.0/16", None, 253),
        ("10.1.0.0/16", "10.0.0.254", 0),
        ("0.0.0.0/0", "10.0.0.254", 0),
        ("10.1.0.0/16", "fe80::1", 0),
        ("fd01::/64", None, 0),
        ("::/0", "fe80::1", 0),
    ],
)
@pytest.mark.parametrize("metric", [None, 100])
def test_a_route_message_is_that_of_pyroute2(
    network: str, via: str | None, scope: int, metric: int | None
) -> None:
    to = ipaddress.ip_network(network)
    gateway: IpAddress | None = ipaddress.ip_address(via) if via is not None else None
    attributes: list[list[Any]] = [["RTA_OIF", 7]]
    if to.prefixlen:
        attributes.append(["RTA_DST", str(to.network_address)])
    if gateway is not None and gateway.version == to.version:
        attributes.append(["RTA_GATEWAY", via])
    elif gateway is not None:
        attributes.append(["RTA_VIA", {"family": socket.AF_INET6, "addr": via}])
    if metric is not None:
        attributes.append(["RTA_PRIORITY", metric])
    fields = {
        "family": socket.AF_INET if to.version == 4 else socket.AF_INET6,
        "dst_len": to.prefixlen,
        "table": 254,
        "proto": 16,
        "type": 1,
        "scope": scope,
        "flags": 4,
    }
    ours = route_body(7, to, gateway, 16, flags=4, metric=metric)
    assert ours.hex() == encoded(rtmsg, attributes, **fields)[16:].hex()


def test_a_question_for_routes_is_that_of_pyroute2() -> None:
    ours = route_head(socket.AF_INET6) + u32(RTA_OIF, 7)
    theirs = encoded(rtmsg, [["RTA_OIF", 7]], family=socket.AF_INET6)
    assert ours.hex() == theirs[16:].hex()
