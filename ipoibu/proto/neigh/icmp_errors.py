# SPDX-License-Identifier: BSD-2-Clause
"""ICMP errors to our own host for packets that the link cannot deliver (C13), at a bounded rate."""

from __future__ import annotations

from collections.abc import Callable

from ipoibu.base.addr import IpAddress
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import ICMP_ERRORS_BURST, ICMP_ERRORS_PER_S
from ipoibu.proto.context import EngineContext
from ipoibu.proto.effects import Deliver, Effect, Refuse
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.wire import icmp


class IcmpErrors:
    """Delivers ICMP errors; `wire.icmp` decides which packets may get one."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._bucket = TokenBucket(ICMP_ERRORS_PER_S, ICMP_ERRORS_BURST)

    def unreachable(self, now: float, next_hop: IpAddress, packet: bytes) -> None:
        """The packet's next hop does not answer."""
        try:
            error = icmp.unreachable_untrusted(packet)
            self._answer(now, error, lambda error: Refuse(packet, next_hop, error))
        except BadFrame as error:
            self._context.count(error.reason)

    def too_big(
        self, now: float, packet: bytes, mtu_bytes: int, speaker: IpAddress | None = None
    ) -> None:
        """The packet exceeds the MTU towards its next hop."""
        try:
            self._answer(now, icmp.too_big_untrusted(packet, mtu_bytes, speaker), Deliver)
        except BadFrame as error:
            self._context.count(error.reason)

    def _answer(self, now: float, error: bytes | None, effect: Callable[[bytes], Effect]) -> None:
        if error is None:
            self._context.count("icmp_error_forbidden")
        elif not self._bucket.take(now):
            self._context.count("icmp_error_limited")
        else:
            self._context.emit(effect(error))
