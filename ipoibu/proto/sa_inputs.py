# SPDX-License-Identifier: BSD-2-Clause
"""What the subnet administrator (SA) answers and reports to the engine; without one nothing follows."""

from __future__ import annotations

from collections.abc import Callable

from ipoibu.base.addr import Gid
from ipoibu.proto.context import EngineContext
from ipoibu.proto.inputs import EnginePart, engine_input
from ipoibu.proto.paths import SaPath


class SaInputs(EnginePart):
    """`renew(group)` joins a group again, or all of them."""

    def __init__(self, context: EngineContext, renew: Callable[[Gid | None], None]) -> None:
        self._context = context
        self._renew = renew if context.config.has_sa else lambda _: None

    @engine_input
    def note_path_resolved(self, now: float, gid: Gid, path: SaPath) -> None:
        """The SA's answer to `FindPath` or `JoinToSend`."""
        self._context.paths.note_path_resolved(now, gid, path)

    @engine_input
    def note_path_unresolved(self, now: float, gid: Gid, reason: str) -> None:
        """The SA refused, or did not answer; the engine asks again after a while."""
        self._context.paths.note_refused(now, gid, reason)

    @engine_input
    def note_changed(self, now: float) -> None:
        """The SA may have forgotten us, or another SA took over: a light flush. The engine joins all groups
        and asks for all paths again, and uses the present ones meanwhile."""
        self._renew(None)
        self._context.paths.revalidate(now)

    @engine_input
    def note_group_changed(self, now: float, mgid: Gid, *, exists: bool) -> None:
        """The SA reports that the group exists now, or that it is gone (M2)."""
        if not exists:
            self._renew(mgid)
        self._context.paths.note_changed(now, mgid, exists=exists)
