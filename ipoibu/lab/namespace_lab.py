# SPDX-License-Identifier: BSD-2-Clause
"""Hosts in network namespaces on one wire, for demonstrations, tests and benchmarks.

    with NamespaceLab(hosts=3) as lab:
        lab.hosts[0].run(["ping", "-c1", str(lab.hosts[1].ipv4.ip)])

A veth pair joins two hosts, a bridge in a namespace of its own joins more. The kernel signals every
process of a lab when the lab's thread ends, so a killed lab leaves no process. The next lab removes
its namespaces, whose names carry the process number.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

from ipoibu.base.closing import Closing
from ipoibu.base.errors import UsageError
from ipoibu.host.netlink import Netlink
from ipoibu.lab.directory import work_directory
from ipoibu.lab.errors import LabError
from ipoibu.lab.host import INTERFACE, NETDEV, Host
from ipoibu.lab.namespace import NETNS_DIR, LabNamespace, remove_stale
from ipoibu.lab.subnet import LabSubnet
from ipoibu.lab.underlay import Underlay, anywhere, forward, gateway, router_addresses

PREFIX: Final = "ipoibu"
HOSTS_MAX: Final = 100
NETDEV_MTU: Final = 9000  # an InfiniBand MTU of 4096 needs 4176
BRIDGE: Final = "br0"


class NamespaceLab(Closing):
    """A running lab as a context manager; `hosts` are up when it is entered, unless `start` is
    False.

    With a `subnet`, the hosts have ports of that simulated InfiniBand subnet; the lab starts and
    closes it. With an `underlay`, each host has a network of its own, and `--peer` names the first
    host. `netdev_mtu_bytes` is the MTU of the wire, `options` are further arguments of every
    `ipoibu up`. A lab belongs to one thread. It needs root, or a process that has called
    `enter_user_namespace`, and raises `NotPermitted` otherwise; `LabError` says which host did not
    come up.
    """

    def __init__(
        self,
        hosts: int = 2,
        *,
        device: str = "soft",
        netdev_mtu_bytes: int = NETDEV_MTU,
        options: Sequence[str] = (),
        subnet: LabSubnet | None = None,
        underlay: Underlay | None = None,
        start: bool = True,
    ) -> None:
        if not 2 <= hosts <= HOSTS_MAX:
            raise UsageError(f"a lab has 2 to {HOSTS_MAX} hosts, not {hosts}")
        if device != "soft":
            raise UsageError(f"{device!r} is no device of a lab: expected soft")
        if subnet is not None and underlay is not None:
            raise UsageError(
                "a subnet administrator needs a link: leave --underlay or --fabric out"
            )
        self.hosts: list[Host] = []
        self.bridge: LabNamespace | None = None  # holds the ports p1, p2, ... of 3 and more hosts
        self.router: LabNamespace | None = None  # holds those of a routed underlay
        self._count = hosts
        self._device = device
        self._netdev_mtu_bytes = netdev_mtu_bytes
        self._options = list(options)
        self._subnet = subnet
        self._underlay = underlay
        self._start = start
        self._namespaces: list[LabNamespace] = []
        self._work = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End every daemon and remove every namespace, whatever state the lab is in."""
        with contextlib.ExitStack() as stack:
            if self._subnet is not None:
                stack.callback(self._subnet.close)
            stack.callback(self._work.close)
            for namespace in self._namespaces:
                stack.callback(namespace.remove)
            for host in self.hosts:
                stack.callback(host.stop)
        self._namespaces.clear()

    def _build(self) -> None:
        remove_stale(PREFIX)
        prefix = _free_prefix()
        work = self._work.enter_context(work_directory("lab"))
        work.chmod(0o711)  # daemons of other users report to a socket in it
        for number in range(1, self._count + 1):
            namespace = self._namespace(f"{prefix}-h{number}")
            device = f"{self._device}:{NETDEV}"
            if self._subnet is not None:
                device = self._subnet.device(NETDEV)
            host = Host(number, namespace, work, device, self._options, subnet=self._subnet)
            if self._underlay is not None:
                host.use(self._underlay)
            self.hosts.append(host)
        if self._underlay is not None:
            self._join_by_router(self._namespace(f"{prefix}-rt"), self._underlay)
        elif self._count == 2:
            self._join_by_veth()
        else:
            self._join_by_bridge(self._namespace(f"{prefix}-br"))
        for host in self.hosts:
            host.namespace.inside(lambda host=host: self._set_up(host))  # type: ignore[misc]
        if self._subnet is not None:
            self._subnet.start()
        if self._start:
            self.start()

    def start(self) -> None:
        """Start all daemons at once and wait until the last is ready."""
        for host in self.hosts:
            host.start(wait=False)
        for host in self.hosts:
            host.wait_ready()

    def _namespace(self, name: str) -> LabNamespace:
        namespace = LabNamespace.create(name)
        self._namespaces.append(namespace)
        return namespace

    # The wire

    def _join_by_veth(self) -> None:
        first, second = self.hosts

        def join() -> None:
            with Netlink() as netlink:
                netlink.create_veth(NETDEV, _hwaddr(1), NETDEV, _hwaddr(2), second.namespace.fd)

        first.namespace.inside(join)

    def _join_by_bridge(self, middle: LabNamespace) -> None:
        self.bridge = middle

        def join() -> None:
            with Netlink() as netlink:
                netlink.create_bridge(BRIDGE)
                bridge = _index(netlink, BRIDGE)
                netlink.set_link(bridge, kernel_link_local=False)
                for host in self.hosts:
                    port, hwaddr = f"p{host.number}", f"02:00:00:00:01:{host.number:02x}"
                    fd = host.namespace.fd
                    netlink.create_veth(port, hwaddr, NETDEV, _hwaddr(host.number), fd)
                    index = _index(netlink, port)
                    netlink.set_link(
                        index,
                        mtu_bytes=self._netdev_mtu_bytes,
                        master=bridge,
                        kernel_link_local=False,
                    )
                    netlink.set_link(index, up=True)
                netlink.set_link(bridge, up=True)

        middle.inside(join)

    def _join_by_router(self, middle: LabNamespace, underlay: Underlay) -> None:
        self.router = middle

        def join() -> None:
            _allow_ipv6()
            forward()
            with Netlink() as netlink:
                for host in self.hosts:
                    port, hwaddr = f"p{host.number}", f"02:00:00:00:01:{host.number:02x}"
                    fd = host.namespace.fd
                    netlink.create_veth(port, hwaddr, NETDEV, _hwaddr(host.number), fd)
                    index = _index(netlink, port)
                    mtu_bytes = self._netdev_mtu_bytes
                    netlink.set_link(index, mtu_bytes=mtu_bytes, kernel_link_local=False)
                    netlink.set_link(index, up=True)
                    for address in router_addresses(host.number, underlay):
                        netlink.add_address(index, address, nodad=address.version == 6)

        middle.inside(join)

    def _set_up(self, host: Host) -> None:
        """Set up loopback and the wire of a host, with addresses that need no DAD.

        The calling thread is in the host's namespace.
        """
        _allow_ipv6()
        with Netlink() as netlink:
            netlink.set_link(_index(netlink, "lo"), up=True)
            index = _index(netlink, NETDEV)
            netlink.set_link(index, mtu_bytes=self._netdev_mtu_bytes, kernel_link_local=False)
            netlink.set_link(index, up=True)
            if self._underlay is not None:
                for address in self._underlay.addresses(host.number):
                    netlink.add_address(index, address, nodad=address.version == 6)
                    via = gateway(host.number, address.version)
                    netlink.add_route(index, anywhere(address.version), via)
                return
            link_local = _link_local(_hwaddr(host.number))
            if self._subnet is not None:
                link_local = self._subnet.address(host.number)
            netlink.add_address(index, link_local, nodad=True)

    # For programs that run in the lab

    def environment(self) -> dict[str, str]:
        """Return IPOIBU_LAB_*: number of hosts, interface, and each host's namespace and addresses."""
        variables = {
            "IPOIBU_LAB_HOSTS": str(len(self.hosts)),
            "IPOIBU_LAB_INTERFACE": INTERFACE,
            "IPOIBU_LAB_NETDEV": NETDEV,
        }
        for host in self.hosts:
            key = f"IPOIBU_LAB_{host.name.upper()}"
            variables[f"{key}_NETNS"] = host.namespace.name
            variables[f"{key}_IPV4"] = str(host.ipv4.ip)
            variables[f"{key}_IPV6"] = str(host.ipv6.ip)
        return variables

    def describe(self) -> list[dict[str, Any]]:
        """Return for each host its names, its addresses and what its daemon answers to `show`."""
        return [
            {
                "name": host.name,
                "namespace": host.namespace.name,
                "netdev": NETDEV,
                "interface": INTERFACE,
                "ipv4": str(host.ipv4),
                "ipv6": str(host.ipv6),
                "show": host.ask("show"),
            }
            for host in self.hosts
        ]


