# SPDX-License-Identifier: BSD-2-Clause
"""Checks of a peer of a link without multicast: its TCP port, key, UDP port, and the MTU of the way."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from ipaddress import IPv6Address
from typing import Final

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import ENCAP_LEN, SOFT_IPV4_OVERHEAD_BYTES, SOFT_OVERHEAD_BYTES
from ipoibu.doctor.finding import Finding
from ipoibu.doctor.machine import ROCE_PORT
from ipoibu.doctor.path_probe import PathProbe, path_mtu
from ipoibu.fabric.mesh.peer_key import PeerKey
from ipoibu.fabric.mesh.peer_list import locators_of, parse_peer
from ipoibu.fabric.unicast.query import Denied, query
from ipoibu.wire.mesh import Locator
from ipoibu.wire.mesh_key import Denial

CONNECT_S: Final = 3.0
_DENIALS: Final = {
    Denial.KEY_WANTED: ("it wants a key", "give --peer-key-file FILE"),
    Denial.KEY_UNKNOWN: ("it has no key, and we have one", "give it --peer-key-file"),
    Denial.KEY_WRONG: ("its key is another one", "compare the files of --peer-key-file"),
}


def peer(text: str, key: PeerKey | None, netdev: str | None) -> Iterator[Finding]:
    """Check every address of HOST[:PORT]; `netdev` is the net device of link-local ones. `UsageError` if the
    text is malformed."""
    host, port = parse_peer(text)
    try:
        locators = locators_of(host, port)
    except OSError as error:
        yield Finding("peer", "fail", f"{host}: {error.strerror or error}", f"getent ahosts {host}")
        return
    for locator in sorted(locators, key=str):
        yield from _locator(locator, key, netdev)


def _locator(locator: Locator, key: PeerKey | None, netdev: str | None) -> Iterator[Finding]:
    try:
        scope = _scope(locator.ip, netdev)
        with _connect(locator, scope) as sock:
            yield Finding("peer_tcp", "ok", f"{locator} accepts connections")
            greetings = query(sock, key)
    except Denied as denied:
        detail, remedy = _DENIALS[denied.denial]
        yield Finding("peer_key", "fail", f"{locator}: {detail}", remedy)
        return
    except BadFrame:
        detail = f"{locator} does not talk as ipoibu does, or has another key"
        yield Finding("peer_key", "fail", detail, "compare --mesh-port and --peer-key-file")
        return
    except OSError as error:
        yield _unreachable(locator, error)
        return
    if not greetings:
        remedy = "start ipoibu there with --peer"
        yield Finding("peer", "fail", f"{locator}: no interface listens", remedy)
    for greeting in greetings:
        detail = f"{locator}: {greeting.hwaddr}, P_Key {greeting.pkey}, MTU {greeting.mtu_bytes}"
        yield Finding("peer", "ok", detail)
    for ip in {it.hwaddr.gid.ip for it in greetings}:
        mtu_bytes = max(it.mtu_bytes for it in greetings if it.hwaddr.gid.ip == ip)
        if isinstance(ip, IPv6Address) and ip.is_link_local and netdev is None:
            detail = f"UDP and MTU not checked: {ip} is an address of one link"
            yield Finding("peer_udp", "info", detail, "give --device soft:NETDEV, too")
            continue
        try:
            scope = _scope(ip, netdev)
            yield _udp(ip, scope)
            yield _mtu(ip, scope, mtu_bytes)
        except OSError as error:
            detail = f"{ip}, where its datagrams come from: {error.strerror or error}"
            yield Finding("peer_udp", "fail", detail, f"ip route get {ip}")


def _scope(ip: IpAddress, netdev: str | None) -> int:
    if not (isinstance(ip, IPv6Address) and ip.is_link_local):
        return 0
    if netdev is None:
        raise OSError(errno.ENODEV, "an address of one link: give --device soft:NETDEV")
    return socket.if_nametoindex(netdev)


def _connect(locator: Locator, scope: int) -> socket.socket:
    is_v6 = locator.ip.version == 6
    sock = socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_S)
        sock.connect((str(locator.ip), locator.port) + ((0, scope) if is_v6 else ()))
    except BaseException:
        sock.close()
        raise
    return sock


def _unreachable(locator: Locator, error: OSError) -> Finding:
    if isinstance(error, TimeoutError):
        detail = f"{locator}: no answer in {CONNECT_S:g} s"
        return Finding("peer_tcp", "fail", detail, f"let TCP port {locator.port} pass firewalls")
    if error.errno == errno.ECONNREFUSED:
        detail = f"{locator}: nothing listens there"
        return Finding("peer_tcp", "fail", detail, "start ipoibu there with --peer, or give :PORT")
    text = error.strerror or os.strerror(error.errno or 0)
    return Finding("peer_tcp", "fail", f"{locator}: {text}", f"ip route get {locator.ip}")


def _udp(ip: IpAddress, scope: int) -> Finding:
    with PathProbe(ip, scope, ROCE_PORT) as probe:
        if probe.refuses(0):
            detail = f"nothing listens at UDP port {ROCE_PORT} of {ip}, or a firewall refuses it"
            return Finding("peer_udp", "fail", detail, f"ss -lun sport = :{ROCE_PORT} there")
    detail = f"UDP port {ROCE_PORT} of {ip} refuses nothing; a firewall that drops looks the same"
    return Finding("peer_udp", "ok", detail)


def _mtu(ip: IpAddress, scope: int, link_mtu_bytes: int) -> Finding:
    way = path_mtu(ip, scope)
    overhead = SOFT_IPV4_OVERHEAD_BYTES if ip.version == 4 else SOFT_OVERHEAD_BYTES
    room = ((way.mtu_bytes - overhead) & ~3) - ENCAP_LEN
    detail = f"MTU {way.mtu_bytes} on the way to {ip} carries an IP MTU of {room}"
    if room < link_mtu_bytes:
        detail += f", and its link has {link_mtu_bytes}"
        return Finding("peer_mtu", "fail", detail, f"use --mtu {room} on every host")
    if not way.is_proved:
        detail += ", if routers told the truth: the host answers no probe"
        return Finding("peer_mtu", "warn", detail, f"ping -M do -s {way.mtu_bytes - 48} {ip}")
    return Finding("peer_mtu", "ok", f"{detail}; its link has {link_mtu_bytes}")
