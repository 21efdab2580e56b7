# SPDX-License-Identifier: BSD-2-Clause
"""A lease of DHCPv6: what a server's advertisement or reply grants, and what comes with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from ipaddress import IPv6Address, IPv6Interface
from typing import Final, Self

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import LEASE_LIST_MAX, LEASE_MIN_S
from ipoibu.wire import client_id, dhcp, dhcp6
from ipoibu.wire.dhcp6 import Address, Association, Code, Message, Status

REASONS: Final = dhcp6.REASONS | {"dhcp_option", "dhcp6_lease"}

# The options that a client asks for; RFC 8415 §21.24: SOL_MAX_RT in every such message
WANTED: Final = b"".join(
    int(code).to_bytes(2, "big") for code in (Code.DNS, Code.DOMAIN_SEARCH, Code.SOL_MAX_RT)
)

_RENEWAL: Final = 0.5  # of the preferred lifetime, T1 and T2; RFC 8415 §21.4
_REBINDING: Final = 0.8


@dataclass(frozen=True, slots=True)
class Lease6:
    """An address for a time, from the server of that DUID. Times count from the request in seconds, and
    may be infinite: `preferred_s` until programs should use another address, `lease_s` until the end."""

    address: IPv6Interface
    server: bytes
    preferred_s: float
    lease_s: float
    renewal_s: float  # T1
    rebinding_s: float  # T2
    dns: tuple[IPv6Address, ...] = ()
    search: tuple[str, ...] = ()

    @classmethod
    def of_untrusted(cls, message: Message, iaid: bytes, wanted: IPv6Address | None = None) -> Self:
        """Read an advertisement or a reply; `dhcp6_lease` if it lacks server, association or an address
        that a host can have. Of several addresses the one `wanted` counts, else the first."""
        server = server_untrusted(message)
        association = _association(message, iaid)
        if association is None:
            raise BadFrame("dhcp6_lease")
        granted = [each for each in _addresses(association) if _is_usable(each)]
        granted.sort(key=lambda each: each.ip != wanted)
        if not granted:
            raise BadFrame("dhcp6_lease")
        renewal_s, rebinding_s = _times(association, granted[0])
        return cls(
            IPv6Interface((granted[0].ip, 128)),  # RFC 5942 §4: a prefix comes from a router
            server,
            _seconds(granted[0].preferred_s),
            max(_seconds(granted[0].valid_s), LEASE_MIN_S),
            max(renewal_s, _RENEWAL * LEASE_MIN_S),
            max(rebinding_s, _REBINDING * LEASE_MIN_S),
            _dns(message),
            _search(message),
        )

    def aged(self, age_s: float) -> Self:
        """Return the lease with times that count from `age_s` after the request."""
        return replace(
            self,
            preferred_s=max(0.0, self.preferred_s - age_s),
            lease_s=max(0.0, self.lease_s - age_s),
            renewal_s=max(0.0, self.renewal_s - age_s),
            rebinding_s=max(0.0, self.rebinding_s - age_s),
        )


def server_untrusted(message: Message) -> bytes:
    """Return the DUID of the server; `dhcp6_lease` without one of a legal size."""
    server = message.option(Code.SERVER_ID)
    if server is None or not 3 <= len(server) <= client_id.DUID_MAX_BYTES:
        raise BadFrame("dhcp6_lease")
    return server


def verdict_untrusted(message: Message, iaid: bytes) -> tuple[Status, str]:
    """Return the status of the message, or if that is success the one of its association, with its text."""
    status, text = dhcp6.status_untrusted(message.options)
    association = _association(message, iaid)
    if status is not Status.SUCCESS or association is None:
        return status, text
    status, text = dhcp6.status_untrusted(association.options)
    found = _addresses(association)
    if status is Status.SUCCESS and len(found) == 1:  # servers put it here, too
        return dhcp6.status_untrusted(found[0].options)
    return status, text


def takes_back_untrusted(message: Message, iaid: bytes, ip: IPv6Address) -> bool:
    """Return whether the server ends the lease of `ip`: a valid lifetime of 0 (§18.2.10.1)."""
    association = _association(message, iaid)
    found = _addresses(association) if association is not None else []
    return any(each.ip == ip and each.valid_s == 0 for each in found)


def _association(message: Message, iaid: bytes) -> Association | None:
    for code, value in message.options:
        if code == Code.IA_NA:
            association = dhcp6.association_untrusted(value)
            if association.iaid == iaid:
                return association
    return None


def _addresses(association: Association) -> list[Address]:
    return [
        dhcp6.address_untrusted(value)
        for code, value in association.options
        if code == Code.IA_ADDRESS
    ]


def _is_usable(address: Address) -> bool:
    """§21.6: the preferred lifetime is not longer than the valid one, which is not 0."""
    ip = address.ip
    is_host = not (ip.is_multicast or ip.is_unspecified or ip.is_loopback or ip.is_link_local)
    return is_host and ip.ipv4_mapped is None and 0 < address.valid_s >= address.preferred_s


def _times(association: Association, address: Address) -> tuple[float, float]:
    """Return T1 and T2: those of the server, or parts of the preferred lifetime where it leaves them to
    us, or where they come after the end."""
    if association.renewal_s > association.rebinding_s > 0:
        raise BadFrame("dhcp6_lease")  # §21.4: the client discards such an association
    life_s = _seconds(address.preferred_s or address.valid_s)
    renewal_s = _seconds(association.renewal_s) or _RENEWAL * life_s
    rebinding_s = _seconds(association.rebinding_s) or max(_REBINDING * life_s, renewal_s)
    valid_s = _seconds(address.valid_s)
    if valid_s < math.inf and not renewal_s <= rebinding_s < valid_s:
        return _RENEWAL * life_s, _REBINDING * life_s
    return renewal_s, rebinding_s


def _seconds(number: int) -> float:
    return math.inf if number == dhcp6.INFINITE else float(number)


def _dns(message: Message) -> tuple[IPv6Address, ...]:
    value = message.option(Code.DNS)
    return dhcp6.addresses_untrusted(value)[:LEASE_LIST_MAX] if value is not None else ()


def _search(message: Message) -> tuple[str, ...]:
    value = message.option(Code.DOMAIN_SEARCH)
    return dhcp.search_untrusted(value) if value is not None else ()
