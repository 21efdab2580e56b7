# SPDX-License-Identifier: BSD-2-Clause
"""The part of the checkup about proxies: why a running interface does not answer for a host behind it.

It asks the daemons of this network namespace and the kernel, and the link for single addresses (one ARP
request or neighbour solicitation each); it changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, Final, Protocol

from ipoibu.base.addr import IpAddress, IpNetwork
from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import (
    PROXY_ANSWERS_MAX,
    PROXY_ENUMERATED_MAX,
    PROXY_GROUPS_MAX,
    PROXY_NETWORKS_MAX,
    PROXY_STRANGERS_MAX,
    PROXY_STRANGERS_PER_S,
)
from ipoibu.daemon.config.parsers import Proxied
from ipoibu.daemon.control.client import Client
from ipoibu.doctor.daemons import Shown
from ipoibu.doctor.finding import Finding
from ipoibu.host.netlink import Netlink
from ipoibu.host.proxy_query import ProxyQuery
from ipoibu.host.sysctl import Sysctls

CHECK: Final = "proxy"
ASKED_MAX: Final = 32  # single addresses for which the link is asked
ASKED_AT_ONCE: Final = 8
ANSWER_MS: Final = 500
FORWARDING: Final = {4: "net.ipv4.ip_forward", 6: "net.ipv6.conf.all.forwarding"}


class Kernel(Protocol):
    """Holds what the kernel says about hosts behind one interface."""

    def forwards(self, version: int) -> bool: ...
    def answers_nd(self) -> bool: ...
    def obstacle(self, ip: IpAddress) -> str | None: ...
    def networks_behind(self) -> set[IpNetwork]: ...


@dataclass(frozen=True, slots=True)
class ProxyState:
    """Holds what a daemon says about the proxy of its interface: the rows of `ipoibu neigh show proxy -j`,
    the counters of its engine, and whether it receives every group of the link."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    counters: Mapping[str, int]
    receives_all: bool = False


def proxies(shown: Shown) -> Iterator[Finding]:
    """Yield findings about every interface that is a proxy; about one that does not answer any more,
    nothing."""
    for name, each in shown.items():
        with suppress(IpoibuError, OSError):
            yield from _interface(name, each)


def _interface(name: str, shown: Mapping[str, Any]) -> Iterator[Finding]:
    if shown["ethernet"]:
        return
    with Client(name) as client:
        rows = client.request("proxies")
        if not rows:
            return
        stats = client.request("stats")
    counters = {
        key.removeprefix("engine."): int(value)
        for key, value in stats.items()
        if key.startswith("engine.proxy_")
    }
    # Under a subnet administrator the proxy receives every group; only such a port has a LID.
    state = ProxyState(name, rows, counters, shown["link_layer"] == "InfiniBand")
    with Netlink() as netlink:
        link = netlink.link(name)
        if link is None:
            return
        query = ProxyQuery(link.index)
        try:
            query.vrf = link.master
            yield from findings(state, OwnKernel(name, link.index, netlink, query), Owners(name))
        finally:
            query.close()


class OwnKernel:
    """The kernel of this network namespace."""

    def __init__(self, name: str, index: int, netlink: Netlink, query: ProxyQuery) -> None:
        self._name = name
        self._index = index
        self._netlink = netlink
        self._query = query
        self._sysctls = Sysctls(netlink.namespace)

    def forwards(self, version: int) -> bool:
        return bool(self._sysctls.own(f"ipv{version}", self._name, "forwarding"))

    def answers_nd(self) -> bool:
        """Return whether the kernel's own entries count for IPv6."""
        return bool(self._sysctls.larger("ipv6", self._name, "proxy_ndp"))

    def obstacle(self, ip: IpAddress) -> str | None:
        return self._query.obstacle(ip)

    def networks_behind(self) -> set[IpNetwork]:
        return self._netlink.networks_behind(self._index)


class Owners:
    """Asks the link of an interface who has an address, by the daemon."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, ips: Sequence[IpAddress]) -> dict[IpAddress, str]:
        """Return the hardware addresses of the hosts of the link that answer for `ips`."""
        with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
            found = zip(ips, pool.map(self._owner, ips), strict=True)
            return {ip: owner for ip, owner in found if owner is not None}

    def _owner(self, ip: IpAddress) -> str | None:
        with suppress(IpoibuError, OSError), Client(self._name) as client:
            answer = client.request("ping", target=str(ip), timeout_ms=ANSWER_MS)
            return str(answer["hwaddr"]) if answer["reason"] is None else None
        return None


# Returns the hardware addresses of the hosts of the link that answer for some of these addresses.
AskOwners = Callable[[Sequence[IpAddress]], Mapping[IpAddress, str]]


def findings(state: ProxyState, kernel: Kernel, owners: AskOwners) -> Iterator[Finding]:
    """Yield what keeps the interface from answering as its administrator wants; one `ok` if nothing does."""
    problems = [
        *_forwarding(state, kernel),
        *_routes(state, kernel),
        *_owned(state, kernel, owners),
        *_counted(state),
    ]
    yield from problems
    if not any(it.status == "warn" for it in problems):
        text = f"{state.name} answers for {len(state.rows)} proxy entries"
        yield Finding(CHECK, "ok", text)


def _networks(state: ProxyState) -> list[IpNetwork]:
    """The networks and addresses of the administrator, without `routes` and the kernel's entries."""
    texts = [row["proxy"] for row in state.rows if row["origin"] != "kernel"]
    return [ip_network(text) for text in texts if text != Proxied.ROUTES.value]


