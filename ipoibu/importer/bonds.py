# SPDX-License-Identifier: BSD-2-Clause
"""A bond of IPoIB ports is one interface with several devices here: docs/use/rails.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ipoibu.importer.draft import LINK_LOCAL, Draft, Note, Place, is_infiniband_name, other
from ipoibu.importer.naming import name_bond, name_partition

# The numbers of the kernel's modes
_MODES: Final = (
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
)

# ipoibu sees at once that a port fails, a host has an address for each port, and the primary is always
# preferred
_WITHOUT_EFFECT: Final = re.compile(
    r"miimon|mii_?monitor_?(interval|sec)|use_carrier|fail_?over_?mac(_?policy)?|arp_?interval(sec)?"
    r"|arp_?validate|num_?(grat_?arp|unsol_?na)|gratuitous_?arps?|peer_notif_delay|resend_igmp"
)


def take_bond_options(made: Draft, text: str, place: Place) -> None:
    """Take the words of BONDING_OPTS: `mode=active-backup miimon=100`."""
    for word in text.split():
        key, _, value = word.partition("=")
        take_bond_option(made, key, value, place)


def take_bond_option(made: Draft, key: str, value: str, place: Place) -> None:
    """Take an option of a bond, whose name each program spells another way."""
    name = re.sub(r"^bond_", "", key.lower().replace("-", "_"))
    for pattern, take in _OPTIONS.items():
        if re.fullmatch(pattern, name):
            take(made, value.strip(), Place(place.path, place.line, place.key or key))
            return
    if not _WITHOUT_EFFECT.fullmatch(name):
        made.leave(place, f"{key}: rails have no such setting")


def _take_mode(made: Draft, value: str, place: Place) -> None:
    name = _MODES[int(value)] if value in map(str, range(len(_MODES))) else value.lower()
    if name == "balance-xor":
        made.take("rail-mode", name, place)
    elif name != "active-backup":
        made.leave(place, f"{name}: rails are active-backup, as here, or balance-xor")


def _take_primary(made: Draft, value: str, place: Place) -> None:
    made.primary = made.primary or value.split(" ", maxsplit=1)[0]


def _take_updelay(made: Draft, value: str, place: Place) -> None:
    if value != "0":
        made.take("rail-updelay", value, place)


def _take_downdelay(made: Draft, value: str, place: Place) -> None:
    if value != "0":
        made.leave(place, "a device that fails is left at once")


def _take_targets(made: Draft, value: str, place: Place) -> None:
    for target in re.split(r"[,\s]+", value):
        if target:
            made.take("rail-monitor", target.lstrip("+"), place)


def _take_reselect(made: Draft, value: str, place: Place) -> None:
    if value.lower() not in ("always", "0"):
        made.leave(place, f"{value}: the primary device is always preferred once it is up")


_OPTIONS: Final[Mapping[str, Callable[[Draft, str, Place], None]]] = {
    "mode": _take_mode,
    "primary(_?slave|_?port)?": _take_primary,
    "up_?delay(sec)?": _take_updelay,
    "down_?delay(sec)?": _take_downdelay,
    "arp_?ip_?targets?": _take_targets,
    "primary_?reselect(_?policy)?": _take_reselect,
}


def join_ports(merged: dict[str, Draft], notes: list[Note]) -> None:
    """Move the ports of each bond into it; leave bonds without a port of InfiniBand out."""
    names = {alias: each.name for each in merged.values() for alias in each.aliases}
    for port in merged.values():
        port.controller = names.get(port.controller, port.controller)
    for bond in [each for each in merged.values() if each.is_bond]:
        claimed = sorted(each.name for each in merged.values() if each.controller == bond.name)
        wanted = dict.fromkeys(names.get(name, name) for name in [*bond.ports, *claimed])
        ports = [_port(merged, bond, name) for name in wanted]
        bond.joined = _of_one_partition([port for port in ports if port is not None])
        for name, found in zip(wanted, ports, strict=True):
            if found is None and bond.joined:
                bond.leave(bond.place, f"its port {name} is no InfiniBand interface of the files")
        for port in bond.joined:
            merged.pop(port.name, None)
            _move(bond, port)
        if not bond.joined:
            notes.append(other(bond.place, "a bond without a port of InfiniBand"))
            del merged[bond.name]
        else:
            name_bond(merged, bond)
    for port in merged.values():
        if port.controller:
            why = f"its bond {port.controller} is not among the files: it is an interface of its own here"
            port.leave(port.place, why)


def _port(merged: dict[str, Draft], bond: Draft, name: str) -> Draft | None:
    """The draft of a port; of one that no file describes, if its name is one of InfiniBand."""
    if name in merged:
        return None if merged[name].is_bond else merged[name]
    if is_infiniband_name(name):
        port = Draft(bond.place, name)
        name_partition(port)
        return port
    return None


def _of_one_partition(ports: list[Draft]) -> list[Draft]:
    """The ports in the partition of the first one; the others stay interfaces of their own."""
    joined = [port for port in ports if port.pkey == ports[0].pkey]
    for port in ports:
        if port not in joined:
            why = f"another partition than that of {ports[0].name}: no rail of the same interface"
            port.leave(port.place, why)
            port.controller = ""
    return joined


def _move(bond: Draft, port: Draft) -> None:
    """Move the port's settings to the bond, which has its own addresses."""
    bond.pkey = bond.pkey or port.pkey
    bond.notes += [note for note in port.notes if note.why != LINK_LOCAL]
    for setting in port.settings:
        if setting.option in ("address", "route"):
            bond.leave(setting.place, f"a port of {bond.name} has no address or route")
        elif setting.text not in (earlier := bond.texts(setting.option)):
            if earlier:
                bond.leave(setting.place, f"{setting.option} is {earlier[0]} already")
            else:
                bond.settings.append(setting)
    if bond.primary in port.aliases or (port.primary and not bond.primary):
        bond.primary = port.name
