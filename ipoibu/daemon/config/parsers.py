# SPDX-License-Identifier: BSD-2-Clause
"""Readers of option texts. Each returns the value, or raises a `UsageError` of one line.

This module imports modules that load the C core or netlink only when a text needs them, because the
command line imports it at every start.
"""

from __future__ import annotations

import contextlib
import enum
import ipaddress
import os
import re
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipoibu.base.addr import IpAddress, IpInterface, IpNetwork, Mac, PKey
from ipoibu.base.bounds import Choice
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import VLAN_MAX
from ipoibu.endpoint.config import BUSY_POLL

if TYPE_CHECKING:
    from ipoibu.daemon.metrics.metrics_server import ListenAddress
    from ipoibu.fabric.faults import FaultSpec
    from ipoibu.fabric.mesh.peer_key import PeerKey
    from ipoibu.host.kernel_interface import RouteSpec
    from ipoibu.host.netns import NetworkNamespace
    from ipoibu.sandbox.stages import Stage
    from ipoibu.sandbox.user import User

SWITCH: Final = Choice("switch", ("on", "off"))


class Dynamic(enum.StrEnum):
    """The protocol that yields an address that the administrator does not give."""

    DHCP = "dhcp"
    DHCP6 = "dhcp6"


def without_clients(addresses: Iterable[IpInterface | Dynamic]) -> list[IpInterface]:
    """Return the addresses that the administrator gives."""
    return [each for each in addresses if not isinstance(each, Dynamic)]


def clients_differ(before: Sequence[object] | None, after: Sequence[object] | None) -> bool:
    """Return whether a client of DHCP begins or ends, as it does with the interface alone."""
    one, other = ({it for it in each or () if isinstance(it, Dynamic)} for each in (before, after))
    return one != other


class Proxied(enum.StrEnum):
    """Says what an interface answers for, besides networks."""

    ROUTES = "routes"


def parse_guest(text: str) -> tuple[Mac, tuple[IpAddress, ...]]:
    """Read the addresses that an administrator binds to a guest: `52:54:00:12:34:56=10.0.0.7,fd00::7`."""
    mac, equals, addresses = text.partition("=")
    if not equals or not addresses:
        raise UsageError(f"{text!r} is no guest (expected such as 52:54:00:12:34:56=10.0.0.7)")
    return Mac.parse(mac), tuple(parse_neighbour(each) for each in addresses.split(","))


def parse_vlan(text: str) -> tuple[int, PKey]:
    """Read a VLAN with its partition: `10=0x8001`; the partition's membership is full."""
    vlan, equals, pkey = text.partition("=")
    if not equals or not re.fullmatch(r"[0-9]{1,4}", vlan) or not 1 <= int(vlan) <= VLAN_MAX:
        raise UsageError(
            f"{text!r} is no VLAN with its partition (expected such as 10=0x8001; VLANs are 1 to {VLAN_MAX})"
        )
    return int(vlan), PKey.parse(pkey).full


def show_guest(guest: tuple[Mac, tuple[IpAddress, ...]]) -> str:
    """Write what `parse_guest` reads."""
    mac, ips = guest
    return f"{mac}={','.join(map(str, ips))}"


def show_vlan(vlan: tuple[int, PKey]) -> str:
    """Write what `parse_vlan` reads."""
    return f"{vlan[0]}={vlan[1]}"


def parse_neighbour(text: str) -> IpAddress:
    """Read the address of one host, without a prefix length."""
    ip = parse_ip(text, "no address (expected such as 10.0.0.9)", "--device")
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback:
        raise UsageError(f"{text!r} is not the address of a neighbour")
    return ip


