# SPDX-License-Identifier: BSD-2-Clause
"""Remembers who used an address that belongs to another guest, for `ipoibu guests`, `monitor`
and `doctor`."""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import IpAddress, Mac
from ipoibu.base.limits import DROPS_QUIET_S, ETHERNET_REFUSALS_MAX
from ipoibu.proto.machine.transition import GuestChange, Observer, Topic, Transition


class Reason(enum.Enum):
    """Why a guest may not use an address."""

    BOUND = "bound"  # an administrator bound it to another guest
    HELD = "held"  # another guest has it
    OTHERS = "others"  # an administrator bound the guest to other addresses


_WORDS: Final = {
    Reason.BOUND: "the address is bound to another guest",
    Reason.HELD: "another guest has the address",
    Reason.OTHERS: "the guest is bound to other addresses",
}


@dataclass(frozen=True, slots=True)
class RefusalInfo:
    """The guest `mac` used `ip` in `count` messages, the last one `age_s` ago; `holder` has it, if any."""

    ip: IpAddress
    mac: Mac
    holder: Mac | None
    reason: Reason
    count: int
    age_s: float


@dataclass(slots=True)
class _Refusal:
    holder: Mac | None
    reason: Reason
    noted: float
    last: float
    count: int = 1


class Refusals:
    """Remembers at most `cap` pairs of guest and address; a new one replaces that of longest ago.

    `observe` gets the first refusal of each pair within a minute.
    """

    def __init__(self, observe: Observer, cap: int = ETHERNET_REFUSALS_MAX) -> None:
        self._observe = observe
        self._cap = cap
        self._refused: OrderedDict[tuple[Mac, IpAddress], _Refusal] = OrderedDict()

    def note(self, now: float, ip: IpAddress, mac: Mac, reason: Reason, holder: Mac | None) -> None:
        """`mac` used `ip`, which it may not."""
        known = self._refused.get((mac, ip))
        if known is None:
            if len(self._refused) >= self._cap:
                self._refused.popitem(last=False)
            self._refused[mac, ip] = _Refusal(holder, reason, now, now)
        else:
            known.count += 1
            known.holder, known.reason, known.last = holder, reason, now
            self._refused.move_to_end((mac, ip))
            if now - known.noted < DROPS_QUIET_S:
                return
            known.noted = now
        self._observe(
            Transition(
                Topic.GUEST,
                ip,
                "",
                reason.value,
                _WORDS[reason],
                hwaddr=mac,
                detail=GuestChange.REFUSED,
                reason="" if holder is None else str(holder),
            )
        )

    def snapshot(self, now: float) -> Iterator[RefusalInfo]:
        for (mac, ip), it in self._refused.items():
            yield RefusalInfo(ip, mac, it.holder, it.reason, it.count, now - it.last)
