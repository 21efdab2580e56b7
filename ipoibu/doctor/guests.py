# SPDX-License-Identifier: BSD-2-Clause
"""Checks of a running interface with guests behind a TAP: who they are, who was refused, and why guests
may be missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ipoibu.base.limits import ETHERNET_GUESTS_MAX, ETHERNET_NEIGHBOURS_MAX
from ipoibu.doctor.finding import Finding, Status
from ipoibu.host.netlink import Link

SHOWN_MAX: Final = 16  # guests, and refusals: the rest is a number
NEARLY_FULL: Final = 0.9  # of a table

Entry = Mapping[str, Any]


def tap(
    name: str,
    listed: Sequence[Entry],
    stats: Mapping[str, int],
    *,
    link: Link | None,
    bridge: Link | None,
    own_addresses: Iterable[object],
    vlan: int | None = None,
) -> Iterator[Finding]:
    """Return every finding about the interface `name`, whose `ipoibu guests` and `stats` say this.

    `link` is the kernel's interface (None: it is in another network namespace), `bridge` its master, and
    `own_addresses` those that the host has on it. The guests of a `vlan` are in the parent's TAP.
    """
    guests = [it for it in listed if it["kind"] == "guest"]
    yield _guests(name, guests)
    if link is not None and vlan is None:
        yield _bridge(link, bridge, sorted(map(str, own_addresses)), has_guests=bool(guests))
        if bridge is not None and bridge.mtu_bytes > link.mtu_bytes:
            yield _long(link, bridge)
    yield from _refused(name, [it for it in listed if it["kind"] == "refused"])
    yield _spoofed(name, stats)
    yield _tables(name, len(guests), sum(it["kind"] == "host" for it in listed), stats)
    if stats.get("tx_vlan"):
        yield _vlan(name, stats["tx_vlan"])


def _guests(name: str, guests: Sequence[Entry]) -> Finding:
    if not guests:
        detail = f"{name} knows no guest: none has sent a packet, or has answered a question"
        return Finding("guests", "info", detail)
    addresses: dict[str, list[str]] = {}
    for entry in guests:
        addresses.setdefault(entry["mac"], []).append(entry["ip"])
    words = [f"{mac} ({' '.join(ips)})" for mac, ips in list(addresses.items())[:SHOWN_MAX]]
    more = len(addresses) - len(words)
    text = ", ".join(words) + (f" and {more} more" if more else "")
    return Finding("guests", "ok", f"behind {name}: {text}")


def _bridge(link: Link, bridge: Link | None, own: Sequence[str], *, has_guests: bool) -> Finding:
    name = link.name
    if not link.up:
        detail = f"{name} is down: no guest reaches it"
        return Finding("guest_bridge", "warn", detail, f"ip link set {name} up")
    if bridge is None and own:
        detail = f"{name} is in no bridge; the host itself is its guest, with {' '.join(own)}"
        return Finding("guest_bridge", "ok", detail)
    if bridge is None and has_guests:
        return Finding("guest_bridge", "ok", f"{name} is in no bridge; its guests reach it without")
    if bridge is None:
        detail = (
            f"{name} is in no bridge, and the host has no address on it: nobody can be behind it"
        )
        return Finding("guest_bridge", "warn", detail, f"ip link set {name} master BRIDGE")
    if not bridge.up:
        detail = f"{bridge.name}, the bridge of {name}, is down"
        return Finding("guest_bridge", "warn", detail, f"ip link set {bridge.name} up")
    return Finding("guest_bridge", "ok", f"{name} is a port of {bridge.name}")


def _long(link: Link, bridge: Link) -> Finding:
    detail = (
        f"{bridge.name} has MTU {bridge.mtu_bytes}, and {link.name} {link.mtu_bytes}: the bridge drops"
        " longer packets of guests without a word"
    )
    remedy = f"ip link set {bridge.name} mtu {link.mtu_bytes}, and the guests as well"
    return Finding("guest_mtu", "warn", detail, remedy)


def _refused(name: str, refused: Sequence[Entry]) -> Iterator[Finding]:
    """One finding for each refusal, the last ones first."""
    ordered = sorted(refused, key=lambda it: float(it["age_s"]))
    for it in ordered[:SHOWN_MAX]:
        mac, ip, holder = it["mac"], it["ip"], it["holder"]
        often = f"{it['count']} messages, the last {it['age_s']:.0f} s ago"
        if it["state"] == "bound":
            why = f"--guest binds it to {holder}"
            remedy = f"give guest {mac} another address, or bind {ip} to it: --guest {mac}={ip}"
        elif it["state"] == "others":
            why = "--guest binds the guest to other addresses"
            remedy = f"add the address to the guest's: --guest {mac}=...,{ip}"
        else:
            why = f"guest {holder} has it"
            remedy = f"remove {ip} from one of the two guests; `ipoibu guests {name}` lists them"
        detail = f"{name}: guest {mac} may not use {ip}: {why} ({often})"
        yield Finding("guest_refused", "warn", detail, remedy)
    if len(ordered) > SHOWN_MAX:
        detail = f"{name}: {len(ordered) - SHOWN_MAX} more refusals"
        yield Finding("guest_refused", "warn", detail, f"ipoibu guests {name}")


def _spoofed(name: str, stats: Mapping[str, int]) -> Finding:
    packets, messages = stats.get("tx_spoofed", 0), stats.get("engine.ethernet_spoofed", 0)
    if not packets and not messages:
        return Finding("guest_spoofed", "ok", f"{name}: nobody used an address of another guest")
    detail = (
        f"{name} dropped {packets} packets (tx_spoofed) and {messages} messages (ethernet_spoofed) that"
        " used a MAC or an address of others"
    )
    return Finding("guest_spoofed", "warn", detail, f"ipoibu monitor {name} --topic guest")


def _tables(name: str, guests: int, hosts: int, stats: Mapping[str, int]) -> Finding:
    text = (
        f"{name}: {guests} of {ETHERNET_GUESTS_MAX} addresses of guests, {hosts} of"
        f" {ETHERNET_NEIGHBOURS_MAX} hosts of the link"
    )
    evicted = sum(
        stats.get(f"engine.{counter}", 0)
        for counter in (
            "ethernet_guest_evicted",
            "ethernet_guests_full",
            "ethernet_neighbour_evicted",
        )
    )
    status: Status = "ok"
    if evicted:
        status, text = "warn", f"{text}; {evicted} times there was no room"
    elif (
        guests > NEARLY_FULL * ETHERNET_GUESTS_MAX or hosts > NEARLY_FULL * ETHERNET_NEIGHBOURS_MAX
    ):
        status, text = "warn", f"{text}: nearly full, and then those silent for longest make room"
    remedy = None if status == "ok" else "divide the guests between several TAPs"
    return Finding("guest_tables", status, text, remedy)


def _vlan(name: str, frames: int) -> Finding:
    detail = f"{name} dropped {frames} frames of VLANs that no partition belongs to (tx_vlan)"
    remedy = f"start {name} with --vlan VLAN=P_KEY"
    return Finding("guest_vlan", "warn", detail, remedy)
