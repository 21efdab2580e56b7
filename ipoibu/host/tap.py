# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's interface of a TAP, whose addresses are those of its guests."""

from __future__ import annotations

from ipoibu.host.kernel_interface import KernelInterface, disable_ipv6
from ipoibu.host.netlink import Link


class TapInterface(KernelInterface):
    """An interface that ipoibu gives an MTU and the state up, and nothing else: a bridge or a virtual
    machine has it. What the host does on it itself, if anything, makes the host one of the guests."""

    def configure(self) -> None:
        index = self.index
        self._netlink.set_link(
            index, mtu_bytes=self.spec.mtu_bytes, txqueuelen=self.spec.ring_packets
        )
        disable_ipv6(self.spec.name, self._netlink.namespace)  # the host is no guest unasked
        self._netlink.set_link(index, up=True)

    def note_mode(self, link: Link) -> None:
        """Do nothing: the interface has no addresses of ours."""

    def restore(self) -> None:
        """Do nothing: no address is ours to set."""
