# SPDX-License-Identifier: BSD-2-Clause
"""The capabilities of this thread, and of every thread that it starts later (capabilities(7))."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Final

from ipoibu.base.privilege import CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW
from ipoibu.sandbox.libc import permitted_capabilities, prctl, set_capabilities

CAP_NET_BROADCAST: Final = 11  # linux/capability.h
CAP_SYS_ADMIN: Final = 21

NAMES: Final = {
    CAP_NET_BROADCAST: "net_broadcast",
    CAP_SYS_ADMIN: "sys_admin",
    CAP_NET_ADMIN: "net_admin",
    CAP_NET_RAW: "net_raw",
    CAP_IPC_LOCK: "ipc_lock",
}

# linux/prctl.h
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_RAISE: Final = 2
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4


def permitted() -> int:
    """The permitted set, a bit for each capability."""
    return permitted_capabilities()


def keep(capabilities: Collection[int]) -> frozenset[int]:
    """Drop all capabilities but these, and return those of them that this thread had and keeps.

    The bounding set becomes empty, so that no program that this process might execute regains any.
    Only a thread with CAP_SETPCAP may empty it; no_new_privs gives the same guarantee to the others.
    """
    held = permitted()
    kept = frozenset(each for each in capabilities if held >> each & 1)
    # A change of user has cleared the effective set, and CAP_SETPCAP with it.
    set_capabilities(held, 0)
    _empty_bounding_set()
    with contextlib.suppress(OSError):  # before Linux 4.3 there is no ambient set
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    mask = sum(1 << each for each in kept)
    set_capabilities(mask, 0)
    return kept


def keep_for_programs(capabilities: Collection[int]) -> None:
    """Drop all capabilities but these, which programs that this thread executes get as well (the ambient
    set, Linux 4.3)."""
    mask = sum(1 << each for each in capabilities)
    set_capabilities(mask, mask)
    for each in capabilities:
        prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, each)


def _empty_bounding_set() -> None:
    for capability in _known():
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except PermissionError:
            return


def _known() -> Iterator[int]:
    for capability in range(64):
        try:
            prctl(_PR_CAPBSET_READ, capability)
        except OSError:
            return
        yield capability
