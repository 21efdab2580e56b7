# SPDX-License-Identifier: BSD-2-Clause
"""Links, addresses and routes through rtnetlink.

The modules `*_message` encode and decode the messages; `NetlinkSocket` sends and receives them. Every call
blocks until the kernel answers, which it does at once. A `Netlink` belongs to one thread and to one
network namespace.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeGuard

from ipoibu.base.addr import IpAddress, IpInterface, IpNetwork
from ipoibu.base.errors import LinkError, NoSuchDevice
from ipoibu.base.limits import IPV6_MIN_MTU
from ipoibu.base.route import NextHop
from ipoibu.host.address_message import (
    address_body,
    neighbour_request,
    proxy_request,
    read_address,
    read_group,
    read_interface,
    read_neighbour,
    read_proxy,
    request,
)
from ipoibu.host.arp_query import is_local
from ipoibu.host.link_message import (
    link_change,
    link_request,
    new_bridge,
    new_veth,
    read_link,
)
from ipoibu.host.netsocket import (
    NLM_F_ACK,
    NLM_F_APPEND,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NetlinkSocket,
    refused_with,
)
from ipoibu.host.route_message import (
    FAMILIES_MULTICAST,
    RT_TABLE_LOCAL,
    RTA_OIF,
    RouteEntry,
    RouteReader,
    hops_by_number,
    ipv6_host_of,
    is_local_network,
    nexthop_number,
    output_interfaces,
    read_nexthop,
    route_body,
    route_head,
    routed_group,
    u32,
    unicast_network,
)
from ipoibu.host.route_query import RTM_GETNEXTHOP
from ipoibu.host.route_rules import Rule, read_rule

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
RTM_GETNEIGH: Final = 30
RTM_NEWRULE: Final = 32
RTM_DELRULE: Final = 33
RTM_GETRULE: Final = 34
RTM_NEWMULTICAST: Final = 56
RTM_DELMULTICAST: Final = 57
RTM_GETMULTICAST: Final = 58
RTM_GETANYCAST: Final = 62
RTM_NEWNEXTHOP: Final = 104
RTM_DELNEXTHOP: Final = 105
RT_SCOPE_UNIVERSE: Final = 0
RT_SCOPE_LINK: Final = 253
RT_SCOPE_HOST: Final = 254
RTPROT_STATIC: Final = 4
RTPROT_DHCP: Final = 16
RTNH_F_ONLINK: Final = 4
IFF_UP: Final = 0x1
IFF_ALLMULTI: Final = 0x200
IFA_LIFE_INFINITE: Final = 0xFFFFFFFF  # INFINITY_LIFE_TIME, include/net/addrconf.h
IFA_F_NODAD: Final = 0x02
IFA_F_TENTATIVE: Final = 0x40
IFA_F_STABLE_PRIVACY: Final = 0x800
IN6_ADDR_GEN_MODE_NONE: Final = 1
IN6_ADDR_GEN_MODE_STABLE_PRIVACY: Final = 2
IN6_ADDR_GEN_MODE_RANDOM: Final = 3


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface as the kernel lists it.

    `is_router` says whether it forwards IPv6 packets, `receives_all` whether a program wants all multicast
    groups: a multicast router, a packet socket (both since Linux 6.0), or `ip link set allmulticast on`.
    `addr_gen_mode` is the sysctl of that name, None if the interface has no IPv6. `was_down` says whether
    the interface has been down since the listing before, even if it is up. `frame_bytes` is the longest
    frame (super-frame) of IPv6 that the kernel gives it, None where the kernel does not say.
    """

    index: int
    name: str
    mtu_bytes: int
    up: bool
    hwaddr: str | None
    is_router: bool = False
    master: int | None = None
    receives_all: bool = False
    addr_gen_mode: int | None = None  # IN6_ADDR_GEN_MODE_*
    was_down: bool = False
    frame_bytes: int | None = None

    @property
    def carries_ipv6(self) -> bool:
        """Return whether the kernel holds IPv6 addresses for it: it is up, with an MTU that IPv6 needs."""
        return self.up and self.mtu_bytes >= IPV6_MIN_MTU


def _lifetime(seconds: float) -> int:
    return IFA_LIFE_INFINITE if seconds >= IFA_LIFE_INFINITE else int(seconds)


