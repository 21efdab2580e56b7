# SPDX-License-Identifier: BSD-2-Clause
"""The sysctls of an interface: net.ipv4.conf.NAME, net.ipv4.neigh.NAME, and those of IPv6."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

from ipoibu.base.errors import IpoibuError
from ipoibu.host.namespace import Namespace

SYSCTLS: Final = Path("/proc/sys/net")
_VALUE_BYTES: Final = 64


class Sysctls:
    """The sysctls of a network namespace; a value that is missing is 0."""

    def __init__(self, namespace: Namespace, root: Path = SYSCTLS) -> None:
        self._namespace = namespace
        self._root = root

    def own(self, family: str, interface: str | None, name: str) -> int:
        """Return the value of the interface, which may be gone."""
        return 0 if interface is None else self._value(family, interface, name)

    def larger(self, family: str, interface: str | None, name: str) -> int:
        """Return the larger of the interface's value and the one for all interfaces."""
        return max(self.own(family, interface, name), self._value(family, "all", name))

    def neigh(self, family: str, interface: str, name: str) -> int:
        """Return a value of the interface's neighbour table."""
        return self._read(self._root / family / "neigh" / interface / name)

    def _value(self, family: str, scope: str, name: str) -> int:
        return self._read(self._root / family / "conf" / scope / name)

    def _read(self, file: Path) -> int:
        path = str(file)
        with contextlib.suppress(OSError, ValueError, IpoibuError):
            fd = self._namespace.open(path, os.O_RDONLY)
            try:
                return int(os.read(fd, _VALUE_BYTES))
            finally:
                os.close(fd)
        return 0
