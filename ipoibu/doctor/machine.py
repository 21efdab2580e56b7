# SPDX-License-Identifier: BSD-2-Clause
"""Checks of the conditions that a machine and a device must meet before an interface can come up.

The checks change nothing and need no privilege. Only a malformed device name raises an error; a
check that cannot get its answer reports a finding.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from importlib import metadata
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from ipoibu.base.addr import DEFAULT_PKEY, Gid, IpAddress, PKey
from ipoibu.base.device_name import DeviceKind, GidKind, SoftName, parse_device, parse_soft
from ipoibu.base.distribution import install
from ipoibu.base.errors import IpoibuError, LinkError
from ipoibu.base.limits import ENCAP_LEN
from ipoibu.base.privilege import CAP_IPC_LOCK, CAP_NET_ADMIN, STATUS, is_capable
from ipoibu.doctor.finding import Finding, Status, datagram_mtu
from ipoibu.fabric.partition.conf import read
from ipoibu.fabric.soft.own_routes import REMEDIES, OwnRoute
from ipoibu.fabric.verbs.objects import missing_remedy
from ipoibu.host.netlink import IFA_F_TENTATIVE, Link, Netlink
from ipoibu.host.route_message import has_router
from ipoibu.host.route_query import RTA_DST, RTA_OIF, find_route
from ipoibu.host.tun import TUN_PATH
from ipoibu.wire.ndisc import ALL_NODES

ROCE_PORT: Final = 4791
NETDEVS: Final = Path("/sys/class/net")
RMEM_MAX: Final = Path("/proc/sys/net/core/rmem_max")
SOCKET_BUFFER_BYTES: Final = 16 << 20  # as ext/soft/udp.c asks for
MEMLOCK_FEW_FRAMES_BYTES: Final = 2 << 20  # FRAMES_MIN frames, in connected mode too
MEMLOCK_MIN_BYTES: Final = 64 << 20  # the frames of one interface, with room for several


def checkup(device: str | None = None, pkey: PKey = DEFAULT_PKEY) -> list[Finding]:
    """Return every finding about this machine and, if named, about `device` (`soft:NETDEV` or RDMA).

    On an InfiniBand subnet the checkup asks the subnet administrator about the link of `pkey`. `UsageError`
    if `device` is malformed.
    """
    name, port = parse_device(device) if device is not None else ("", 1)
    kind = DeviceKind.of(name) if name else None
    is_rdma = kind is DeviceKind.RDMA and not (NETDEVS / name).is_dir()
    findings = [tun(), net_admin(), extension(), io_uring(), ipv6(), *rdma_stack(needed=is_rdma)]
    if kind is not None:
        findings += DEVICES[kind](name, port, pkey)
    return findings


def soft_port(name: str, port: int, pkey: PKey) -> Iterator[Finding]:
    soft = parse_soft(name)
    yield receive_buffer()
    yield from net_device(soft)
    if port != 1:
        detail = f"the built-in HCA has port 1 only, not {port}"
        yield Finding("port", "fail", detail, f"use --device {name}")
    if soft.umad:
        from ipoibu.doctor.ib_subnet import subnet

        yield from subnet(soft.umad, 1, pkey)


def rdma_port(name: str, port: int, pkey: PKey) -> Iterator[Finding]:
    found = rdma_device(name)
    yield found
    if found.status == "ok":
        from ipoibu.doctor.verbs import verbs_port

        yield from verbs_port(name, port, pkey)


DEVICES: Final[dict[DeviceKind, Callable[[str, int, PKey], Iterator[Finding]]]] = {
    DeviceKind.SOFT: soft_port,
    DeviceKind.RDMA: rdma_port,
}


# The machine


def tun() -> Finding:
    try:
        os.close(os.open(TUN_PATH, os.O_RDWR | os.O_CLOEXEC))
    except PermissionError:
        return Finding("tun", "fail", f"{TUN_PATH} is closed to this user", "run as root")
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        return Finding("tun", "fail", f"{TUN_PATH}: {reason}", "modprobe tun")
    return Finding("tun", "ok", f"{TUN_PATH} can be opened")


def net_admin(status: Path = STATUS) -> Finding:
    name = "cap_net_admin"
    held = is_capable(CAP_NET_ADMIN, status)
    if held is None:
        return Finding(name, "warn", f"{status} does not list the capabilities of this process")
    if held:
        return Finding(name, "ok", "interfaces may be created")
    return Finding(name, "fail", "interfaces may not be created", "run as root: sudo")


def extension() -> Finding:
    try:
        core = importlib.import_module("ipoibu._core")
    except ImportError as error:
        is_library = ".so" in str(error)  # one that the core was built with, such as libisal
        remedy = "install the library again, or make build" if is_library else "make build"
        return Finding("extension", "fail", f"the C core does not load: {error}", remedy)
    features = " ".join(f"{k}={'yes' if v else 'no'}" for k, v in sorted(core.FEATURES.items()))
    if any(core.FEATURES[each] for each in ("isal", "libdeflate", "vpclmulqdq")):
        return Finding("extension", "ok", f"the C core loads: {features}")
    return Finding(
        "extension",
        "warn",
        f"the C core loads, with slow checksums: {features}",
        install("isa-l"),
    )


def io_uring() -> Finding:
    """Check io_uring, by which the pump reads and writes a TUN; without io_uring each packet costs more."""
    name = "io_uring"
    try:
        core = importlib.import_module("ipoibu._core")
    except ImportError:
        return Finding(name, "info", "not checked: the C core does not load")
    ours, others = socket.socketpair()
    with ours, others:
        try:
            core.TunRing(ours.fileno())
        except OSError as error:
            reason, remedy = core.URING_MISSING, None
            if reason is None:
                reason = os.strerror(error.errno or 0)
                if error.errno == errno.EPERM:
                    remedy = "sysctl -w kernel.io_uring_disabled=0"
            elif ".so" in reason:
                remedy = install("liburing")
            else:
                remedy = f"{install('liburing headers')}, then build again"
            detail = f"each packet of a TUN needs a system call: {reason}"
            return Finding(name, "info", detail, remedy)
    return Finding(name, "ok", "the pump reads and writes packets of a TUN in batches")


def ipv6(root: Path = Path("/proc/sys/net/ipv6/conf")) -> Finding:
    if not root.is_dir():
        return Finding("ipv6", "fail", "this kernel has no IPv6", "boot without ipv6.disable=1")
    if _number(root / "all/disable_ipv6") == 1:
        remedy = "sysctl -w net.ipv6.conf.all.disable_ipv6=0"
        return Finding("ipv6", "fail", "IPv6 is switched off", remedy)
    return Finding("ipv6", "ok", "IPv6 is on")


def rdma_stack(*, needed: bool, devices: Path = Path("/dev/infiniband")) -> Iterator[Finding]:
    """Check device nodes, locked memory and pyverbs: RDMA devices need them, the built-in HCA does not."""
    bad: Status = "fail" if needed else "info"
    nodes = sorted(p.name for p in devices.iterdir()) if devices.is_dir() else []
    if any(name.startswith("uverbs") for name in nodes):
        yield Finding("rdma_nodes", "ok", f"{devices} has {' '.join(nodes)}")
    else:
        detail = f"{devices} has no uverbs node" + ("" if needed else " (soft: devices need none)")
        yield Finding("rdma_nodes", bad, detail, "modprobe ib_uverbs" if needed else None)
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    if limit in (resource.RLIM_INFINITY, -1) or is_capable(CAP_IPC_LOCK):
        yield Finding("memlock", "ok", "locked memory is not limited")
    elif limit >= MEMLOCK_MIN_BYTES:
        yield Finding("memlock", "ok", f"{limit >> 20} MiB of memory may be locked")
    elif needed and limit >= MEMLOCK_FEW_FRAMES_BYTES:
        detail = f"only {limit >> 10} KiB of memory may be locked: fewer packet frames (--frames)"
        yield Finding("memlock", "warn", detail, "ulimit -l unlimited")
    else:
        detail = f"only {limit >> 10} KiB of memory may be locked"
        detail += "" if needed else " (soft: devices lock none)"
        yield Finding("memlock", bad, detail, "ulimit -l unlimited" if needed else None)
    try:
        yield Finding("pyverbs", "ok", f"pyverbs {metadata.version('pyverbs')} is installed")
    except metadata.PackageNotFoundError:
        yield _pyverbs_without_metadata(bad, needed=needed)


def _pyverbs_without_metadata(bad: Status, *, needed: bool) -> Finding:
    # Debian's package has no metadata, and an import of pyverbs would configure logging: only look for it.
    if importlib.util.find_spec("pyverbs") is not None:
        return Finding("pyverbs", "ok", "pyverbs is installed, by the distribution")
    detail = "pyverbs is not installed" + ("" if needed else " (soft: devices need none)")
    return Finding("pyverbs", bad, detail, missing_remedy() if needed else None)


def rdma_device(
    name: str,
    root: Path = Path("/sys/class/infiniband"),
    netdevs: Path = NETDEVS,
) -> Finding:
    if (root / name).is_dir():
        return Finding("device", "ok", f"RDMA device {name} is there")
    if (netdevs / name).is_dir():
        detail = f"{name} is a network device, not an RDMA device"
        return Finding("device", "fail", detail, f"use --device soft:{name}")
    known = " ".join(sorted(p.name for p in root.iterdir())) if root.is_dir() else ""
    return Finding(
        "device",
        "fail",
        f"no RDMA device {name} (there: {known or 'none'})",
        "rdma link show; or use --device soft:NETDEV",
    )


# A network device under the built-in HCA


def net_device(soft: SoftName) -> Iterator[Finding]:
    name = soft.netdev
    try:
        with Netlink() as netlink:
            link = netlink.link(name)
            if link is None:
                yield Finding("device", "fail", f"no network device {name}", "ip link show")
                return
            yield device_state(link)
            addresses = netlink.flagged_addresses(link.index)
            flags = {str(address.ip): bits for address, bits in addresses.items()}
            ip = chosen_address(soft, flags)
            if is_routed(soft, ip):
                yield device_address(soft, ip)
                if ip is not None and ip.version == 6 and link.up:
                    yield device_multicast(link, netlink)
            else:
                yield device_ipv6(name)
                found = device_link_local(name, flags)
                yield found
                if found.status == "ok" and link.up:
                    yield device_multicast(link, netlink)
            yield datagram_mtu(link, over_ipv4=ip is not None and ip.version == 4)
    except (IpoibuError, OSError) as error:
        yield Finding("device", "fail", f"{name}: {error}")
        return
    yield roce_port(name, over_ipv4=ip is not None and ip.version == 4)


def receive_buffer(status: Path = STATUS, limit: Path = RMEM_MAX) -> Finding:
    """Check how many bytes of datagrams the socket of the built-in HCA may hold while the pump is busy."""
    name = "receive_buffer"
    size_bytes = _number(limit)
    if is_capable(CAP_NET_ADMIN, status):
        return Finding(name, "ok", "root's sockets may exceed net.core.rmem_max")
    if size_bytes is None:
        return Finding(name, "info", f"not checked: {limit} cannot be read")
    if size_bytes >= SOCKET_BUFFER_BYTES:
        return Finding(name, "ok", f"net.core.rmem_max is {size_bytes}")
    detail = f"net.core.rmem_max is {size_bytes}: without root, bursts lose packets"
    return Finding(name, "warn", detail, f"sysctl -w net.core.rmem_max={SOCKET_BUFFER_BYTES}")


def device_state(link: Link) -> Finding:
    if link.up:
        return Finding("device", "ok", f"{link.name} is up")
    return Finding("device", "fail", f"{link.name} is down", f"ip link set {link.name} up")


def device_ipv6(name: str, root: Path = Path("/proc/sys/net/ipv6/conf")) -> Finding:
    if _number(root / name / "disable_ipv6") == 0:
        return Finding("device_ipv6", "ok", f"IPv6 is on for {name}")
    return Finding(
        "device_ipv6",
        "fail",
        f"IPv6 is off for {name}",
        f"sysctl -w net.ipv6.conf.{name}.disable_ipv6=0",
    )


def chosen_address(soft: SoftName, flags: dict[str, int]) -> IpAddress | None:
    """Return the address that the built-in HCA would take as GID; None if none is usable. `flags` has the
    IFA_F_* bits of each address of the device."""
    order = (GidKind.LINK_LOCAL, GidKind.IPV4, GidKind.IPV6)
    usable = [Gid.of_ip(ip_address(it)) for it, bits in flags.items() if not bits & IFA_F_TENTATIVE]
    suitable = [
        gid
        for gid in sorted(usable, key=lambda gid: order.index(GidKind.of(gid)))
        if not gid.ip.is_loopback
        and soft.kind in (GidKind.ANY, GidKind.of(gid))
        and soft.gid in (None, gid)
    ]
    return suitable[0].ip if suitable else None


def is_routed(soft: SoftName, ip: IpAddress | None) -> bool:
    """Return whether the GID is another address than an IPv6 link-local one."""
    if ip is not None:
        return not ip.is_link_local or ip.version == 4
    return soft.kind in (GidKind.IPV4, GidKind.IPV6)


def device_address(soft: SoftName, ip: IpAddress | None) -> Finding:
    if ip is None:
        of_kind = (
            "no IPv4 address" if soft.kind is GidKind.IPV4 else "only a link-local IPv6 address"
        )
        lacking = f"no address {soft.gid.ip}" if soft.gid is not None else of_kind
        return Finding(
            "address",
            "fail",
            f"{soft.netdev} has {lacking}",
            f"ip address add ADDRESS/LENGTH dev {soft.netdev}",
        )
    detail = f"{soft.netdev} has {ip}"
    if ip.version == 4:
        detail += ": IPv4 carries no multicast, so use --peer on every host"
    return Finding("address", "ok", detail)


def device_link_local(name: str, flags: dict[str, int]) -> Finding:
    """Check the device's link-local address; `flags` has the IFA_F_* bits of each address of the device."""
    own = {a: bits for a, bits in flags.items() if ":" in a and ip_address(a).is_link_local}
    usable = sorted(address for address, bits in own.items() if not bits & IFA_F_TENTATIVE)
    if usable:
        return Finding("link_local", "ok", f"{name} has {usable[0]}")
    if own:
        return Finding(
            "link_local",
            "fail",
            f"{sorted(own)[0]} of {name} is tentative, or a duplicate of another host's",
            "try again in two seconds; then see `ip -6 address show dadfailed`",
        )
    return Finding(
        "link_local",
        "fail",
        f"{name} has no IPv6 link-local address",
        f"ip link set {name} addrgenmode eui64, or ip -6 address add fe80::1/64 dev {name}",
    )


