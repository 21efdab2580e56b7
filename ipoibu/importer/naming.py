# SPDX-License-Identifier: BSD-2-Clause
"""Gives each interface of the files a name that the kernel accepts, and the partition that its name says."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ipoibu.base.addr import DEFAULT_PKEY, PKey, may_name_partition
from ipoibu.base.errors import UsageError
from ipoibu.base.interface_name import check_name
from ipoibu.importer.draft import Draft


def name_all(drafts: Sequence[Draft]) -> None:
    """Give each draft a name that the kernel accepts."""
    for draft in drafts:
        if draft.name and (fault := _fault(draft.name)):
            draft.leave(draft.place, fault)
            draft.aliases.add(draft.name)
            draft.name = ""
        if draft.name and draft.name == draft.parent and draft.pkey is not None:
            draft.leave(
                draft.place, f"{draft.name} is its parent: the kernel has another name for it"
            )
            draft.name = ""
    names = {alias: draft.name for draft in drafts for alias in draft.aliases if draft.name}
    taken = {draft.name for draft in drafts}
    reserved = taken | {draft.parent for draft in drafts} | {draft.controller for draft in drafts}
    numbers = iter(range(len(drafts) + len(reserved)))
    for draft in drafts:
        if draft.name:
            continue
        parent = names.get(draft.parent, draft.parent)
        if parent and draft.pkey is not None and not _fault(name := draft.pkey.child_of(parent)):
            draft.name = name  # NetworkManager's name for it, and the kernel's
            continue
        prefix = "bond" if draft.is_bond else "ib"
        told = [name for name in sorted(draft.aliases - reserved) if _is_like(name, prefix)]
        made_up = (name for n in numbers if (name := f"{prefix}{n}") not in reserved)
        draft.name = told[0] if told else next(made_up)
        reserved.add(draft.name)
        draft.leave(draft.place, f"no usable name of an interface: it is called {draft.name} here")


def name_partitions(merged: dict[str, Draft]) -> None:
    """Give a draft the partition that its name says, and its parent; where its file says another partition,
    give it another name."""
    for draft in list(merged.values()):
        if draft.is_bond:
            continue
        named = name_partition(draft)
        before, _, _ = draft.name.rpartition(".")
        if draft.pkey is None:
            continue
        if not draft.parent and before in merged and before != draft.name:
            draft.parent = before
        if named not in (None, draft.pkey):
            _rename(merged, draft, draft.pkey.child_of(before))


def name_partition(draft: Draft) -> PKey | None:
    """Give a draft the partition that its name says, which the function returns."""
    named = PKey.of_name(draft.name)
    draft.pkey = draft.pkey or named
    if is_ambiguous(draft):
        why = "the name may mean a partition: write its P_Key as `pkey`"
        draft.leave(draft.place, f"{why} ({draft.name})")
    return named


def name_bond(merged: dict[str, Draft], bond: Draft) -> None:
    """A bond is in the partition of its ports, whatever its name may say."""
    named = PKey.of_name(bond.name)
    if named is None and not may_name_partition(bond.name):
        return
    if not is_ambiguous(bond):
        bond.pkey = bond.pkey or DEFAULT_PKEY
    if named not in (None, bond.pkey):
        _rename(merged, bond, f"{bond.name.rpartition('.')[0]}-rails"[:15])


def _rename(merged: dict[str, Draft], draft: Draft, name: str) -> None:
    while name in merged:  # another file has this partition, too
        name = f"{draft.pkey}-{name}"[-15:]
    draft.leave(draft.place, f"{draft.name} says another partition than {draft.pkey}: here {name}")
    draft.aliases.add(draft.name)
    del merged[draft.name]
    draft.name = name
    merged[name] = draft


def is_ambiguous(draft: Draft) -> bool:
    """Return whether nobody but the administrator knows the partition: of a bond, that of its ports."""
    names = [port.name for port in draft.joined] if draft.is_bond else [draft.name]
    return draft.pkey is None and any(map(may_name_partition, names))


def _is_like(name: str, prefix: str) -> bool:
    """Return whether a connection of that name may well be one of an interface of that name."""
    is_like = bool(re.fullmatch(prefix + r"[a-z0-9]*\d", name)) or PKey.of_name(name) is not None
    return is_like and not _fault(name)


def _fault(name: str) -> str:
    """Why the kernel refuses the name; empty if it does not."""
    try:
        check_name(name)
    except UsageError as error:
        return str(error)
    return ""
