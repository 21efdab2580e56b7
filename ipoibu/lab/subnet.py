# SPDX-License-Identifier: BSD-2-Clause
"""The subnet of a lab of InfiniBand hosts: ibsim is the switch, OpenSM manages it."""

from __future__ import annotations

import contextlib
import ipaddress
import tempfile
from pathlib import Path
from typing import Final

from ipoibu.errors import UsageError
from ipoibu.lab.ibsim import DEVICE, HOSTS_MAX, Ibsim, port_guid

LAB_HOSTS_MAX: Final = HOSTS_MAX - 2  # the first is OpenSM's, the last asks questions
ONE_LINK: Final = "Default=0x7fff, ipoib : ALL=full;\n"


class LabSubnet:
    """Host `number` of the lab is ibsim's next: `Hca2` is h1. `partitions` is OpenSM's file, as text.

    With a `standby` there is another OpenSM, which takes over from one that dies (`hand_over`).
    """

    def __init__(self, hosts: int, partitions: str = ONE_LINK, *, standby: bool = False) -> None:
        if hosts + standby > LAB_HOSTS_MAX:
            raise UsageError(f"an InfiniBand lab has up to {LAB_HOSTS_MAX} hosts, not {hosts}")
        self._stack = contextlib.ExitStack()
        self._hosts = hosts
        self._has_standby = standby
        self.partitions = partitions

    def start(self) -> None:
        """`SimulationError` names what to install, or says what did not come up."""
        temporary = tempfile.TemporaryDirectory(prefix="ipoibu-ibsim-")
        self.directory = Path(self._stack.enter_context(temporary))
        self.ibsim = self._stack.enter_context(
            Ibsim(self.directory, self._hosts + 2 + self._has_standby)
        )
        self.ibsim.start_opensm(self.partitions)
        if self._has_standby:
            self.ibsim.start_standby(self._hosts + 3)

    def close(self) -> None:
        self._stack.close()

    def reload(self, partitions: str) -> None:
        """Have OpenSM take another partitions.conf over while it runs."""
        self.partitions = partitions
        self.ibsim.reload(partitions)
        self.ibsim.refresh(self._hosts + 2)

    def hand_over(self) -> None:
        """OpenSM dies, and the standby manages the subnet from now on."""
        self.ibsim.kill_opensm()
        self.ibsim.await_standby()
        self.ibsim.refresh(self._hosts + 2)

    def query(self, *command: str) -> str:
        """What a diagnostic program (`saquery`) prints on a host that is none of the lab's."""
        return self.ibsim.output(self._hosts + 2, *command)

    def device(self, netdev: str) -> str:
        return f"soft:{netdev}@{DEVICE}"

    def environment(self, number: int) -> dict[str, str]:
        return self.ibsim.environment(number + 1)

    @staticmethod
    def guid(number: int) -> int:
        """The port GUID of a host, as partitions.conf names it."""
        return port_guid(number + 1)

    @classmethod
    def address(cls, number: int) -> ipaddress.IPv6Interface:
        """The link-local address whose 16 bytes are the port's GID."""
        return ipaddress.IPv6Interface(
            (b"\xfe\x80" + bytes(6) + cls.guid(number).to_bytes(8, "big"), 64)
        )
