# SPDX-License-Identifier: BSD-2-Clause
"""The part of the checkup about limited members: running interfaces that no other limited member reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from ipoibu.base.errors import IpoibuError
from ipoibu.daemon.control.client import Client
from ipoibu.doctor.daemons import Shown
from ipoibu.doctor.finding import Finding

CHECK: Final = "membership"


def memberships(shown: Shown) -> Iterator[Finding]:
    """Yield a finding about every interface that is a limited member; about one that does not answer any
    more, nothing."""
    for name, each in shown.items():
        if each.get("membership") == "limited":
            with suppress(IpoibuError, OSError), Client(name) as client:
                yield finding(name, each, client.request("stats"))


def finding(name: str, shown: Mapping[str, Any], stats: Mapping[str, int]) -> Finding:
    """Explain a limited member, by what `ipoibu show` and `ipoibu stats` say about the interface."""
    text = f"{name} is a limited member of partition {shown['pkey']}: it reaches full members alone"
    dropped = stats.get("fabric.drop_pkey", 0)
    if dropped:
        text += f"; {dropped} packets of other limited members, or partitions, were dropped"
    remedy = (
        f"make the port a full member: 0x{shown['guid']}=full in the partition of partitions.conf"
    )
    return Finding(CHECK, "warn", text, remedy)
