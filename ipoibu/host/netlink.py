# SPDX-License-Identifier: BSD-2-Clause
"""Links, addresses and routes through rtnetlink: the one module that knows pyroute2.

pyroute2 encodes and decodes the messages; the socket is ours. Its own socket classes run an event
loop each and hide the overrun (ENOBUFS) that a mirror of kernel state has to see, so they were not
used. Every call blocks until the kernel has answered, which it does at once. A `Netlink` belongs
to one thread and to the network namespace in which it was opened.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Self

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from ipoibu.addr import IpAddress, IpInterface, IpNetwork
from ipoibu.errors import LinkError, NoSuchDevice, NotPermitted

RouteKind = Literal["unicast", "broadcast", "unreachable"]

# linux/netlink.h
SOL_NETLINK: Final = 270
NETLINK_CAP_ACK: Final = 10
NETLINK_EXT_ACK: Final = 11
NETLINK_GET_STRICT_CHK: Final = 12
NLM_F_REQUEST: Final = 0x001
NLM_F_ACK: Final = 0x004
NLM_F_DUMP_INTR: Final = 0x010
NLM_F_ACK_TLVS: Final = 0x200
NLM_F_DUMP: Final = 0x300
NLM_F_REPLACE: Final = 0x100
NLM_F_EXCL: Final = 0x200
NLM_F_CREATE: Final = 0x400
NLMSG_ERROR: Final = 2
NLMSG_DONE: Final = 3
NLMSGERR_ATTR_MSG: Final = 1

# linux/rtnetlink.h
RTM_NEWLINK: Final = 16
RTM_DELLINK: Final = 17
RTM_GETLINK: Final = 18
RTM_NEWADDR: Final = 20
RTM_DELADDR: Final = 21
RTM_GETADDR: Final = 22
RTM_NEWROUTE: Final = 24
RTM_DELROUTE: Final = 25
RTM_GETROUTE: Final = 26
RTMGRP_LINK: Final = 0x1
RTMGRP_IPV4_IFADDR: Final = 0x10
RTMGRP_IPV4_ROUTE: Final = 0x40
RTMGRP_IPV6_IFADDR: Final = 0x100
RTMGRP_IPV6_ROUTE: Final = 0x400
MONITOR_GROUPS: Final = (
    RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE
)
RTN_UNICAST: Final = 1
RTN_BROADCAST: Final = 3
RT_TABLE_MAIN: Final = 254
RT_SCOPE_UNIVERSE: Final = 0
RT_SCOPE_LINK: Final = 253
RTPROT_STATIC: Final = 4
IFF_UP: Final = 0x1
IFA_F_NODAD: Final = 0x02
IFA_F_TENTATIVE: Final = 0x40
IN6_ADDR_GEN_MODE_NONE: Final = 1

_RECEIVE_BYTES: Final = 1 << 17  # above the 32 KiB of the largest part of a dump
_DUMP_TRIES: Final = 16  # a dump that changed under way is repeated; the last one is taken as it is

_KINDS: Final[dict[int, RouteKind]] = {RTN_UNICAST: "unicast", RTN_BROADCAST: "broadcast"}


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface as the kernel lists it."""

    index: int
    name: str
    mtu_bytes: int
    up: bool
    hwaddr: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """A route over one interface; `via` None means that the destination is on the link.

    `table` and `metric` order the routes of one `network`; `paths` is above 1 where the kernel
    spreads over several next hops, of which this is the first over the interface.
    """

    network: IpNetwork
    via: IpAddress | None
    kind: RouteKind
    table: int = RT_TABLE_MAIN
    metric: int = 0
    paths: int = 1


def _family(address: IpAddress | IpNetwork | IpInterface) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


