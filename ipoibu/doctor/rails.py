# SPDX-License-Identifier: BSD-2-Clause
"""The part of the checkup about rails: which devices of a running interface carry traffic, and why not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ipoibu.base.device_name import device_text
from ipoibu.doctor.daemons import Shown
from ipoibu.doctor.finding import Finding

CHECK: Final = "rails"
_WHY: Final = {
    "down": ("is down", "look at its link: ip link show, or the port of the switch"),
    "absent": ("is absent", "bring the device back, or leave it out"),
    "suspect": (
        "reaches none of the monitored neighbours, or its port was refused",
        "look at the wire and the switch behind it, and at the log",
    ),
    "joining": (
        "is no member of the link",
        "the log has the words of the subnet administrator: look at the port's partitions",
    ),
}


def rails(shown: Shown) -> Iterator[Finding]:
    """Yield findings about every interface that has several devices."""
    for name, each in shown.items():
        yield from findings(name, each)


def findings(name: str, shown: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each rail, of what `ipoibu show` says about the interface."""
    several = shown.get("rails") or ()
    reach = max((rail.get("peers") or 0 for rail in several), default=0)
    is_spreading = shown.get("rail_mode") == "balance-xor"
    for rail in several:
        place, state = f"{name}: {device_text(rail['device'], rail['port'])}", rail["state"]
        if state in _WHY:
            what, remedy = _WHY[state]
            yield Finding(CHECK, "warn", f"{place} {what}", remedy)
        elif is_spreading and (peers := rail.get("peers") or 0) < reach:
            text = f"{place} reaches {peers} of the {reach} peers that another device reaches"
            remedy = "give the devices in the order of the wires on all hosts, and look at its wire"
            yield Finding(CHECK, "warn", text, remedy)
        elif is_spreading:
            yield Finding(CHECK, "ok", f"{place} is {state}, and carries flows to {reach} peers")
        else:
            yield Finding(CHECK, "ok", f"{place} is {state}")
    if several and is_spreading and reach == 0:
        text = f"{name}: no other host has several devices and --rail-mode balance-xor"
        yield Finding(CHECK, "info", text)
