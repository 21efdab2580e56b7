# SPDX-License-Identifier: BSD-2-Clause
"""Connections by our own communication manager, over queue pair 1 of a port.

`proto.cm.cm` decides, sans-IO; this module sends and receives the datagrams.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from ipoibu.base.addr import PKey
from ipoibu.base.limits import CM_ROUND
from ipoibu.fabric.cm.gsi import GsiPort
from ipoibu.fabric.cm.service import CmService
from ipoibu.fabric.effect_loop import EffectLoop
from ipoibu.proto.cm.cm import Cm, CmConfig
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.rc.events import CmEffect, Request, SendMad
from ipoibu.wire.cm_private import ServiceForm

_log = logging.getLogger(__name__)


class GsiCm(CmService):
    """A `CmService` that owns the port's queue pair 1; `close` closes that, too."""

    forms: ClassVar = tuple(ServiceForm)

    def __init__(self, gsi: GsiPort, config: CmConfig) -> None:
        super().__init__()
        self._gsi = gsi
        self._cm = Cm(config, random.Random())
        self._effects = EffectLoop(self._cm, self._carry_out)
        self._start()

    def _filenos(self) -> tuple[int, ...]:
        return (self._gsi.fd,)

    def _serve(self) -> float | None:
        self._gsi.arm()
        for _ in range(CM_ROUND):
            datagram = self._gsi.receive()
            if datagram is None:
                break
            self._readdress()
            with self._guarded("a connection management datagram"):
                self._effects.perform(self._cm.note_received(time.monotonic(), *datagram))
        now = time.monotonic()
        with self._guarded("a connection management timer"):
            self._effects.run_timer(now)
        if datagram is not None:
            return 0.0  # there may be more
        waits = (self._effects.wait_ms(now), self._gsi.wait_ms())
        return min((wait for wait in waits if wait is not None), default=None)

    def _listen(self, services: Mapping[int, PKey]) -> None:
        self._cm.listen(services)

    def _ask(self, request: Request) -> None:
        self._readdress()
        self._effects.perform(self._cm.request(time.monotonic(), request))

    def _disconnect_all(self) -> None:
        self._effects.perform(self._cm.stop(time.monotonic()))

    def _release(self) -> None:
        self._effects.stop()
        self._gsi.close()

    def _readdress(self) -> None:
        """Take over the port's address, which a subnet manager may change at any time."""
        config = self._cm.config
        gid, lid = self._gsi.address
        if (gid, lid) != (config.gid, config.lid):
            self._cm.config = replace(config, gid=gid, lid=lid)

    def _carry_out(self, effect: CmEffect) -> None:
        match effect:
            case SendMad(destination, raw, pkey):
                if not self._gsi.send(destination, pkey, raw):
                    self._counts["cm_send_failed"] += 1
            case Count(reason):
                self._counts[reason] += 1
            case Log(level, text):
                _log.log(level, "%s", text)
            case _:
                self._notify(effect)