class Netlink:
    """One rtnetlink socket of the calling thread's network namespace."""

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        try:
            # Strict checking (Linux 4.20) makes the kernel filter dumps by interface for us.
            for option in (NETLINK_EXT_ACK, NETLINK_CAP_ACK, NETLINK_GET_STRICT_CHK):
                self._socket.setsockopt(SOL_NETLINK, option, 1)
            self._socket.bind((0, 0))
        except BaseException:
            self._socket.close()
            raise
        self._sequence = 0

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Links

    def link(self, name: str | int) -> Link | None:
        """The interface of that name or index, or None where there is none."""
        message = ifinfmsg()
        if isinstance(name, int):
            message["index"] = name
        else:
            message["attrs"] = [["IFLA_IFNAME", name]]
        try:
            answers = self._request(RTM_GETLINK, 0, message, f"looking up interface {name}")
        except NoSuchDevice:
            return None
        if not answers:
            return None
        found = answers[0]
        return Link(
            index=found["index"],
            name=found.get_attr("IFLA_IFNAME"),
            mtu_bytes=found.get_attr("IFLA_MTU"),
            up=bool(found["flags"] & IFF_UP),
            hwaddr=found.get_attr("IFLA_ADDRESS"),
        )

    def set_link(
        self,
        index: int,
        *,
        up: bool | None = None,
        mtu_bytes: int | None = None,
        txqueuelen: int | None = None,
        master: int | None = None,
        kernel_link_local: bool = True,
    ) -> None:
        """Change what is given; `kernel_link_local` False keeps the kernel from inventing an
        address."""
        message = ifinfmsg()
        message["index"] = index
        if up is not None:
            message["flags"] = IFF_UP if up else 0
            message["change"] = IFF_UP
        attributes: list[list[Any]] = []
        if mtu_bytes is not None:
            attributes.append(["IFLA_MTU", mtu_bytes])
        if txqueuelen is not None:
            attributes.append(["IFLA_TXQLEN", txqueuelen])
        if master is not None:
            attributes.append(["IFLA_MASTER", master])
        if not kernel_link_local:
            mode = {"attrs": [["IFLA_INET6_ADDR_GEN_MODE", IN6_ADDR_GEN_MODE_NONE]]}
            attributes.append(["IFLA_AF_SPEC", {"attrs": [["AF_INET6", mode]]}])
        message["attrs"] = attributes
        self._request(RTM_NEWLINK, NLM_F_ACK, message, f"setting interface {index}")

    def create_bridge(self, name: str) -> None:
        message = ifinfmsg()
        message["attrs"] = [
            ["IFLA_IFNAME", name],
            ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "bridge"]]}],
        ]
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        self._request(RTM_NEWLINK, flags, message, f"creating bridge {name}")

    def create_veth(
        self, name: str, hwaddr: str, peer: str, peer_hwaddr: str, peer_namespace: int
    ) -> None:
        """A pair of joined interfaces: `name` here, `peer` in the namespace of that descriptor."""
        other = [
            ["IFLA_IFNAME", peer],
            ["IFLA_ADDRESS", peer_hwaddr],
            ["IFLA_NET_NS_FD", peer_namespace],
        ]
        data = {"attrs": [["VETH_INFO_PEER", {"attrs": other}]]}
        message = ifinfmsg()
        message["attrs"] = [
            ["IFLA_IFNAME", name],
            ["IFLA_ADDRESS", hwaddr],
            ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "veth"], ["IFLA_INFO_DATA", data]]}],
        ]
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        self._request(RTM_NEWLINK, flags, message, f"creating the veth pair {name}, {peer}")

    def remove_link(self, index: int) -> None:
        message = ifinfmsg()
        message["index"] = index
        self._request(RTM_DELLINK, NLM_F_ACK, message, f"removing interface {index}")

    # Addresses

    def addresses(self, index: int) -> set[IpInterface]:
        """The interface's addresses; none if it is gone."""
        return {
            ipaddress.ip_interface(f"{_local(answer)}/{answer['prefixlen']}")
            for answer in self._listed_addresses(index)
        }

    def address_flags(self, index: int) -> dict[str, int]:
        """The IFA_F_* bits by address."""
        return {
            _local(answer): answer.get_attr("IFA_FLAGS") or answer["flags"]
            for answer in self._listed_addresses(index)
        }

    def _listed_addresses(self, index: int) -> list[Any]:
        message = ifaddrmsg()
        message["index"] = index
        try:
            answers = self._request(RTM_GETADDR, NLM_F_DUMP, message, "listing addresses")
        except NoSuchDevice:
            return []
        return [answer for answer in answers if answer["index"] == index]

    def add_address(self, index: int, address: IpInterface) -> None:
        """Add or refresh an address, with its subnet broadcast as `ip address add ... brd +` sets
        it.

        Without duplicate address detection by the kernel, which has none on an interface like ours.
        """
        message = self._address(index, address)
        if isinstance(address, ipaddress.IPv4Interface):
            if address.network.prefixlen < 31:  # RFC 3021: no broadcast on /31
                broadcast = str(address.network.broadcast_address)
                message["attrs"].append(["IFA_BROADCAST", broadcast])
        else:
            message["flags"] = IFA_F_NODAD
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
        self._request(RTM_NEWADDR, flags, message, f"adding address {address}")

    def remove_address(self, index: int, address: IpInterface) -> None:
        """Remove an address; one that is gone already is no error."""
        try:
            self._request(
                RTM_DELADDR, NLM_F_ACK, self._address(index, address), f"removing {address}"
            )
        except LinkError as error:
            if _errno(error) != errno.EADDRNOTAVAIL:
                raise

    @staticmethod
    def _address(index: int, address: IpInterface) -> Any:
        message = ifaddrmsg()
        message["family"] = _family(address)
        message["prefixlen"] = address.network.prefixlen
        message["index"] = index
        message["attrs"] = [["IFA_LOCAL", str(address.ip)], ["IFA_ADDRESS", str(address.ip)]]
        return message

    # Routes

    def routes(self, index: int) -> list[Route]:
        """Unicast and broadcast routes of every table over the interface, in no order.

        Routes to ourselves, to multicast and to nowhere are left out: their packets never reach it.
        """
        found = []
        for family in (socket.AF_INET, socket.AF_INET6):
            message = rtmsg()
            message["family"] = family
            message["attrs"] = [["RTA_OIF", index]]
            try:
                answers = self._request(RTM_GETROUTE, NLM_F_DUMP, message, "listing routes")
            except NoSuchDevice:
                continue
            except LinkError as error:
                if _errno(error) in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):
                    continue  # a kernel without that family has no routes of it
                raise
            found += [route for answer in answers if (route := _route(answer, index))]
        return found

    def add_route(self, index: int, network: IpNetwork, via: IpAddress | None) -> None:
        """Add or replace a route in the main table; an IPv4 network may go via an IPv6 gateway."""
        message = rtmsg()
        message["family"] = _family(network)
        message["dst_len"] = network.prefixlen
        message["table"] = RT_TABLE_MAIN
        message["proto"] = RTPROT_STATIC
        message["type"] = RTN_UNICAST
        message["scope"] = (
            RT_SCOPE_LINK if via is None and network.version == 4 else RT_SCOPE_UNIVERSE
        )
        attributes: list[list[Any]] = [["RTA_OIF", index]]
        if network.prefixlen:
            attributes.append(["RTA_DST", str(network.network_address)])
        if via is not None:
            if via.version == network.version:
                attributes.append(["RTA_GATEWAY", str(via)])
            else:
                attributes.append(["RTA_VIA", {"family": _family(via), "addr": str(via)}])
        message["attrs"] = attributes
        what = f"adding route {network}" + (f" via {via}" if via else "")
        self._request(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, message, what)

    # Messages

    def _request(self, kind: int, flags: int, message: Any, what: str) -> list[Any]:
        for _ in range(_DUMP_TRIES):
            self._sequence += 1
            header = message["header"]
            header["type"] = kind
            header["flags"] = NLM_F_REQUEST | flags
            header["sequence_number"] = self._sequence
            header["pid"] = 0
            message.reset()
            message.encode()
            self._socket.send(message.data)
            answers, interrupted = self._answers(type(message), what)
            if not interrupted:
                break
        return answers

    def _answers(self, decoder: Any, what: str) -> tuple[list[Any], bool]:
        answers: list[Any] = []
        interrupted = False
        while True:
            data = self._socket.recv(_RECEIVE_BYTES)
            for offset, kind, flags, sequence in _split(data):
                if sequence != self._sequence:
                    continue  # the rest of a request that failed half way
                interrupted |= bool(flags & NLM_F_DUMP_INTR)
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    code, reason = _verdict(data, offset, kind, flags)
                    if code:
                        raise _refusal(code, what, reason)
                    return answers, interrupted
                answer = decoder(data, offset=offset)
                answer.decode()
                answers.append(answer)
                if not flags & 0x2:  # NLM_F_MULTI: more follow, ended by NLMSG_DONE
                    return answers, interrupted