def _is_by_routes(state: ProxyState) -> bool:
    return any(row["proxy"] == Proxied.ROUTES.value for row in state.rows)


def _kernels(state: ProxyState) -> list[IpAddress]:
    return [ip_address(row["proxy"]) for row in state.rows if row["origin"] == "kernel"]


def _forwarding(state: ProxyState, kernel: Kernel) -> Iterator[Finding]:
    versions = {it.version for it in (*_networks(state), *_kernels(state))}
    if _is_by_routes(state):
        versions |= {4, 6}
    for version in sorted(versions):
        if not kernel.forwards(version):
            text = f"{state.name} does not forward IPv{version}, so it answers for no such host"
            yield Finding(CHECK, "warn", text, f"sysctl -w {FORWARDING[version]}=1")
    if any(ip.version == 6 for ip in _kernels(state)) and not kernel.answers_nd():
        text = f"{state.name} ignores the IPv6 entries of `ip neigh add proxy` without proxy_ndp"
        yield Finding(CHECK, "warn", text, f"sysctl -w net.ipv6.conf.{state.name}.proxy_ndp=1")


def _routes(state: ProxyState, kernel: Kernel) -> Iterator[Finding]:
    behind = kernel.networks_behind()
    if _is_by_routes(state) and not any(network.prefixlen for network in behind):
        text = f"{state.name} answers by routes, and none but a default route leads elsewhere"
        yield Finding(CHECK, "warn", text, "ip route add NETWORK dev DEVICE")
    for network in _networks(state):
        is_single = network.num_addresses == 1
        first = network[0] if is_single else network[1]
        obstacle = kernel.obstacle(first)
        if obstacle is not None and is_single:
            text = f"{state.name} does not answer for {first}: {obstacle}"
            yield Finding(CHECK, "warn", text, _route_to(network))
        elif obstacle is not None and not any(_is_within(each, network) for each in behind):
            text = f"{state.name} answers for no host of {network}: no route in it leads elsewhere"
            yield Finding(CHECK, "warn", text, _route_to(network))
        if (
            network.version == 6
            and network.num_addresses > PROXY_ENUMERATED_MAX
            and not state.receives_all
        ):
            text = (
                f"{state.name} hears requests for a host of {network} once the kernel knows the"
                " host: by its first packet, or by a route to it alone"
            )
            yield Finding(CHECK, "info", text)


def _route_to(network: IpNetwork) -> str:
    return f"ip route add {network} dev DEVICE"


def _is_within(inner: IpNetwork, outer: IpNetwork) -> bool:
    return (
        inner.version == outer.version
        and inner.prefixlen >= outer.prefixlen
        and inner.network_address in outer
    )


def _owned(state: ProxyState, kernel: Kernel, owners: AskOwners) -> Iterator[Finding]:
    singles = [it.network_address for it in _networks(state) if it.num_addresses == 1]
    behind = [ip for ip in singles if kernel.obstacle(ip) is None]
    for ip, hwaddr in owners(behind[:ASKED_MAX]).items():
        text = f"{ip} is behind {state.name}, and the host {hwaddr} on the link answers for it, too"
        yield Finding(CHECK, "warn", text, f"ipoibu neigh del proxy {ip} dev {state.name}")
    if len(behind) > ASKED_MAX:
        text = f"{state.name}: the link was asked for {ASKED_MAX} of {len(behind)} addresses alone"
        yield Finding(CHECK, "info", text)


def _counted(state: ProxyState) -> Iterator[Finding]:
    """Yield a warning for each cap that the interface has reached since it came up."""
    name = state.name
    slower = f"sysctl -w net.ipv4.neigh.{name}.proxy_delay=0 net.ipv6.neigh.{name}.proxy_delay=0"
    caps = {
        "proxy_table_full": (
            f"answers for {PROXY_NETWORKS_MAX} networks, not for further ones",
            None,
        ),
        "proxy_groups_full": (
            f"receives the solicited-node groups of {PROXY_GROUPS_MAX} hosts, not of further ones",
            "ip route add NETWORK via ROUTER, on the hosts of the link",
        ),
        "proxy_answers_full": (
            f"drops requests while {PROXY_ANSWERS_MAX} answers, or {PROXY_STRANGERS_MAX} to hosts"
            " that have never answered, wait for proxy_delay",
            slower,
        ),
        "proxy_limited": (
            f"looks at {PROXY_STRANGERS_PER_S:.0f} requests a second of hosts that have never"
            " answered, not at further ones",
            None,
        ),
        "proxy_conflict": ("saw another host use an address behind it: its log names both", None),
    }
    for counter, (text, remedy) in caps.items():
        count = state.counters.get(counter, 0)
        if count:
            yield Finding(CHECK, "warn", f"{name} {text} ({counter} {count})", remedy)