def device_multicast(link: Link, netlink: Netlink) -> Finding:
    """Check that the kernel sends multicast by the device, and to no router: a route of another interface to
    ff00::/8 may have replaced its own. A running interface restores it, if it has CAP_NET_ADMIN."""
    wanted = [(RTA_DST, ALL_NODES.packed), (RTA_OIF, struct.pack("=I", link.index))]
    for data, offset in find_route(netlink, socket.AF_INET6, 0, wanted):
        if not has_router(data, offset):
            return Finding("multicast", "ok", f"{link.name} has a route for IPv6 multicast")
    return Finding(
        "multicast",
        "fail",
        f"{link.name} has no route for IPv6 multicast: another one has replaced it",
        REMEDIES[OwnRoute.GROUPS].format(netdev=link.name),
    )


def roce_port(name: str, port: int = ROCE_PORT, *, over_ipv4: bool = False) -> Finding:
    family = socket.AF_INET if over_ipv4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
        if not over_ipv4:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode())
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return Finding(
                    "udp_port",
                    "fail",
                    f"UDP port {port} of {name} is taken: by another interface on it, or by rxe",
                    f"ss -lunp sport = :{port}",
                )
            return Finding("udp_port", "warn", f"UDP port {port}: {os.strerror(error.errno or 0)}")
    return Finding("udp_port", "ok", f"UDP port {port} of {name} is free")


# The link


def link_partition(file: str, pkey: PKey) -> Finding:
    """Check which link partitions.conf defines for `pkey`; the remedy is the line to add to it."""
    name = "partition"
    try:
        partitions = read(file)
        partition = partitions.partition(pkey)
        group = partition.broadcast_group()
    except LinkError as error:
        text, _, added = str(error).partition(": put into partitions.conf: ")
        if not added:
            text, _, added = str(error).partition(": add the line: ")
        return Finding(name, "fail", text, f"add to {file}: {added}")
    except IpoibuError as error:
        return Finding(name, "fail", str(error))
    detail = (
        f"{group.place}: partition {partition.name} ({pkey.full}) has a link of MTU "
        f"{group.mtu_bytes - ENCAP_LEN}, Q_Key {group.qkey:#x}, scope {group.scope:#x}"
    )
    if not partition.has_full_member():
        detail += ", but no full member, and limited members cannot reach each other"
        remedy = "make ports full members: ALL=full, or 0xGUID=full after ALL=limited"
        return Finding(name, "warn", detail, remedy)
    return Finding(name, "ok", detail)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
