# SPDX-License-Identifier: BSD-2-Clause
"""A lease: what a DHCP server's offer or acknowledgement grants, and what comes with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Final, Self, TypeVar

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import IPV4_MIN_MTU, LEASE_MIN_S
from ipoibu.wire import dhcp
from ipoibu.wire.dhcp import Code, Message

REASONS: Final = dhcp.REASONS | {"dhcp_lease"}

# The options that a client asks for; RFC 3442: classless routes before routers.
PARAMETERS: Final = bytes(
    (
        Code.SUBNET_MASK,
        Code.CLASSLESS_ROUTES,
        Code.ROUTER,
        Code.DNS,
        Code.DOMAIN_NAME,
        Code.INTERFACE_MTU,
        Code.LEASE_TIME,
        Code.SERVER,
        Code.RENEWAL_TIME,
        Code.REBINDING_TIME,
        Code.DOMAIN_SEARCH,
    )
)

_INFINITE: Final = 0xFFFFFFFF  # RFC 2131 §3.3
_RENEWAL: Final = 0.5  # of the lease's time, T1 and T2; RFC 2131 §4.4.5
_REBINDING: Final = 0.875

_Value = TypeVar("_Value")

Route = tuple[IPv4Network, IPv4Address | None]
"""A destination, and the router that leads there; None: the destination is on the link."""


@dataclass(frozen=True, slots=True)
class Lease:
    """An address for a time, from `server`. Times count from the request, and may be infinite."""

    address: IPv4Interface
    server: IPv4Address
    lease_s: float
    renewal_s: float  # T1
    rebinding_s: float  # T2
    routes: tuple[Route, ...] = ()
    mtu_bytes: int | None = None
    dns: tuple[IPv4Address, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()

    @classmethod
    def of_untrusted(cls, message: Message) -> Self:
        """Read an offer or an acknowledgement; `dhcp_lease` if it lacks server or time, or grants an
        address that no host can have. Its other options are good or an error (`dhcp_option`)."""
        server = _read(message, Code.SERVER, dhcp.address_untrusted)
        seconds = _seconds(message, Code.LEASE_TIME)
        address = _address(message)
        if server is None or seconds is None or not _is_host(server):
            raise BadFrame("dhcp_lease")
        lease_s = max(seconds, LEASE_MIN_S)
        renewal_s = _seconds(message, Code.RENEWAL_TIME)
        rebinding_s = _seconds(message, Code.REBINDING_TIME)
        if renewal_s is None or rebinding_s is None or not renewal_s < rebinding_s < lease_s:
            renewal_s, rebinding_s = _RENEWAL * lease_s, _REBINDING * lease_s
        mtu = _read(message, Code.INTERFACE_MTU, lambda value: dhcp.number_untrusted(value, 2))
        return cls(
            address,
            server,
            lease_s,
            max(renewal_s, _RENEWAL * LEASE_MIN_S),
            max(rebinding_s, _REBINDING * LEASE_MIN_S),
            _routes(message),
            mtu if mtu is not None and mtu >= IPV4_MIN_MTU else None,
            _read(message, Code.DNS, dhcp.addresses_untrusted) or (),
            _read(message, Code.DOMAIN_NAME, dhcp.text_untrusted) or "",
            _read(message, Code.DOMAIN_SEARCH, dhcp.search_untrusted) or (),
        )


def _read(message: Message, code: Code, read: Callable[[bytes], _Value]) -> _Value | None:
    value = message.option(code)
    return None if value is None else read(value)


def _seconds(message: Message, code: Code) -> float | None:
    seconds = _read(message, code, lambda value: dhcp.number_untrusted(value, 4))
    return math.inf if seconds == _INFINITE else seconds


def _address(message: Message) -> IPv4Interface:
    length = _read(message, Code.SUBNET_MASK, dhcp.prefix_len_untrusted)
    ip = message.yiaddr
    interface = IPv4Interface((ip, _class_len(ip) if length is None else length))
    network = interface.network
    is_edge = ip in (network.network_address, network.broadcast_address)
    if not _is_host(ip) or (network.prefixlen <= 30 and is_edge) or network.prefixlen == 0:
        raise BadFrame("dhcp_lease")
    return interface


def _class_len(ip: IPv4Address) -> int:
    """Without a mask the class of the address decides: RFC 791 §3.2."""
    first = ip.packed[0]
    return 8 if first < 128 else 16 if first < 192 else 24


def _is_host(ip: IPv4Address) -> bool:
    is_special = ip.is_multicast or ip.is_loopback or ip.packed[0] == 0
    return not is_special and ip.packed[0] < 224


def _routes(message: Message) -> tuple[Route, ...]:
    """RFC 3442: classless routes replace the routers."""
    classless = _read(message, Code.CLASSLESS_ROUTES, dhcp.routes_untrusted)
    if classless is not None:
        found = [(net, None if via.packed == bytes(4) else via) for net, via in classless]
    else:
        routers = _read(message, Code.ROUTER, dhcp.addresses_untrusted) or ()
        found = [(IPv4Network("0.0.0.0/0"), via) for via in routers[:1]]
    usable = [(net, via) for net, via in found if via is None or _is_host(via)]
    return tuple(usable)