class Netlink(NetlinkSocket):
    """Requests to the kernel about one network namespace."""

    # Links

    def link(self, name: str | int) -> Link | None:
        """Return the interface of that name or index, or None."""
        try:
            answers = self.ask(RTM_GETLINK, 0, link_request(name), f"looking up interface {name}")
        except NoSuchDevice:
            return None
        if not answers:
            return None
        link = read_link(*answers[0])
        return Link(
            index=link.index,
            name=link.name,
            mtu_bytes=link.mtu_bytes,
            up=bool(link.flags & IFF_UP),
            hwaddr=link.hwaddr,
            is_router=link.forwards_ipv6,
            master=link.master,
            receives_all=bool(link.flags & IFF_ALLMULTI) or link.counts_allmulti,
            addr_gen_mode=link.addr_gen_mode,
            frame_bytes=link.frame_bytes,
        )

    def set_link(
        self,
        index: int,
        *,
        up: bool | None = None,
        mtu_bytes: int | None = None,
        txqueuelen: int | None = None,
        frame_bytes: tuple[int, int] | None = None,
        master: int | None = None,
        kernel_link_local: bool = True,
    ) -> None:
        """Change the given settings; `frame_bytes` are the longest frames of IPv4 and of IPv6, which old
        kernels ignore, wholly or for IPv4. With `kernel_link_local` False the kernel generates no link-local
        address."""
        body = link_change(
            index,
            flags=IFF_UP if up else 0,
            change=0 if up is None else IFF_UP,
            mtu_bytes=mtu_bytes,
            txqueuelen=txqueuelen,
            frame_bytes=frame_bytes,
            master=master,
            addr_gen_mode=None if kernel_link_local else IN6_ADDR_GEN_MODE_NONE,
        )
        self.ask(RTM_NEWLINK, NLM_F_ACK, body, f"setting interface {index}")

    def create_bridge(self, name: str) -> None:
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        self.ask(RTM_NEWLINK, flags, new_bridge(name), f"creating bridge {name}")

    def create_veth(
        self, name: str, hwaddr: str, peer: str, peer_hwaddr: str, peer_namespace: int
    ) -> None:
        """Make a pair of joined interfaces: `name` here, `peer` in the namespace of the descriptor."""
        body = new_veth(name, hwaddr, peer, peer_hwaddr, peer_namespace)
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        self.ask(RTM_NEWLINK, flags, body, f"creating the veth pair {name}, {peer}")

    # Addresses

    def addresses(self, index: int) -> set[IpInterface]:
        """Return the interface's addresses; none if the interface is gone."""
        return set(self.flagged_addresses(index))

    def flagged_addresses(self, index: int) -> dict[IpInterface, int]:
        """Return the interface's addresses with their IFA_F_* bits; none if it is gone."""
        try:
            answers = self.exchange_all(RTM_GETADDR, request(0, index), "listing addresses")
        except NoSuchDevice:
            return {}
        found = (read_interface(data, offset) for data, offset in answers)
        return {address: flags for at, address, flags in found if at == index}

    def other_addresses(self, index: int, widest: int) -> set[ipaddress.IPv4Address]:
        """Return the IPv4 addresses of all other interfaces that this interface lacks; of scopes (RT_SCOPE_*)
        up to `widest`."""
        answers = self._dump(RTM_GETADDR, request(socket.AF_INET, 0), "addresses") or []
        found = [read_address(data, offset) for data, offset in answers]
        own = {address for at, _, address in found if at == index}
        return {ip for _, scope, ip in found if ip and scope <= widest} - own

    def add_address(
        self,
        index: int,
        address: IpInterface,
        *,
        nodad: bool = False,
        lifetimes_s: tuple[float, float] | None = None,
    ) -> None:
        """Add or refresh an address, with its subnet's broadcast address as `ip address add ... brd +`
        does; with `nodad` the kernel takes an IPv6 address at once, which it does for a TUN anyway.
        `lifetimes_s` are its preferred and valid lifetime, for ever by default.
        """
        broadcast, ifa_flags, life_s = None, 0, None
        if isinstance(address, ipaddress.IPv4Interface):
            if address.network.prefixlen < 31:  # RFC 3021: no broadcast on /31
                broadcast = address.network.broadcast_address
        elif nodad:
            ifa_flags = IFA_F_NODAD
        if lifetimes_s is not None:
            preferred_s, valid_s = (_lifetime(each) for each in lifetimes_s)
            # The kernel refuses a valid lifetime of 0, and a preferred one beyond it.
            life_s = min(preferred_s, max(valid_s, 1)), max(valid_s, 1)
        body = address_body(
            index, address, broadcast=broadcast, flags=ifa_flags, lifetimes_s=life_s
        )
        flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
        self.ask(RTM_NEWADDR, flags, body, f"adding address {address}")

    def remove_address(self, index: int, address: IpInterface) -> None:
        """Remove an address; does nothing if the interface does not have it."""
        try:
            body = address_body(index, address)
            self.ask(RTM_DELADDR, NLM_F_ACK, body, f"removing {address}")
        except LinkError as error:
            if refused_with(error) != errno.EADDRNOTAVAIL:
                raise

    # Proxies

    def anycasts(self, index: int) -> set[IpAddress]:
        """Return the IPv6 anycast addresses of the interface."""
        answers = (
            self._dump(RTM_GETANYCAST, request(socket.AF_INET6, index), "anycast addresses") or []
        )
        found = (read_group(data, offset) for data, offset in answers)
        return {ip for at, ip in found if at == index and ip is not None}

    def proxies(self, index: int) -> set[IpAddress]:
        """Return the addresses for which the interface has proxy entries (`ip neigh show proxy`)."""
        proxies: set[IpAddress] = set()
        for family in (socket.AF_INET, socket.AF_INET6):
            answers = self._dump(RTM_GETNEIGH, proxy_request(family), "proxy entries") or []
            for data, offset in answers:
                at, ip = read_proxy(data, offset)
                if at == index and ip is not None:
                    proxies.add(ip)
        return proxies

    def ipv6_neighbours(self, but: int) -> set[ipaddress.IPv6Address]:
        """Return the IPv6 neighbours of all interfaces except `but`, without link-local ones."""
        body = neighbour_request(socket.AF_INET6)
        found = (
            read_neighbour(data, at)
            for data, at in self._dump(RTM_GETNEIGH, body, "neighbours") or []
        )
        return {ip for index, ip in found if index != but and _is_global(ip)}

    def ipv6_host_routes(self, but: int) -> set[ipaddress.IPv6Address]:
        """Return the IPv6 hosts to which a route of their own leads, not over the interface `but`."""
        found = (ipv6_host_of(*at) for at in self._routes_elsewhere(but, socket.AF_INET6))
        return {ip for ip in found if _is_global(ip)}

    def networks_behind(self, but: int) -> set[IpNetwork]:
        """Return the networks to which unicast routes lead, not over the interface `but`, without loopback
        and link-local ones."""
        families = (socket.AF_INET, socket.AF_INET6)
        listed = (at for family in families for at in self._routes_elsewhere(but, family))
        found = (unicast_network(*at) for at in listed)
        return {it for it in found if it and not it.is_loopback and not it.is_link_local}

    def _routes_elsewhere(self, but: int, family: int) -> Iterator[tuple[bytes, int]]:
        """Yield (datagram, offset) of each route of which no hop is over the interface `but`."""
        body = route_head(family)
        over: dict[int, tuple[NextHop, ...]] | None = None
        for data, at in self._dump(RTM_GETROUTE, body, "routes") or []:
            leaves_by = output_interfaces(data, at)
            if but in leaves_by:
                continue
            if not leaves_by and (number := nexthop_number(data, at)):
                over = self.nexthops(but) if over is None else over
                if over.get(number):
                    continue
            yield data, at

    def _dump(self, kind: int, body: bytes, what: str) -> list[tuple[bytes, int]] | None:
        """Return (datagram, offset) of each answer; None if this kernel cannot list that."""
        try:
            return self.exchange_all(kind, body, f"listing {what}")
        except NoSuchDevice:
            return []
        except LinkError as error:
            if refused_with(error) in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):
                return None
            if refused_with(error) == errno.ENOENT:  # a new namespace has no table of routes yet
                return []
            raise

    # Groups

    def groups(self, index: int, family: int) -> set[IpAddress] | None:
        """Return the multicast groups that the kernel's stack receives on the interface; None if this
        kernel cannot list them (IPv4 before Linux 6.15, or a kernel without that family)."""
        answers = self._dump(RTM_GETMULTICAST, request(family, index), "multicast groups")
        if answers is None:
            return None
        found = (read_group(data, offset) for data, offset in answers)
        return {group for at, group in found if at == index and group is not None}

    def routed_groups(self) -> set[IpAddress]:
        """Return the groups for which the kernel has multicast routes, from whichever interface."""
        found: set[IpAddress] = set()
        for family in FAMILIES_MULTICAST:
            body = route_head(family)
            for data, at in self._dump(RTM_GETROUTE, body, "multicast routes") or []:
                group = routed_group(data, at)
                if group is not None and group.is_multicast:
                    found.add(group)
        return found

    # Routes

    def routes(self, index: int, reader: RouteReader) -> Iterator[tuple[bytes, RouteEntry]]:
        """Yield prefixes and entries of every table's routes over the interface, in the kernel's order.

        The method leaves out local, multicast and blackhole routes, whose packets never reach the
        interface.
        """
        for family in (socket.AF_INET, socket.AF_INET6):
            body = route_head(family) + u32(RTA_OIF, index)
            try:
                for data, at in self.exchange(RTM_GETROUTE, NLM_F_DUMP, body, "listing routes"):
                    found = reader.read(data, at)
                    if found is not None:
                        yield found
            except NoSuchDevice:
                continue
            except LinkError as error:
                if refused_with(error) in (errno.EOPNOTSUPP, errno.EAFNOSUPPORT):
                    continue  # a kernel without that family has no such routes
                raise

    def has_local_networks(self) -> bool:
        """Return whether the host has local IPv4 routes to whole networks (`ip route add local`)."""
        body = route_head(socket.AF_INET, RT_TABLE_LOCAL)
        answers = self._dump(RTM_GETROUTE, body, "local routes") or []
        return any(is_local_network(data, offset) for data, offset in answers)

    def is_local(self, ip: ipaddress.IPv4Address, vrf: int | None) -> bool:
        """Return whether `ip` is an address of the host, or of its VRF with that index."""
        return is_local(self, ip, vrf)

    def rules(self) -> list[Rule]:
        """The policy rules of both families."""
        rules: list[Rule] = []
        for family in (socket.AF_INET, socket.AF_INET6):
            body = struct.pack("=B11x", family)  # struct fib_rule_hdr
            # A kernel without rules, or without that family, or the interface has left the namespace.
            with contextlib.suppress(LinkError, NoSuchDevice):
                answers = self.exchange(RTM_GETRULE, NLM_F_DUMP, body, "listing rules")
                rules += [read_rule(data, offset) for data, offset in answers]
        return rules

    def nexthops(self, index: int) -> dict[int, tuple[NextHop, ...]]:
        """The nexthop objects by number, with their hops over the interface."""
        try:
            answers = self.exchange(RTM_GETNEXTHOP, NLM_F_DUMP, bytes(8), "listing next hops")
            return hops_by_number((read_nexthop(data, at) for data, at in answers), index)
        except (LinkError, NoSuchDevice):  # before Linux 5.3, or the interface has left
            return {}

    def add_route(self, index: int, network: IpNetwork, via: IpAddress | None) -> None:
        """Add or replace a route in the main table; an IPv4 network may go via an IPv6 gateway."""
        body = route_body(index, network, via, RTPROT_STATIC)
        action = f"adding route {network}" + (f" via {via}" if via else "")
        self.ask(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE, body, action)

    def remove_route(self, index: int, network: IpNetwork, via: IpAddress | None) -> None:
        """Remove what `add_route` added; does nothing if it is gone."""
        self._remove(route_body(index, network, via, RTPROT_STATIC), network)

    def add_lease_route(
        self, index: int, network: IpNetwork, via: IpAddress | None, metric: int
    ) -> None:
        """Add a route of DHCP behind those of the same metric, if it is not there; its gateway is on the
        link."""
        flags = RTNH_F_ONLINK if via is not None else 0
        body = route_body(index, network, via, RTPROT_DHCP, flags=flags, metric=metric)
        action = f"adding route {network}" + (f" via {via}" if via else "")
        try:
            self.ask(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_APPEND, body, action)
        except LinkError as error:
            if refused_with(error) != errno.EEXIST:
                raise

    def remove_lease_route(
        self, index: int, network: IpNetwork, via: IpAddress | None, metric: int
    ) -> None:
        """Remove what `add_lease_route` added; does nothing if it is gone."""
        self._remove(route_body(index, network, via, RTPROT_DHCP, metric=metric), network)

    def _remove(self, body: bytes, network: IpNetwork) -> None:
        try:
            self.ask(RTM_DELROUTE, NLM_F_ACK, body, f"removing route {network}")
        except LinkError as error:
            if refused_with(error) != errno.ESRCH:
                raise


def _is_global(ip: IpAddress | None) -> TypeGuard[ipaddress.IPv6Address]:
    return isinstance(ip, ipaddress.IPv6Address) and not ip.is_link_local and not ip.is_multicast