class Monitor:
    """Change notices of links, addresses and routes: hints, never the state itself.

    The kernel drops notices when the socket is full, and IPv4 routes vanish without one when their
    interface goes down or their address is removed. So a notice only says "look again".
    """

    def __init__(self, index: int) -> None:
        self._needle = struct.pack("=I", index)
        self._socket = socket.socket(
            socket.AF_NETLINK,
            socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK,
            socket.NETLINK_ROUTE,
        )
        try:
            self._socket.bind((0, MONITOR_GROUPS))
        except BaseException:
            self._socket.close()
            raise
        self.overruns = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def changed(self) -> bool:
        """Take every notice that waits; True if one may be about the interface, or some were
        lost."""
        relevant = False
        while True:
            try:
                data = self._socket.recv(_RECEIVE_BYTES)
            except BlockingIOError:
                return relevant
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.overruns += 1
                relevant = True
                continue
            relevant = relevant or self._concerns(data)

    def _concerns(self, data: bytes) -> bool:
        # The index stands in one of several places (header, RTA_OIF, each next hop of a multipath
        # route), always 4-byte aligned. Finding it elsewhere costs one look too many, no more.
        at = data.find(self._needle)
        while at >= 0:
            if at % 4 == 0:
                return True
            at = data.find(self._needle, at + 1)
        return False


