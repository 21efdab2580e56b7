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

from ipoibu._core import Frame
from ipoibu.base.addr import HwAddr, IpAddress, IpInterface, IpNetwork, PKey
from ipoibu.base.errors import UsageError
from ipoibu.base.route import RouteChange

Packet = bytes | bytearray | memoryview

_Value = TypeVar("_Value")
_Function = TypeVar("_Function")


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
    """Return the key; 0 and 0x8000 are no partitions."""
    if isinstance(value, str):
        return PKey.parse(value)
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a P_Key such as 0x8001")
    if not 0 <= value <= 0xFFFF or not value & 0x7FFF:
        raise UsageError(f"{value:#x} is not a P_Key: expected 0x0001 to 0xffff, and not 0x8000")
    return PKey(value)


def addresses_of(values: Iterable[IpAddress | str]) -> frozenset[IpAddress]:
    """Return the addresses of a batch; `TypeError` for one address alone, as text is iterable, too."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise TypeError(f"a list of addresses is wanted, not {values!r}: write [{values!r}]")
    return frozenset(map(address_of, values))


def ipv4_addresses_of(values: Iterable[IpAddress | str]) -> frozenset[IPv4Address]:
    addresses = addresses_of(values)
    for address in addresses:
        if isinstance(address, IPv6Address):
            raise UsageError(f"{address} is not an IPv4 address")
    return cast(frozenset[IPv4Address], addresses)


def groups_of(values: Iterable[IpAddress | str]) -> frozenset[IpAddress]:
    return frozenset(map(group_of, addresses_of(values)))


def seconds_of(value: float | None, name: str) -> float | None:
    """Return a time; `TypeError` names the argument if it is no number."""
    if value is not None and not isinstance(value, (int, float)):
        raise TypeError(f"{name} is a number of seconds, not {value!r}")
    return value


def count_of(value: int) -> int:
    """Return the most packets that a call may return; `TypeError` or `UsageError` if it is none."""
    if not isinstance(value, int):
        raise TypeError(f"max is a number of packets, not {value!r}")
    if value < 0:
        raise UsageError(f"max {value}: expected 0 or more packets")
    return value


def sink_of(sink: _Function) -> _Function:
    return function_of(sink, "a sink", "one argument")


def function_of(function: _Function, noun: str, arguments: str) -> _Function:
    if not callable(function):
        raise TypeError(f"{noun} is a function of {arguments}, not {function!r}")
    return function


def changes_of(changes: Iterable[RouteChange]) -> list[RouteChange]:
    wanted = "routes_changed takes a list of RouteChange"
    if not isinstance(changes, Iterable):
        raise TypeError(f"{wanted}, not {changes!r}")
    batch = list(changes)
    for change in batch:
        if not isinstance(change, RouteChange):
            raise TypeError(f"{wanted}, not of {change!r}")
    return batch


def peers_of(peers: Iterable[str]) -> list[str]:
    wanted = "a list of peers such as 10.0.0.2 is wanted"
    if isinstance(peers, str) or not isinstance(peers, Iterable):
        raise TypeError(f"{wanted}, not {peers!r}")
    batch = list(peers)
    for peer in batch:
        if not isinstance(peer, str):
            raise TypeError(f"{wanted}, not of {peer!r}")
    return batch


def frames_of(frames: Iterable[Frame]) -> list[Frame]:
    """Return the batch as a list; `TypeError` if it is none of `reserve`."""
    wanted = "send_frames takes a list of frames that `reserve` lent"
    if not isinstance(frames, Iterable):
        raise TypeError(f"{wanted}, not {type(frames).__name__}")
    batch = list(frames)
    others = {*map(type, batch)} - {Frame}  # as fast as it gets: this is the path of each batch
    if others:
        kind = others.pop().__name__
        raise TypeError(f"{wanted}, not of {kind}; `send` takes bytes")
    return batch


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
    is_one = isinstance(packets, (bytes, bytearray, memoryview, str))
    if is_one or not isinstance(packets, Iterable):
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
