# SPDX-License-Identifier: BSD-2-Clause
"""Joins the settings of an interface from several files, finds its children, and leaves out the settings
that ipoibu refuses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ipoibu.addr import PKey
from ipoibu.daemon.config import InterfaceConfig
from ipoibu.daemon.config_file import read_value
from ipoibu.daemon.options import BY_NAME, options_of
from ipoibu.errors import UsageError
from ipoibu.fabric.device_name import parse_device
from ipoibu.host.tun import check_name
from ipoibu.migration.draft import Draft, Note, Place, Setting

# Stands for the device while we check the other options; no check needs the real one.
_ANY_DEVICE: Final = "mlx5_0"


@dataclass(slots=True)
class Interface:
    """An interface as our configuration file has it: the texts of options by name, also of each child.

    `device` is None if no option names it. `sources` are the places of its drafts.
    """

    name: str
    device: str | None
    texts: dict[str, list[str]] = field(default_factory=dict)
    children: dict[PKey, dict[str, list[str]]] = field(default_factory=dict)
    sources: list[Place] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)


def assemble(drafts: Sequence[Draft], devices: Mapping[str, str]) -> list[Interface]:
    """Return the interfaces of all drafts. `devices` names devices by interface; the key "" is for all
    others. `UsageError` if a device is none, or belongs to an interface that no file describes."""
    for text in devices.values():
        parse_device(text)
    _name_all(drafts)
    merged = _merge(drafts)
    _find_parents(merged)
    made: dict[str, Interface] = {}
    for draft in merged.values():
        if not draft.parent:
            device = devices.get(draft.name, devices.get("", None))
            made[draft.name] = _interface(draft, device)
    for draft in merged.values():
        if draft.parent:
            _add_child(made[draft.parent], draft)
    unknown = sorted(set(devices) - set(made) - {""})
    if unknown:
        raise UsageError(
            f"--device {unknown[0]}={devices[unknown[0]]}: the files describe no interface"
            f" {unknown[0]} (but {', '.join(made) or 'none'})"
        )
    return list(made.values())


def _name_all(drafts: Sequence[Draft]) -> None:
    """Give each draft a name that the kernel accepts."""
    for draft in drafts:
        if not draft.name:
            continue
        try:
            check_name(draft.name)
        except UsageError as error:
            draft.leave(draft.place, str(error))
            draft.aliases.add(draft.name)
            draft.name = ""
    taken = {draft.name for draft in drafts}
    numbers = iter(range(len(drafts) + len(taken)))
    for draft in drafts:
        if draft.name:
            continue
        parent = draft.parent if draft.parent in taken else ""
        if parent and draft.pkey is not None:
            draft.name = f"{parent}.{draft.pkey:04x}"
            continue
        draft.name = next(name for n in numbers if (name := f"ib{n}") not in taken)
        draft.leave(draft.place, f"no usable name of an interface: it is called {draft.name} here")


def _merge(drafts: Sequence[Draft]) -> dict[str, Draft]:
    """Join the drafts of one name; of two values for one option the first one counts."""
    merged: dict[str, Draft] = {}
    for draft in drafts:
        if draft.name not in merged:
            merged[draft.name] = Draft(draft.place, draft.name)
        whole = merged[draft.name]
        if draft.pkey not in (None, whole.pkey) and whole.pkey is not None:
            whole.leave(draft.place, f"another file gives {whole.name} the partition {whole.pkey}")
        whole.pkey = whole.pkey or draft.pkey
        whole.parent = whole.parent or draft.parent
        whole.aliases |= draft.aliases
        whole.children += draft.children
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


def _interface(draft: Draft, device: str | None) -> Interface:
    """Make an interface of the draft, without what `InterfaceConfig` refuses."""
    made = Interface(draft.name, device, sources=[draft.place], notes=draft.notes)
    places = {(each.option, each.text): each.place for each in draft.settings}
    for setting in draft.settings:
        made.texts.setdefault(setting.option, []).append(setting.text)
    if draft.pkey is not None:
        made.texts["pkey"] = [str(draft.pkey)]
    while error := _refusal(made):
        option = next(
            (key for key in re.findall(r"--([a-z0-9-]+)", str(error)) if key in made.texts),
            next(iter(made.texts)),
        )
        for text in made.texts.pop(option):
            made.notes.append(Note(places.get((option, text), draft.place), str(error)))
    return made


def _add_child(parent: Interface, draft: Draft) -> None:
    """Add a table for the child, without what a child does not have."""
    pkey = draft.pkey
    assert pkey is not None
    parent.sources.append(draft.place)
    parent.notes += draft.notes
    name = f"{parent.name}.{pkey:04x}"
    if draft.name != name:
        parent.notes.append(Note(draft.place, f"{draft.name} is called {name} here"))
    known = {option.name for option in options_of("child")}
    table: dict[str, list[str]] = {}
    for setting in draft.settings:
        if setting.option == "mode" and setting.text in _inherited(parent, "mode"):
            continue
        if setting.option in known:
            table.setdefault(setting.option, []).append(setting.text)
        elif setting.text not in _inherited(parent, setting.option):
            why = f"a child has its parent's {setting.option}"
            parent.notes.append(Note(setting.place, why))
    if pkey in parent.children:
        parent.notes.append(Note(draft.place, f"another child has the partition {pkey}"))
        return
    parent.children[pkey] = table
    while error := _refusal(parent):
        if not table:
            del parent.children[pkey]
            parent.notes.append(Note(draft.place, str(error)))
            return
        option = next(
            (key for key in re.findall(r"--([a-z0-9-]+)", str(error)) if key in table),
            next(iter(table)),
        )
        del table[option]
        place = next(each.place for each in draft.settings if each.option == option)
        parent.notes.append(Note(place, str(error)))


def _inherited(parent: Interface, option: str) -> Sequence[str]:
    """The parent's value, or the default where it is one that other programs write down."""
    return parent.texts.get(option, ["datagram"] if option == "mode" else [])


def _refusal(made: Interface) -> UsageError | None:
    """Why `ipoibu up` would refuse the configuration, whatever the device is."""
    try:
        texts = {"device": made.device or _ANY_DEVICE, **option_texts(made.texts)}
        config = InterfaceConfig.build(made.name, texts)
        for pkey, table in made.children.items():
            own = {key: read_value(BY_NAME[key], text) for key, text in option_texts(table).items()}
            config = config.with_child(pkey, own)
    except UsageError as error:
        return error
    return None


def option_texts(texts: Mapping[str, Sequence[str]]) -> dict[str, str | Sequence[str]]:
    """A list for the options that may be repeated, one text for the others."""
    return {key: text if BY_NAME[key].several else text[0] for key, text in texts.items()}
