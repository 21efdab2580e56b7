# SPDX-License-Identifier: BSD-2-Clause
"""The user that a process runs as after its start as root."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from typing import Final, Self

from ipoibu.base.errors import NotPermitted, UsageError
from ipoibu.sandbox.libc import prctl

_PR_SET_KEEPCAPS: Final = 8  # linux/prctl.h


@dataclass(frozen=True, slots=True)
class User:
    """A user of this machine, with its primary group."""

    name: str
    uid: int
    gid: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The user of that name or number; `UsageError` if there is none."""
        try:
            number = int(text) if text.isascii() and text.isdigit() else None
            entry = pwd.getpwnam(text) if number is None else pwd.getpwuid(number)
        except (KeyError, ValueError, OverflowError) as error:
            raise UsageError(f"this machine has no user {text!r}") from error
        return cls(entry.pw_name, entry.pw_uid, entry.pw_gid)


def keep_permitted() -> None:
    """Have this thread keep its permitted capabilities when the process becomes another user."""
    prctl(_PR_SET_KEEPCAPS, 1)


def become(user: User) -> None:
    """Take the ids and groups of `user`, in every thread, and keep this thread's permitted capabilities.

    The kernel clears the effective capabilities; `capabilities.keep` sets those that are needed.
    """
    try:
        keep_permitted()
        os.initgroups(user.name, user.gid)
        os.setresgid(user.gid, user.gid, user.gid)
        os.setresuid(user.uid, user.uid, user.uid)
    except PermissionError as error:
        raise NotPermitted(f"--user {user.name} needs root: leave the option out") from error