def parse_address(text: str) -> IpInterface | Dynamic:
    """Read a host address with its prefix length, `10.0.0.1/24` or `fd00::1/64`, or `dhcp` or `dhcp6`."""
    if text in tuple(Dynamic):
        return Dynamic(text)
    try:
        address = ipaddress.ip_interface(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no address in CIDR form (expected such as 10.0.0.1/24 or fd00::1/64, dhcp"
            " or dhcp6)"
        ) from error
    _check_zone(text, repr(text))
    if "/" not in text:
        raise UsageError(f"{text!r} lacks a prefix length (expected such as {text}/24)")
    ip = address.ip  # `is_multicast` and the like of an `ip_interface` describe its network
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback:
        raise UsageError(f"{text!r} cannot be an interface's address")
    if ip.version == 6 and ip.ipv4_mapped is not None:
        raise UsageError(f"{text!r} is an IPv4-mapped address: give {ip.ipv4_mapped} instead")
    _check_place(address, text)
    return address


def _check_place(address: IpInterface, text: str) -> None:
    """Refuse the addresses of IPv4 that stand for a network or for all of its hosts."""
    ip, network = address.ip, address.network
    if ip.version == 6:
        return
    if ip in ipaddress.IPv4Network("0.0.0.0/8"):
        raise UsageError(f"{text!r}: no host has an address of 0.0.0.0/8 (RFC 1122)")
    if ip == ipaddress.IPv4Address("255.255.255.255"):
        raise UsageError(f"{text!r} is the broadcast address of every network, not a host's")
    if network.prefixlen <= 30 and ip == network.network_address:
        raise UsageError(f"{text!r} is the address of the network {network}, not a host's")
    if network.prefixlen <= 30 and ip == network.broadcast_address:
        raise UsageError(f"{text!r} is the broadcast address of {network}, not a host's")


def parse_route(text: str) -> RouteSpec:
    """Read `DST[,via=GW]`, where DST is a network in CIDR form or `default`."""
    from ipoibu.host.kernel_interface import RouteSpec

    destination, *options = text.split(",")
    _check_zone(text, f"route {text!r}")
    via = None
    for option in options:
        key, _, value = option.partition("=")
        if key != "via" or via is not None:
            raise UsageError(f"route {text!r}: {option!r} is not understood (expected via=GATEWAY)")
        try:
            via = ipaddress.ip_address(value)
        except ValueError as error:
            raise UsageError(f"route {text!r}: the gateway {value!r} is no address") from error
        if via.is_multicast or via.is_unspecified:
            raise UsageError(f"route {text!r}: {value!r} cannot be a gateway")
    if destination == "default":
        destination = "::/0" if via is not None and via.version == 6 else "0.0.0.0/0"
    try:
        network = ipaddress.ip_network(destination)
    except ValueError as error:
        raise UsageError(
            f"route {text!r}: {destination!r} is no network in CIDR form"
            " (expected such as 10.1.0.0/16, without host bits)"
        ) from error
    if via is not None and via.version == 4 and network.version == 6:
        raise UsageError(f"route {text!r}: an IPv6 network cannot go via an IPv4 gateway")
    return RouteSpec(network, via)


def parse_proxy(text: str) -> IpNetwork | Proxied:
    """Read an address, a network in CIDR form or `routes`."""
    if text == Proxied.ROUTES.value:
        return Proxied.ROUTES
    _check_zone(text, f"proxy {text!r}")
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(
            f"proxy {text!r} is neither an address nor a network in CIDR form nor `routes`"
            " (expected such as 10.1.0.0/16, without host bits)"
        ) from error
    first = network.network_address
    is_host = network.num_addresses > 1 or not first.is_unspecified
    if first.is_multicast or first.is_loopback or not is_host:
        raise UsageError(f"proxy {text!r}: no host has such an address")
    if network.is_link_local:
        raise UsageError(f"proxy {text!r}: link-local addresses are on the link, not behind it")
    return network


def _check_zone(text: str, place: str) -> None:
    if "%" in text:
        raise UsageError(f"{place}: remove the %zone: addresses always belong to this interface")


def parse_netns(text: str) -> NetworkNamespace:
    """Read a network namespace: a name, a path or a process."""
    from ipoibu.host.netns import NetworkNamespace

    return NetworkNamespace.parse(text)


def parse_peer(text: str) -> str:
    """Check HOST[:PORT], and return it unchanged: the mesh resolves the name later."""
    from ipoibu.fabric.mesh import peer_list

    peer_list.parse_peer(text)
    return text


def parse_peer_key(text: str) -> PeerKey:
    """Name the file, which `up` reads before it gives up its rights."""
    from ipoibu.fabric.mesh.peer_key import PeerKey

    return PeerKey(parse_file(text))


def parse_faults(text: str) -> FaultSpec:
    from ipoibu.fabric.faults import FaultSpec

    return FaultSpec.parse(text)


def parse_switch(text: str) -> bool:
    return SWITCH.read(text) == "on"


def parse_sandbox(text: str) -> Stage:
    """`on` for all stages, `off` for none, or the number of the last one."""
    from ipoibu.sandbox.stages import Stage

    numbers = {"on": max(Stage), "off": Stage.OFF} | {str(int(stage)): stage for stage in Stage}
    text = text.lower()
    if text not in numbers:
        raise UsageError(f"{text!r} is neither on nor off nor a stage from 0 to {max(Stage):d}")
    return numbers[text]


def parse_ip(text: str, fault: str = "not an IP address", place: str = "`dev`") -> IpAddress:
    """Read an address without a zone; `UsageError` for any other text. `place` names the interface."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is {fault}") from error
    if "%" in text:
        raise UsageError(f"{text!r}: remove the %zone: {place} names the interface")
    return ip


def parse_user(text: str) -> User:
    from ipoibu.sandbox.user import User

    return User.parse(text)


def parse_metrics(text: str) -> ListenAddress:
    from ipoibu.daemon.metrics.metrics_server import ListenAddress

    return ListenAddress.parse(text)


def parse_busy_poll(text: str) -> int | None:
    """Read microseconds; None for `auto`."""
    return None if text == "auto" else BUSY_POLL.read(text)


def show_busy_poll(busy_poll_us: int | None) -> str:
    """Write what `parse_busy_poll` reads."""
    return "auto" if busy_poll_us is None else str(busy_poll_us)


def parse_file(text: str) -> Path:
    """The path of a file that is read again later, as by a child interface."""
    if not text:
        raise UsageError("a file's name is expected")
    return lasting(Path(text))


def parse_directory(text: str) -> Path:
    """The path of a directory, which may be missing."""
    if not text or text.startswith("-"):
        raise UsageError("a directory's name is expected")
    return lasting(Path(text))


def lasting(path: Path) -> Path:
    """Return the absolute path of a file, or of what a descriptor (/dev/fd/3) leads to: a daemon that has
    given up its privileges may not look at its descriptors. `UsageError` for a pipe."""
    try:
        path = path.absolute()
        status = path.stat()
    except OSError:  # who reads the file complains
        return path
    except ValueError as error:  # a zero byte, or half of a surrogate pair
        raise UsageError(f"{str(path)!r} cannot be a file's name") from error
    if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        raise UsageError(f"{path}: a pipe can be read only once: give a file")
    if not path.is_relative_to("/proc") and not path.is_relative_to("/dev"):
        return path
    named = path.resolve()
    with contextlib.suppress(OSError):
        if os.path.samestat(status, named.stat()):
            return named
    return path
