# SPDX-License-Identifier: BSD-2-Clause
"""Finds the peer on the link, and addresses beside it that nobody has."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence
from typing import Final

from ipoibu.base.errors import LinkError, UsageError
from ipoibu.conform.headers.ip import IPV6
from ipoibu.conform.headers.link import ARP, arp
from ipoibu.conform.link import Link, QueuePair
from ipoibu.conform.mgid import mgid, solicited_node
from ipoibu.conform.peer import Peer, addresses_near
from ipoibu.conform.suite import Surroundings
from ipoibu.conform.tester import Address, Tester, echo_request

TRIES: Final = 3
WAIT_S: Final = 1.0
PREFIX_LEN: Final = 24  # of the peer's IPv4 network, unless the user says otherwise


def discover(
    link: Link, addresses: Sequence[str], prefix_len: int = PREFIX_LEN, seed: int | None = None
) -> tuple[Peer, Surroundings]:
    """Return the host that has these IP addresses, and what the tester may use beside it.

    `UsageError`: an address is none. `LinkError`: nobody answers for an address, or two hosts do.
    """
    return _Discovery(link, random.randrange(1 << 32) if seed is None else seed).run(
        addresses, prefix_len
    )


class _Discovery:
    def __init__(self, link: Link, seed: int) -> None:
        self._tester = Tester(link)
        self._link = link
        self._seed = seed
        identifier = random.Random(seed).getrandbits(60) & 0xFDFF_FFFF_FFFF_FFF
        self._me6 = str(ipaddress.IPv6Address((0xFE80 << 112) | identifier))
        own = [Address(self._me6, QueuePair.WATCHER)]
        names = {"my_hw": link.address(QueuePair.MINE), "peer_hw": bytes(20)}
        self._tester.begin(names, own)
        for group in ("255.255.255.255", "ff02::1", solicited_node(self._me6)):
            link.join(mgid(group, link.params))

    def run(self, addresses: Sequence[str], prefix_len: int) -> tuple[Peer, Surroundings]:
        ipv4 = ipv6 = wide = None
        found: list[tuple[str, bytes, int]] = []
        for text in addresses:
            try:
                ip = ipaddress.ip_address(text)
            except ValueError:
                raise UsageError(f"{text}: no IP address of the peer") from None
            hwaddr, flags = self._ask(str(ip))
            found.append((str(ip), hwaddr, flags))
            if ip.version == 4:
                ipv4 = str(ip)
            elif ip.is_link_local:
                ipv6 = str(ip)
            else:
                wide = str(ip)
        if not found:
            raise UsageError("the peer needs an address: --peer")
        if len({hwaddr for _, hwaddr, _ in found}) > 1:
            words = ", ".join(f"{ip} by {hwaddr.hex()}" for ip, hwaddr, _ in found)
            raise LinkError(f"the addresses are those of several hosts: {words}")
        _, hwaddr, flags = found[0]
        self._tester.names["peer_hw"] = hwaddr
        if ipv6 is None:
            ipv6 = self._link_local(hwaddr)
        free = self._free(ipv4, prefix_len) if ipv4 is not None else []
        return Peer(hwaddr, flags, ipv4, ipv6, wide), Surroundings(free, self._seed)

    def _ask(self, ip: str) -> tuple[bytes, int]:
        """Return the hardware address that an address has, and the flags that its answer announces."""
        found = self._tester.locate(ip, self._me6 if ":" in ip else "0.0.0.0", TRIES)
        if found is None:
            raise LinkError(
                f"{ip}: nobody on the link answers for it; is {self._link.description} on the same link, "
                "in the same partition?"
            )
        return found

    def _link_local(self, hwaddr: bytes) -> str | None:
        """Ask all nodes for an answer, and return the address from which the peer's comes."""
        tester = self._tester
        for number in range(TRIES):
            seen = len(tester.arrivals)
            tester.send(
                echo_request(self._me6, "ff02::1", number + 1), "ff02::1", QueuePair.WATCHER
            )
            tester.hear(self._link.now() + WAIT_S)
            for it in tester.arrivals[seen:]:
                if it.heard.qpn != int.from_bytes(hwaddr[1:4], "big"):
                    continue
                if it.heard.sgid is not None and it.heard.sgid != hwaddr[4:]:
                    continue
                for layer in it.packet.layers:
                    source = layer.values.get("source")
                    if layer.layout is IPV6 and str(source).startswith("fe80:"):
                        return str(source)
        return None

    def _free(self, ipv4: str, prefix_len: int) -> list[str]:
        """Return addresses of the peer's network for which nobody answers a probe (RFC 5227 §2.1.1)."""
        tester = self._tester
        candidates = addresses_near(ipv4, prefix_len)
        seen = len(tester.arrivals)
        for _ in range(2):
            for ip in candidates:
                tester.send(
                    arp(sender_hwaddr=tester.names["my_hw"], target_ip=ip), "255.255.255.255"
                )
            tester.hear(self._link.now() + WAIT_S / 2)
        taken = {
            layer.values["sender_ip"]
            for it in tester.arrivals[seen:]
            for layer in it.packet.layers
            if layer.layout is ARP and layer.values["operation"] == 2
        }
        return [ip for ip in candidates if ip not in taken]