def _split(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """(offset, type, flags, sequence) of each message in a datagram."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind, flags, sequence = struct.unpack_from("=IHHI", data, offset)
        if length < 16:
            return
        yield offset, kind, flags, sequence
        offset += (length + 3) & ~3


def _verdict(data: bytes, offset: int, kind: int, flags: int) -> tuple[int, str]:
    """errno (0: fine) and the kernel's own words, if it had any, of an NLMSG_ERROR or
    NLMSG_DONE."""
    (length,) = struct.unpack_from("=I", data, offset)
    if length < 20:
        return 0, ""
    (code,) = struct.unpack_from("=i", data, offset + 16)
    reason = ""
    if flags & NLM_F_ACK_TLVS:
        at = offset + 20 + (16 if kind == NLMSG_ERROR else 0)  # NETLINK_CAP_ACK: header only
        while at + 4 <= offset + length:
            size, attribute = struct.unpack_from("=HH", data, at)
            if size < 4:
                break
            if attribute & 0x3FFF == NLMSGERR_ATTR_MSG:
                reason = data[at + 4 : at + size].rstrip(b"\0").decode(errors="replace")
            at += (size + 3) & ~3
    return -code, reason


def _refusal(code: int, what: str, reason: str) -> LinkError | NoSuchDevice | NotPermitted:
    words = os.strerror(code) + (f" ({reason})" if reason else "")
    if code in (errno.EPERM, errno.EACCES):
        # EACCES is also the kernel's word for "IPv6 is disabled on this interface".
        if code == errno.EPERM:
            return NotPermitted(f"{what} needs CAP_NET_ADMIN: run as root")
    elif code == errno.ENODEV:
        return NoSuchDevice(f"{what}: no such interface")
    error = LinkError(f"{what}: {words}")
    error.__cause__ = OSError(code, words)
    return error


def _errno(error: LinkError) -> int | None:
    return error.__cause__.errno if isinstance(error.__cause__, OSError) else None


def _local(answer: Any) -> str:
    # On a point-to-point address IFA_ADDRESS is the peer; ours is IFA_LOCAL.
    return str(answer.get_attr("IFA_LOCAL") or answer.get_attr("IFA_ADDRESS"))


def _gateway(hop: Any) -> IpAddress | None:
    text = hop.get_attr("RTA_GATEWAY")
    if text is None and (via := hop.get_attr("RTA_VIA")) is not None:
        text = via["addr"]
    return None if text is None else ipaddress.ip_address(text)


def _route(answer: Any, index: int) -> Route | None:
    kind = _KINDS.get(answer["type"])
    if kind is None:
        return None
    hops = answer.get_attr("RTA_MULTIPATH") or []
    hop = answer
    if hops:
        mine = [hop for hop in hops if hop["oif"] == index]
        if not mine:
            return None
        hop = mine[0]
    elif answer.get_attr("RTA_OIF") != index:
        return None
    anywhere = "0.0.0.0" if answer["family"] == socket.AF_INET else "::"
    network = ipaddress.ip_network(
        f"{answer.get_attr('RTA_DST') or anywhere}/{answer['dst_len']}", strict=False
    )
    return Route(
        network=network,
        via=_gateway(hop),
        kind=kind,
        table=answer.get_attr("RTA_TABLE") or answer["table"],
        metric=answer.get_attr("RTA_PRIORITY") or 0,
        paths=max(1, len(hops)),
    )
