# SPDX-License-Identifier: BSD-2-Clause
"""Joins the settings of an interface from several files, finds its children, and leaves out the settings
that ipoibu refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ipoibu.base.addr import DEFAULT_PKEY, PKey
from ipoibu.base.device_name import DeviceKind, parse_device
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import CHILDREN_MAX, ENCAP_LEN, IB_MTUS
from ipoibu.daemon.config.config_file import read_value
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.options import BY_NAME, options_of
from ipoibu.importer.bonds import join_ports
from ipoibu.importer.draft import Draft, Note, Place, Reading, Setting
from ipoibu.importer.naming import is_ambiguous, name_all, name_partitions

# Stand for devices while we check the other options; no check needs the real ones.
_ANY_DEVICE: Final = "mlx5_{}"


@dataclass(slots=True)
class ImportedInterface:
    """An interface as our configuration file has it: the texts of options by name, also of each child.

    `ports` are the devices by the names that the ports had in the files, several of a bond; None where no
    option names the device. `primary` is one of these names, or empty. With `needs_pkey` nobody but the
    administrator knows the partition. `sources` are the places of its drafts.
    """

    name: str
    ports: dict[str, str | None]
    primary: str = ""
    needs_pkey: bool = False
    texts: dict[str, list[str]] = field(default_factory=dict)
    children: dict[PKey, dict[str, list[str]]] = field(default_factory=dict)
    sources: list[Place] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def devices(self) -> list[str]:
        """The devices; empty if one is not known."""
        known = [device for device in self.ports.values() if device is not None]
        return known if len(known) == len(self.ports) else []

    @property
    def rail_primary(self) -> str:
        """The device of the primary port; empty if there is none, or it is not known."""
        return self.ports.get(self.primary) or ""


def assemble(reading: Reading, devices: Mapping[str, str]) -> list[ImportedInterface]:
    """Return the interfaces of all drafts. `devices` names devices by interface; the key "" is for all
    others. `UsageError` if a device is none, or belongs to an interface that no file describes."""
    for text in devices.values():
        parse_device(text)
    drafts = reading.drafts
    name_all(drafts)
    merged = _merge(drafts)
    name_partitions(merged)
    join_ports(merged, reading.notes)
    _find_parents(merged)
    made: dict[str, ImportedInterface] = {}
    for draft in merged.values():
        if not draft.parent:
            _add_defaults(draft, reading.defaults)
            made[draft.name] = _interface(draft, devices)
    for draft in merged.values():
        if draft.parent:
            _add_child(made[draft.parent], draft)
    known = {*made, *(port for each in made.values() for port in each.ports)}
    unknown = sorted(set(devices) - known - {""})
    if unknown:
        raise UsageError(
            f"--device {unknown[0]}={devices[unknown[0]]}: the files describe no interface"
            f" {unknown[0]} (but {', '.join(made) or 'none'})"
        )
    return list(made.values())


def _add_defaults(draft: Draft, defaults: Sequence[Setting]) -> None:
    """Add the settings of all interfaces that this one does not have itself."""
    own = {setting.option for setting in draft.settings}
    draft.settings += [each for each in defaults if each.option not in own]


def _merge(drafts: Sequence[Draft]) -> dict[str, Draft]:
    """Join the drafts of one name; of two values for one option the first one counts."""
    merged: dict[str, Draft] = {}
    for draft in drafts:
        if draft.name not in merged:
            merged[draft.name] = Draft(draft.place, draft.name)
        whole = merged[draft.name]
        whole.sources.append(draft.place)
        if draft.pkey not in (None, whole.pkey) and whole.pkey is not None:
            whole.leave(draft.place, f"another file gives {whole.name} the partition {whole.pkey}")
        whole.pkey = whole.pkey or draft.pkey
        whole.parent = whole.parent or draft.parent
        whole.is_child = whole.is_child or draft.is_child
        whole.aliases |= draft.aliases
        whole.children += draft.children
        whole.is_bond = whole.is_bond or draft.is_bond
        whole.ports += draft.ports
        whole.primary = whole.primary or draft.primary
        whole.controller = whole.controller or draft.controller
        whole.notes += draft.notes
        for setting in draft.settings:
            _add(whole, setting)
        whole.settings.sort(key=lambda each: list(BY_NAME).index(each.option))
    return merged


def _add(whole: Draft, setting: Setting) -> None:
    earlier = whole.texts(setting.option)
    if setting.text in earlier:
        return
    if earlier and not BY_NAME[setting.option].several:
        whole.leave(setting.place, f"{setting.option} is {earlier[0]} already")
    else:
        whole.settings.append(setting)


def _find_parents(merged: Mapping[str, Draft]) -> None:
    """Turn each parent's alias into its name, and forget parents that cannot be."""
    for draft in merged.values():
        for name in draft.children:
            if name in merged and not merged[name].parent:
                merged[name].parent = draft.name
            elif name not in merged:
                draft.leave(draft.place, f"none of the files has the P_Key of the child {name}")
    _guess_parents(merged)
    names = {alias: draft.name for draft in merged.values() for alias in draft.aliases}
    parents = {draft.name: names.get(draft.parent, draft.parent) for draft in merged.values()}
    for draft in merged.values():
        parent = parents[draft.name]
        draft.parent = ""
        if not parent or parent == draft.name:
            continue
        if draft.pkey is None:
            draft.leave(draft.place, f"no P_Key: {draft.name} is no child of {parent} here")
        elif parent not in merged:
            draft.leave(
                draft.place,
                f"none of the files describes its parent {parent}: here {draft.name} is an interface of"
                " its own",
            )
        elif parents.get(parent):
            draft.leave(draft.place, f"its parent {parent} is a child: a child has none of its own")
        else:
            draft.parent = parent


