# SPDX-License-Identifier: BSD-2-Clause
"""The hardware addresses of the guests towards the link: a queue pair for each, as far as there are some.

All have the port's GID. The fabric opens a number of queue pairs for guests before any of them is there
(`Fabric.open_guest_queue_pairs`). A guest that holds an address has one of them; those who come when all are
taken share the interface's. A hash of the MAC chooses, so that a guest gets the same one after a restart.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from ipoibu.base.addr import HwAddr, Mac, Qpn
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import SetQueuePair


class QueuePairs:
    """The queue pairs of the guests, as far as there are some."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._qpns: dict[Mac, Qpn] = {}
        self._macs: dict[Qpn, Mac] = {}

    def hwaddr(self, mac: Mac | None) -> HwAddr:
        """Return the hardware address of a guest; the interface's for one without a queue pair."""
        qpn = None if mac is None else self._qpns.get(mac)
        ours = self._context.hwaddr
        return ours if qpn is None else HwAddr(qpn, ours.gid)

    def own(self, mac: Mac) -> HwAddr | None:
        """Return the hardware address of a guest that has one of its own."""
        return self.hwaddr(mac) if mac in self._qpns else None

    def mac(self, hwaddr: HwAddr) -> Mac | None:
        """Return the guest that has this hardware address alone."""
        ours = self._context.hwaddr
        is_alone = replace(hwaddr, qpn=ours.qpn).same_queue_pair(ours)
        return self._macs.get(hwaddr.qpn) if is_alone else None

    def assign(self, mac: Mac) -> bool:
        """Give a guest a queue pair; False if it has one, or if none is left."""
        if mac in self._qpns or not self._context.config.guest_qpns:
            return False
        qpn = self._free(mac)
        if qpn is None:
            self._context.count("ethernet_queue_pairs_full")
            return False
        self._qpns[mac] = qpn
        self._macs[qpn] = mac
        self._context.emit(SetQueuePair(mac, qpn))
        return True

    def release(self, mac: Mac) -> None:
        """The guest has no address any more."""
        qpn = self._qpns.pop(mac, None)
        if qpn is not None:
            del self._macs[qpn]
            self._context.emit(SetQueuePair(mac, None))

    def note_renewed(self) -> None:
        """The interface has another queue pair, and others for the guests; another pump gets them by
        `pump_entries`."""
        macs = list(self._qpns)
        self._qpns.clear()
        self._macs.clear()
        for mac in macs:
            qpn = self._free(mac)
            if qpn is not None:
                self._qpns[mac] = qpn
                self._macs[qpn] = mac

    def pump_entries(self) -> list[SetQueuePair]:
        """Return what the pump knows."""
        return [SetQueuePair(mac, qpn) for mac, qpn in self._qpns.items()]

    def _free(self, mac: Mac) -> Qpn | None:
        """Return the first free queue pair from the MAC's own place on."""
        pool = self._context.config.guest_qpns
        if len(self._qpns) >= len(pool):
            return None
        start = int.from_bytes(hashlib.blake2b(mac.raw, digest_size=4).digest(), "big") % len(pool)
        around = pool[start:] + pool[:start]
        return next((qpn for qpn in around if qpn not in self._macs), None)
