# SPDX-License-Identifier: BSD-2-Clause
"""The arguments of an endpoint's methods: addresses as objects or as text, and batches of packets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import TypeVar, cast

from ipoibu.addr import HwAddr, IpAddress, IpInterface, IpNetwork, PKey
from ipoibu.errors import UsageError

Packet = bytes | bytearray | memoryview

_Value = TypeVar("_Value")


def address_of(value: IpAddress | str) -> IpAddress:
    kinds = (IPv4Address, IPv6Address)
    return _value_of(value, kinds, ip_address, "an address such as 10.0.0.1 or fd00::1")


def interface_of(value: IpInterface | str) -> IpInterface:
    kinds = (IPv4Interface, IPv6Interface)
    return _value_of(value, kinds, ip_interface, "an address with its prefix such as 10.0.0.1/24")


def network_of(value: IpNetwork | str) -> IpNetwork:
    kinds = (IPv4Network, IPv6Network)
    return _value_of(value, kinds, ip_network, "a network such as 10.0.0.0/24 or fd00::/64")


def hwaddr_of(value: HwAddr | str) -> HwAddr:
    return _value_of(value, (HwAddr,), HwAddr.parse, "a hardware address of 20 octets")


def target_of(value: IpAddress | HwAddr | str) -> IpAddress | HwAddr:
    """Return the host to ask: 20 octets of a hardware address have 19 colons, an IPv6 address at most 7."""
    if isinstance(value, HwAddr):
        return value
    if isinstance(value, str) and value.count(":") > 7:
        return hwaddr_of(value)
    return address_of(value)


def group_of(value: IpAddress | str) -> IpAddress:
    group = address_of(value)
    if not group.is_multicast:
        raise UsageError(f"{group} is not a multicast group")
    return group


def pkey_of(value: PKey | int | str) -> PKey:
    if isinstance(value, str):
        return PKey.parse(value)
    try:
        return PKey(value)
    except ValueError as error:
        raise UsageError(f"{value!r} is not a P_Key such as 0x8001: {error}") from error


def addresses_of(values: Iterable[IpAddress | str]) -> frozenset[IpAddress]:
    """Return the addresses of a batch; `TypeError` for one address alone, as text is iterable, too."""
    if isinstance(values, str):
        raise TypeError(f"a set of addresses is wanted, not one text: write [{values!r}]")
    return frozenset(map(address_of, values))


def _value_of(
    value: object,
    kinds: tuple[type, ...],
    parse: Callable[[str], _Value],
    wanted: str,
) -> _Value:
    """Return the value, read from its text if it is text; `UsageError` or `TypeError` names what is
    wanted."""
    if isinstance(value, str):
        try:
            return parse(value)
        except ValueError as error:
            raise UsageError(f"{value!r} is not {wanted}: {error}") from error
    if not isinstance(value, kinds):
        raise TypeError(f"{value!r} is not {wanted}, nor an object of ipaddress or ipoibu for it")
    return cast(_Value, value)


def packets_of(packets: Iterable[Packet], mtu_bytes: int) -> list[Packet]:
    """Return the batch as a list; `TypeError` if it is none, `UsageError` for a packet of a wrong size."""
    if isinstance(packets, (bytes, bytearray, memoryview, str)):
        kind = type(packets).__name__
        raise TypeError(f"send takes a list of packets, not one {kind}: write send([packet])")
    batch = list(packets)
    packet: object = None
    try:
        for packet in batch:
            if not 0 < len(packet) <= mtu_bytes:
                raise UsageError(
                    f"a packet of {len(packet)} bytes does not fit the MTU {mtu_bytes}"
                )
    except TypeError:
        kind = type(packet).__name__
        raise TypeError(f"a packet is bytes, bytearray or memoryview, not {kind}") from None
    return batch