def _free_prefix() -> str:
    """Return `ipoibu-<pid>`, or `ipoibu-<pid>-<n>` for the further labs of one process."""
    own = f"{PREFIX}-{os.getpid()}"
    for number in itertools.count(2):
        if not (NETNS_DIR / f"{own}-h1").exists():
            break
        own = f"{PREFIX}-{os.getpid()}-{number}"
    return own


def _index(netlink: Netlink, name: str) -> int:
    link = netlink.link(name)
    if link is None:
        raise LabError(f"interface {name} vanished while the lab was being built")
    return link.index


def _allow_ipv6() -> None:
    """Turn IPv6 on: a new namespace inherits it turned off from some machines."""
    # The file is read-only in some containers, where IPv6 must be on already.
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("0")


def _hwaddr(number: int) -> str:
    return f"02:00:00:00:00:{number:02x}"


def _link_local(hwaddr: str) -> ipaddress.IPv6Interface:
    """Return the link-local address with the modified EUI-64 of an Ethernet address: RFC 4291 appendix
    A."""
    raw = bytes.fromhex(hwaddr.replace(":", ""))
    identifier = bytes((raw[0] ^ 0x02,)) + raw[1:3] + b"\xff\xfe" + raw[3:]
    return ipaddress.IPv6Interface((b"\xfe\x80" + bytes(6) + identifier, 64))
