# SPDX-License-Identifier: BSD-2-Clause
"""The rule for names of interfaces, which is the kernel's."""

from __future__ import annotations

import os
from typing import Final

from ipoibu.base.errors import UsageError

NAME_MAX: Final = 15  # IFNAMSIZ - 1


def check_name(name: str) -> str:
    """Return the name if the kernel accepts it for an interface; `UsageError` otherwise.

    The function refuses `%`, too: the kernel would read it as a pattern and choose a name itself.
    """
    if not name or name in (".", "..") or name.startswith("-"):
        raise UsageError(f"{name!r} is no interface name; choose one such as ib0")
    if name in ("all", "default"):
        raise UsageError(f"{name!r} is no interface name: /proc/sys/net has another use for it")
    if len(os.fsencode(name)) > NAME_MAX:
        raise UsageError(f"interface name {name!r} is too long: at most {NAME_MAX} bytes")
    if any(c.isspace() or not c.isprintable() or c in "/:%" for c in name):
        raise UsageError(
            f"interface name {name!r} has a forbidden character (blank, '/', ':', '%')"
        )
    return name
