# SPDX-License-Identifier: BSD-2-Clause
"""The subnet of a lab of InfiniBand hosts: ibsim is the switch, OpenSM manages it."""

from __future__ import annotations

import contextlib
import ipaddress
import time
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.lab.directory import work_directory
from ipoibu.lab.ibsim import DEVICE, HOSTS_MAX, Ibsim, SimulationError, port_guid

LAB_HOSTS_MAX: Final = HOSTS_MAX - 2  # the first runs OpenSM, the last one diagnostic programs
MANAGER_STARTS: Final = 10  # until the second OpenSM is a standby
ONE_LINK: Final = "Default=0x7fff, ipoib : ALL=full;\n"


class LabSubnet:
    """The subnet of a lab. ibsim's `Hca2` is host h1; `partitions` is the text of OpenSM's file.

    With `standby`, a second OpenSM takes over when the first one dies (`hand_over`).
    """

    def __init__(self, hosts: int, partitions: str = ONE_LINK, *, standby: bool = False) -> None:
        if hosts + standby > LAB_HOSTS_MAX:
            raise UsageError(f"an InfiniBand lab has up to {LAB_HOSTS_MAX} hosts, not {hosts}")
        self._stack = contextlib.ExitStack()
        self._hosts = hosts
        self._has_standby = standby
        self.partitions = partitions

    def start(self) -> None:
        """Start ibsim and OpenSM; `SimulationError` names the missing package or program."""
        self.directory = self._stack.enter_context(work_directory("ibsim"))
        self.ibsim = self._stack.enter_context(
            Ibsim(self.directory, self._hosts + 2 + self._has_standby)
        )
        self._start_managers()

    def close(self) -> None:
        self._stack.close()

    def reload(self, partitions: str) -> None:
        """Make the running OpenSM read another partitions.conf; one that has given the subnet to its
        standby meanwhile starts anew."""
        self.partitions = partitions
        try:
            self.ibsim.reload(partitions)
        except SimulationError:
            if self.ibsim.is_master():
                raise
            self.restart()
            return
        self.ibsim.refresh(self._hosts + 2)

    def hand_over(self) -> None:
        """Kill OpenSM, and wait until the standby manages the subnet."""
        self.ibsim.kill_opensm()
        self.ibsim.await_standby()
        self.ibsim.refresh(self._hosts + 2)

    def restart(self, pause_s: float = 0.0) -> None:
        """Kill OpenSM and its standby, and start both anew on their hosts after `pause_s`."""
        self.ibsim.kill_opensm()
        self.ibsim.kill_standby()
        time.sleep(pause_s)
        self._start_managers()
        self.ibsim.refresh(self._hosts + 2)

    def _start_managers(self) -> None:
        for _ in range(MANAGER_STARTS):
            self.ibsim.start_opensm(self.partitions)
            if not self._has_standby or self.ibsim.start_standby(self._hosts + 3):
                return
            self.ibsim.kill_opensm()
            self.ibsim.kill_standby()
        raise SimulationError(f"both OpenSM became masters, {MANAGER_STARTS} times")

    def query(self, *command: str) -> str:
        """Return the output of a diagnostic program (`saquery`) on a host outside the lab."""
        return self.ibsim.output(self._hosts + 2, *command)

    def device(self, netdev: str) -> str:
        return f"soft:{netdev}@{DEVICE}"

    def environment(self, number: int) -> dict[str, str]:
        return self.ibsim.environment(number + 1)

    @staticmethod
    def guid(number: int) -> int:
        """Return the port GUID of a host, as partitions.conf names it."""
        return port_guid(number + 1)

    @classmethod
    def address(cls, number: int) -> ipaddress.IPv6Interface:
        """Return the link-local address whose 16 bytes are the port's GID."""
        return ipaddress.IPv6Interface(
            (b"\xfe\x80" + bytes(6) + cls.guid(number).to_bytes(8, "big"), 64)
        )
