# SPDX-License-Identifier: BSD-2-Clause
"""The status of an interface as plain values with stable keys, for `Endpoint` and the command line.

Every function but `guests` runs on the interface's thread; `Endpoint`'s methods document the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.addr import Gid, HwAddr, IpAddress
from ipoibu.base.ib import ETHERNET, IWARP, PartitionParams
from ipoibu.endpoint.interface.interface import Interface
from ipoibu.wire import mgid

if TYPE_CHECKING:
    from ipoibu.proto.ethernet.guests import GuestInfo
    from ipoibu.proto.ethernet.macs import NeighbourInfo
    from ipoibu.proto.ethernet.refusals import RefusalInfo

RAIL_TRAFFIC: Final = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")


def show(interface: Interface) -> dict[str, Any]:
    config, path, params = interface.config, interface.path, interface.params
    info, hwaddr = interface.port.info, interface.path.hwaddr
    return {
        "name": config.name,
        "device": info.device,
        "port": info.port,
        "link_layer": info.link_layer,
        "netdev": info.netdev,
        "state": "up" if interface.engine.is_up else "down",
        "mode": config.mode,
        "mtu": path.mtu_bytes,
        "link_mtu": path.mtu_bytes,
        "ib_mtu": params.mtu_bytes,
        "offload": list(path.device.offload),
        "queues": config.queues,
        "parent": config.parent,
        "pkey": str(params.pkey),
        "membership": "limited" if params.is_limited else "full",
        "qkey": f"0x{params.qkey:08x}",
        "hwaddr": str(hwaddr),
        "broadcast": str(mgid.hwaddr(mgid.broadcast(params.pkey, params.scope))),
        "qpn": str(hwaddr.qpn),
        "gid": str(info.gid),
        "gid_by": info.gid_by,
        "guid": info.guid.hex(),
        "addresses": [
            {"address": str(entry.address), "state": entry.state.value}
            for entry in interface.engine.addresses()
        ],
        "dhcp": dhcp(interface),
        "dhcp6": dhcp6(interface),
        "rail_mode": config.rail_mode,
        "rails": rails(interface),
        "ethernet": ethernet(interface),
    }


def rails(interface: Interface) -> list[dict[str, Any]] | None:
    """The devices of an interface with several; None for one device. `peers` counts the hosts to which flows
    go by that device as by others; traffic counts from the last queue pair on. Both are None where only the
    active device has a queue pair."""
    shown = interface.ports.snapshot(interface.loop.time())
    if shown is None:
        return None
    joined = None if interface.shell.is_severed else interface.path.joined
    usable = () if joined is None else joined.usable().values()
    for index, rail in enumerate(shown):
        if joined is not None and joined.has(index):
            rail["peers"] = sum(bits >> index & 1 for bits in usable)
            rail.update(joined.traffic(index))
        else:
            rail.update(dict.fromkeys(("peers", *RAIL_TRAFFIC)))
    return shown


def dhcp(interface: Interface) -> dict[str, Any] | None:
    """The state of the DHCP client and its lease; None without a client, and where there is no lease."""
    client = interface.engine.dhcp
    if client is None:
        return None
    info = client.info(interface.loop.time())
    lease = info.lease
    return {
        "state": info.state.value,
        "client_id": client.client_id.hex(":"),
        "address": str(lease.address) if lease is not None else None,
        "server": str(lease.server) if lease is not None else None,
        "expires_s": _rounded(info.end_s),
        "renews_s": _rounded(info.renewal_s),
        "routes": [
            {"to": str(network), "via": str(via) if via is not None else None}
            for network, via in (lease.routes if lease is not None else ())
        ],
        "mtu": lease.mtu_bytes if lease is not None else None,
        "dns": [str(ip) for ip in lease.dns] if lease is not None else [],
        "domain": (lease.domain or None) if lease is not None else None,
        "search": list(lease.search) if lease is not None else [],
    }


def dhcp6(interface: Interface) -> dict[str, Any] | None:
    """The state of the DHCPv6 client and its lease; None without a client."""
    client = interface.engine.dhcp6
    if client is None:
        return None
    info = client.info(interface.loop.time())
    lease = info.lease
    return {
        "state": info.state.value,
        "duid": client.duid.hex(":"),
        "iaid": client.iaid.hex(":"),
        "address": str(lease.address) if lease is not None else None,
        "server": lease.server.hex(":") if lease is not None else None,
        "preferred_s": _rounded(lease.preferred_s) if lease is not None else None,
        "expires_s": _rounded(info.end_s),
        "renews_s": _rounded(info.renewal_s),
        "dns": [str(ip) for ip in lease.dns] if lease is not None else [],
        "search": list(lease.search) if lease is not None else [],
    }


def _rounded(seconds: float | None) -> float | None:
    """Return whole milliseconds; None also for a time that never comes, which JSON cannot have."""
    return round(seconds, 3) if seconds is not None and seconds != math.inf else None


def neighbours(interface: Interface, ips: Iterable[IpAddress]) -> list[dict[str, Any]]:
    underlay = _underlay(interface)
    return [
        {
            "ip": str(info.ip),
            "hwaddr": str(info.hwaddr) if info.hwaddr is not None else None,
            "underlay": underlay(info.hwaddr),
            "state": info.state.value,
            "age_s": round(info.age_s, 3),
            "pending": info.pending,
            "router": info.is_router,
        }
        for info in interface.engine.neighbours(interface.loop.time(), ips)
    ]


def handed_off(
    interface: Interface,
) -> tuple[list[GuestInfo], list[NeighbourInfo], list[RefusalInfo]]:
    """The guests behind a TAP, the MACs that stand for hosts of the link, and who was refused."""
    ethernet, now = interface.engine.ethernet, interface.loop.time()
    if ethernet is None:
        return [], [], []
    return ethernet.guests(now), ethernet.neighbours(now), ethernet.refusals(now)


def guests(
    known: Iterable[GuestInfo], hosts: Iterable[NeighbourInfo], refused: Iterable[RefusalInfo]
) -> list[dict[str, Any]]:
    """Return guests, hosts of the link and refusals as plain values; any thread may call it."""
    return (
        [
            {
                "kind": "guest",
                "ip": str(guest.ip),
                "mac": str(guest.mac),
                "hwaddr": None if guest.hwaddr is None else str(guest.hwaddr),
                "state": guest.state.value,
                "age_s": round(guest.heard_s, 3),
                "count": None,
                "holder": None,
            }
            for guest in known
        ]
        + [
            {
                "kind": "host",
                "ip": None,
                "mac": str(host.mac),
                "hwaddr": str(host.hwaddr),
                "state": "used" if host.is_used else "heard",
                "age_s": round(host.heard_s, 3),
                "count": None,
                "holder": None,
            }
            for host in hosts
        ]
        + [
            {
                "kind": "refused",
                "ip": str(it.ip),
                "mac": str(it.mac),
                "hwaddr": None,
                "state": it.reason.value,
                "age_s": round(it.age_s, 3),
                "count": it.count,
                "holder": None if it.holder is None else str(it.holder),
            }
            for it in refused
        ]
    )


def ethernet(interface: Interface) -> dict[str, Any] | None:
    """The MAC that guests see as the source of packets; None without guests behind a TAP."""
    host, config = interface.engine.ethernet, interface.config.ethernet
    if host is None or config is None:
        return None
    return {"mac": str(host.mac), "guests": host.guest_count, "vlan": config.vlan}


def _underlay(interface: Interface) -> Callable[[HwAddr | None], str | None]:
    """Return a function from a neighbour's hardware address to its address on the underlay, if it has one."""
    link_layer = interface.port.info.link_layer
    listens: dict[str, str] = {}
    if link_layer == IWARP:
        listens = {it["peer"]: it["underlay"] for it in interface.fabric.peers()}

    def find(hwaddr: HwAddr | None) -> str | None:
        if hwaddr is None:
            return None
        return (
            str(hwaddr.gid.ip)
            if link_layer == ETHERNET
            else listens.get(str(replace(hwaddr, flags=0)))
        )

    return find


