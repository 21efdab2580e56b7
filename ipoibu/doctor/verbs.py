# SPDX-License-Identifier: BSD-2-Clause
"""Checks of the conditions that an RDMA device must meet before an interface can come up on it.

They read sysfs, and so work where we cannot open the device, too.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.distribution import install
from ipoibu.base.errors import IpoibuError, LinkError
from ipoibu.doctor.finding import Finding, device_mtu
from ipoibu.doctor.ib_subnet import subnet
from ipoibu.fabric.verbs.objects import INSTALL, REINSTALL, SHARE, load
from ipoibu.fabric.verbs.roce_gid import GidEntry, choose_gid, local_addresses
from ipoibu.host.netlink import Netlink

SYSFS: Final = Path("/sys/class/infiniband")


def verbs_port(name: str, port: int, pkey: PKey, root: Path = SYSFS) -> Iterator[Finding]:
    """Return every finding about port `port` of the existing RDMA device `name`; on an InfiniBand port also
    about the link of `pkey`."""
    yield extension()
    yield pyverbs()
    ports = root / name / "ports"
    directory = ports / str(port)
    if not directory.is_dir():
        known = sorted(path.name for path in ports.iterdir()) if ports.is_dir() else []
        detail = f"{name} has no port {port}, but {' '.join(known) or 'none'}"
        yield Finding("rdma_port", "fail", detail, f"--device {name}/{(known or ['1'])[0]}")
        return
    if _text(root / name / "node_type").endswith("RNIC"):
        yield Finding("link_layer", "ok", f"{name} is an iWARP device: a mesh (docs/use/mesh.md)")
        yield port_state(directory, f"{name}/{port}", None)
        return
    if _text(directory / "link_layer") == "InfiniBand":
        yield port_state(directory, f"{name}/{port}", None)
        yield from subnet(name, port, pkey)
        return
    entries, netdevs = gid_table(directory)
    netdev = netdevs[0] if netdevs else None
    yield port_state(directory, f"{name}/{port}", netdev)
    yield from gid(entries, netdevs, f"{name}/{port}")
    if netdev is not None:
        yield from mtu(netdev)


def extension() -> Finding:
    try:
        importlib.import_module("ipoibu._verbs")
    except ImportError as error:
        return Finding(
            "verbs_extension",
            "fail",
            f"the verbs extension does not load: {error}",
            f"{install('verbs headers')}, then install ipoibu again",
        )
    return Finding("verbs_extension", "ok", "the verbs extension loads")


def pyverbs() -> Finding:
    """Check that pyverbs loads: it needs a libibverbs of its own version."""
    try:
        load()
    except IpoibuError as error:
        text = str(error)
        remedy = next((way for way in (REINSTALL, SHARE) if text.endswith(way)), INSTALL)
        return Finding("pyverbs_fits", "fail", text.removesuffix(remedy).rstrip(" :;"), remedy)
    return Finding("pyverbs_fits", "ok", "pyverbs fits the libibverbs that is installed")


def gid_table(port: Path) -> tuple[list[GidEntry], list[str]]:
    """Return the GIDs of a port from its directory in sysfs, and their net devices."""
    entries: list[GidEntry] = []
    netdevs: list[str] = []
    for path in sorted((port / "gids").iterdir(), key=lambda path: int(path.name)):
        text = _text(path)
        if not text.strip("0:"):
            continue
        netdev = _text(port / "gid_attrs/ndevs" / path.name)
        is_roce_v2 = _text(port / "gid_attrs/types" / path.name) == "RoCE v2"
        if netdev and netdev not in netdevs:
            netdevs.append(netdev)
        entries.append(GidEntry(int(path.name), Gid.parse(text), is_roce_v2, _index(netdev)))
    return entries, netdevs


def port_state(port: Path, place: str, netdev: str | None) -> Finding:
    state = _text(port / "state").partition(": ")[2]
    if state == "ACTIVE":
        return Finding("rdma_port", "ok", f"{place} is active")
    remedy = f"ip link set {netdev} up" if netdev else "rdma link show"
    return Finding("rdma_port", "fail", f"{place} is {state or 'in no state'}", remedy)


def gid(entries: list[GidEntry], netdevs: list[str], place: str) -> Iterator[Finding]:
    away = [netdev for netdev in netdevs if _index(netdev) == 0]
    if away:
        detail = f"{away[0]}, below {place}, is not in this network namespace"
        yield Finding("gid", "fail", detail, "ip netns exec NAME ipoibu ...")
        return
    try:
        entry = choose_gid(entries, local_addresses(), place)
    except LinkError as error:
        netdev = netdevs[0] if netdevs else "NETDEV"
        remedy = (
            f"sysctl -w net.ipv6.conf.{netdev}.disable_ipv6=0; "
            f"ip link set {netdev} addrgenmode eui64 down; ip link set {netdev} up"
        )
        yield Finding("gid", "fail", str(error), remedy)
        return
    yield Finding("gid", "ok", f"{place} has {entry.gid} (index {entry.index}, RoCE v2)")


def mtu(netdev: str) -> Iterator[Finding]:
    """Check the MTU of the net device, from which that of the port follows."""
    try:
        with Netlink() as netlink:
            link = netlink.link(netdev)
    except (IpoibuError, OSError):
        link = None
    if link is not None:
        yield device_mtu(link)


def _text(path: Path) -> str:
    """Return a file's text, empty for an empty table entry, whose attributes the kernel refuses to read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _index(netdev: str) -> int:
    try:
        return socket.if_nametoindex(netdev)
    except OSError:
        return 0