def _guess_parents(merged: Mapping[str, Draft]) -> None:
    """A child whose file names no parent has the only interface that can be its parent."""
    whole = [each.name for each in merged.values() if each.pkey is None and not each.is_bond]
    for draft in merged.values():
        if draft.is_child and not draft.parent and len(whole) == 1:
            draft.parent = whole[0]
            draft.leave(draft.place, f"no parent: here {draft.name} is a child of {draft.parent}")


def _interface(draft: Draft, devices: Mapping[str, str]) -> ImportedInterface:
    """Make an interface of the draft, without what `InterfaceConfig` refuses."""
    made = ImportedInterface(draft.name, _devices(draft, devices), notes=draft.notes)
    made.sources = [*draft.sources, *(place for port in draft.joined for place in port.sources)]
    made.primary = _primary(draft)
    made.needs_pkey = is_ambiguous(draft)
    places = {(each.option, each.text): each.place for each in draft.settings}
    if made.devices:  # the command line's fault, not the file's
        InterfaceConfig.build("ib0", {"device": made.devices})
    for setting in draft.settings:
        made.texts.setdefault(setting.option, []).append(setting.text)
    if draft.pkey is not None:
        made.texts["pkey"] = [str(draft.pkey)]
    while error := _refusal(made):
        # Never the P_Key: without it the interface would be in the default partition
        options = [
            key for key in [*_options(error), *made.texts] if key in made.texts and key != "pkey"
        ]
        if not options:
            raise error
        option = options[0]
        for text in made.texts.pop(option):
            made.notes.append(Note(places.get((option, text), draft.place), str(error)))
    return made


def _devices(draft: Draft, devices: Mapping[str, str]) -> dict[str, str | None]:
    """The device of each port. One that is named for all interfaces is none of a bond's: it has several."""
    if not draft.joined:
        return {draft.name: devices.get(draft.name, devices.get(""))}
    every = devices.get("") if len(draft.joined) == 1 else None
    return {
        port.name: devices.get(port.name, devices.get(port.parent or port.name, every))
        for port in draft.joined
    }