def groups(interface: Interface) -> list[dict[str, Any]]:
    return [
        {
            "mgid": str(info.mgid),
            "groups": [str(ip) for ip in info.ips],
            "state": info.state.value,
            "kind": info.kind.value,
            "users": info.users,
            "idle_s": round(info.idle_s, 3) if info.idle_s is not None else None,
        }
        for info in interface.engine.groups(interface.loop.time())
    ] + [
        {
            "mgid": str(group),
            "groups": [str(ip)] if (ip := mgid.ip_group(group)) is not None else [],
            "state": "member",
            "kind": "non-member",
            "users": 0,
            "idle_s": None,
        }
        for group in interface.subnet.others()
    ]


def paths(interface: Interface, gids: Iterable[Gid]) -> list[dict[str, Any]]:
    """The paths of a subnet administrator."""
    return [
        {
            "gid": str(info.gid),
            "state": info.state,
            "lid": getattr(info.destination, "dlid", None),
            "sl": getattr(info.destination, "sl", None),
            "rate": getattr(info.destination, "static_rate", None),
            "hop_limit": getattr(info.destination, "hop_limit", None),
            "traffic_class": getattr(info.destination, "traffic_class", None),
            "flow_label": getattr(info.destination, "flow_label", None),
            "mtu": info.mtu_bytes,
            "next_hops": [str(ip) for ip in info.next_hops],
            "waiting": info.waiting,
        }
        for info in interface.engine.paths.snapshot(gids)
    ]


def shared_paths(
    params: PartitionParams, mtu_bytes: int, neighbours: Iterable[dict[str, Any]]
) -> list[dict[str, Any]]:
    """The paths to the ports of these neighbours, on a link without a subnet administrator."""
    users: dict[str, list[str]] = {}
    for entry in neighbours:
        if entry["hwaddr"] is not None:
            users.setdefault(str(HwAddr.parse(entry["hwaddr"]).gid), []).append(entry["ip"])
    return [
        {
            "gid": gid,
            "state": "static",
            "lid": None,
            "sl": params.sl,
            "rate": params.rate,
            "hop_limit": params.hop_limit,
            "traffic_class": params.traffic_class,
            "flow_label": params.flow_label,
            "mtu": mtu_bytes,
            "next_hops": ips,
            "waiting": 0,
        }
        for gid, ips in users.items()
    ]


def stats(interface: Interface) -> dict[str, int]:
    pump, retired = interface.path.pump, interface.retired
    out = {name: value + retired[name] for name, value in pump.counters().items()}
    out |= {f"fabric.{name}": value for name, value in interface.fabric_counters().items()}
    counts = interface.counts + interface.rc.port_counts + interface.ports.sa_counters()
    out |= {f"engine.{name}": value for name, value in sorted(counts.items())}
    out["engine.commands_dropped"] = pump.commands_dropped + retired["commands_dropped"]
    return out
