# SPDX-License-Identifier: BSD-2-Clause
"""A lease as the clients for DHCP and DHCPv6 know it: when they asked for it, and what time is left."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Generic, TypeVar

from ipoibu.wire.dhcp6_lease import Lease6
from ipoibu.wire.dhcp_lease import Lease

_Lease = TypeVar("_Lease", bound=Lease | Lease6)
_Message = TypeVar("_Message")
_State = TypeVar("_State")


@dataclass(frozen=True, slots=True)
class Granted(Generic[_Lease, _Message]):
    """A lease, the message that granted it, and when the client asked for it (monotonic seconds)."""

    lease: _Lease
    message: _Message
    since_s: float

    @property
    def renewal_s(self) -> float:
        return self.since_s + self.lease.renewal_s

    @property
    def rebinding_s(self) -> float:
        return self.since_s + self.lease.rebinding_s

    @property
    def end_s(self) -> float:
        return self.since_s + self.lease.lease_s


@dataclass(frozen=True, slots=True)
class LeaseStatus(Generic[_State, _Lease]):
    """The state of a client, and its lease, of which the times are seconds from now."""

    state: _State
    lease: _Lease | None
    renewal_s: float | None
    end_s: float | None


def duration(seconds: float) -> str:
    """Return the time of a lease as the log shows it."""
    return "ever" if seconds == math.inf else f"{seconds:.0f} s"