def _primary(draft: Draft) -> str:
    if not draft.primary or draft.primary in (port.name for port in draft.joined):
        return draft.primary if len(draft.joined) > 1 else ""
    draft.leave(draft.place, f"the primary port {draft.primary} is none of its ports")
    return ""


def _add_child(parent: ImportedInterface, draft: Draft) -> None:
    """Add a table for the child, without what a child does not have."""
    pkey = draft.pkey
    assert pkey is not None
    parent.sources += draft.sources
    parent.notes += draft.notes
    name = pkey.child_of(parent.name)
    known = {option.name for option in options_of("child")}
    table: dict[str, list[str]] = {}
    if PKey.of_name(draft.name) == pkey and draft.name != name:
        parent.notes.append(Note(draft.place, f"{draft.name} is called {name} here"))
    elif draft.name != name:
        table["name"] = [draft.name]
    for setting in draft.settings:
        if setting.option == "mode" and setting.text in _inherited(parent, "mode"):
            continue
        if setting.option in known:
            table.setdefault(setting.option, []).append(setting.text)
        elif setting.text not in _inherited(parent, setting.option):
            why = f"a child has its parent's {setting.option}"
            parent.notes.append(Note(setting.place, why))
    if len(parent.children) >= CHILDREN_MAX:
        why = f"an interface has at most {CHILDREN_MAX} children"
        parent.notes.append(Note(draft.place, why))
        return
    if pkey in parent.children:
        parent.notes.append(Note(draft.place, f"another child has the partition {pkey}"))
        return
    parent.children[pkey] = table
    while error := _refusal(parent):
        option = next((key for key in _options(error) if key in table), "")
        if not option:
            del parent.children[pkey]
            parent.notes.append(Note(draft.place, str(error)))
            return
        del table[option]
        places = [each.place for each in draft.settings if each.option == option]
        place = next(iter(places), draft.place)
        parent.notes.append(Note(place, str(error)))


def _inherited(parent: ImportedInterface, option: str) -> Sequence[str]:
    """The parent's value, or the default where it is one that other programs write down."""
    return parent.texts.get(option, ["datagram"] if option == "mode" else [])


def _options(error: UsageError) -> list[str]:
    """The options that the error names."""
    return re.findall(r"--([a-z0-9-]+)", str(error))


def _refusal(made: ImportedInterface) -> UsageError | None:
    """Why `ipoibu up` would refuse the configuration, whatever the device is."""
    try:
        any_devices = [_ANY_DEVICE.format(number) for number in range(len(made.ports))]
        unknown = {"pkey": str(DEFAULT_PKEY)} if made.needs_pkey else {}
        texts = {"device": made.devices or any_devices, **unknown, **option_texts(made.texts)}
        config = InterfaceConfig.build(made.name, texts)
        for pkey, table in made.children.items():
            own = {key: read_value(BY_NAME[key], text) for key, text in option_texts(table).items()}
            config = config.with_child(pkey, own)
        for each in (config, *config.children):
            _check_datagrams(each)
    except UsageError as error:
        return error
    return None


def _check_datagrams(config: InterfaceConfig) -> None:
    """Refuse an MTU that no InfiniBand link carries in datagrams: the open port of an RDMA device would."""
    endpoint, largest = config.endpoint, IB_MTUS[-1] - ENCAP_LEN
    mtu = endpoint.mtu or 0
    is_rdma = DeviceKind.of(endpoint.device) is DeviceKind.RDMA
    if endpoint.mode == "datagram" and mtu > largest and is_rdma:
        raise UsageError(
            f"--mtu {mtu} is too large for datagram mode: choose at most {largest}, or connected mode"
        )


def option_texts(texts: Mapping[str, Sequence[str]]) -> dict[str, str | Sequence[str]]:
    """A list for the options that may be repeated, one text for the others."""
    return {key: text if BY_NAME[key].several else text[0] for key, text in texts.items()}
