# SPDX-License-Identifier: BSD-2-Clause
"""The memberships of the rails that wait, under a subnet administrator (docs/use/rails.md).

A rail that is a member of the link takes over at once. Without that it takes over by a heavy flush, which
joins the link first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ipoibu.base.addr import Gid
from ipoibu.base.errors import Closed, IpoibuError, LinkError
from ipoibu.base.ib import PartitionParams
from ipoibu.base.limits import GROUP_BACKOFF_MAX_S, GROUP_BACKOFF_MIN_S
from ipoibu.endpoint.subnet.retry import rest
from ipoibu.fabric.flush import Flush
from ipoibu.fabric.sa.link import pkey_place
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.proto.sa.records import link_params
from ipoibu.wire import mgid

if TYPE_CHECKING:
    from ipoibu.fabric.sa.client import SaClient

_log = logging.getLogger(__name__)


class BackupMember:
    """Keeps the port of one rail in the groups that the active rail receives.

    It tries again after 1, 2 .. 16 s what the SA refuses, and at once when the subnet changes. Every method
    but `_note_change` runs on the interface's loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sa: SaClient,
        params: PartitionParams,
        groups: Collection[Gid],
        *,
        is_joined: bool,
    ) -> None:
        """The port is a member of the groups already if `is_joined`."""
        self._loop = loop
        self._sa = sa
        self._params = params
        self._broadcast = mgid.broadcast(params.pkey, params.scope)
        self._pkey_place = pkey_place(sa, params.pkey)
        self._wanted = set(groups)
        self._joined = set(groups) if is_joined else set()  # the client's memberships, and ...
        self._confirmed = self._joined.copy()  # ... those since the subnet changed
        self._joining: set[Gid] = set()  # requested; the SA may have added us already
        self._is_member = is_joined  # of the broadcast group, whichever its parameters
        self._changed = asyncio.Event()
        sa.listen(self._note_change)
        self._task = loop.create_task(self._run())

    @property
    def is_ready(self) -> bool:
        """Return whether the port is a member of the link, with the P_Key that its queue pair has."""
        return self._broadcast in self._confirmed and self._why_not() is None

    @property
    def is_admitted(self) -> bool:
        """Return whether the SA has made the port a member of the link, perhaps with another P_Key or other
        parameters than those of its queue pair."""
        return self._is_member

    def follow(self, groups: Collection[Gid]) -> None:
        """Join and leave until the port is in these groups alone."""
        self._wanted = set(groups)
        self._changed.set()

    def hand_over(self) -> None:
        """End, and leave the memberships to the `SaSubnet` that takes over."""
        self._end()
        self._leave((self._joined | self._joining) - self._wanted)

    def close(self) -> None:
        """End, and leave all groups."""
        self._end()
        self._leave(self._joined | self._joining)

    def _end(self) -> None:
        self._sa.unlisten(self._note_change)
        self._task.cancel()

    def _leave(self, groups: Collection[Gid]) -> None:
        for group in groups:
            try:
                self._sa.submit(partial(self._sa.leave, group))
            except Closed:  # the device is gone
                return

    def _note_change(self, change: object) -> None:
        """Take a change of the subnet on the SA client's thread: the SA may have forgotten the port."""
        if isinstance(change, Flush):
            try:
                self._loop.call_soon_threadsafe(self._renew)
            except RuntimeError:  # the interface is closed
                _log.debug("the SA client reported %s after the interface closed", change)

    def _renew(self) -> None:
        self._confirmed.clear()
        self._is_member = False
        self._changed.set()

    async def _run(self) -> None:
        backoff = Backoff(GROUP_BACKOFF_MIN_S, GROUP_BACKOFF_MAX_S)
        while True:
            self._changed.clear()
            try:
                await self._catch_up()
                backoff.reset()
                await self._changed.wait()
            except Closed:
                return
            except IpoibuError as error:
                if backoff.refusals.add():
                    info, times = self._sa.info, backoff.refusals.times
                    place = f"{info.device}/{info.port}"
                    _log.warning("rail %s waits outside of the link: %s%s", place, error, times)
                await rest(backoff, self._changed)

    async def _catch_up(self) -> None:
        if pkey_place(self._sa, self._params.pkey) is None:
            self._is_member = False
            raise LinkError(f"the port has no P_Key {self._params.own_pkey}")
        if (why := self._why_not()) is not None:
            if not self._is_member:
                await self._join(self._broadcast)
            raise LinkError(why)
        refused: LinkError | None = None
        for group in sorted(self._wanted - self._confirmed, key=lambda it: it != self._broadcast):
            try:
                await self._join(group)
            except LinkError as error:
                if group == self._broadcast:
                    raise
                refused = refused or error
        surplus = self._joined - self._wanted
        self._joined -= surplus
        self._confirmed -= surplus
        self._leave(surplus)
        if refused is not None:
            raise refused

    async def _join(self, group: Gid) -> None:
        is_broadcast = group == self._broadcast
        self._joining.add(group)
        try:
            record = await self._sa.join(group, params=None if is_broadcast else self._params)
            self._joined.add(group)
        finally:
            self._joining.discard(group)
        if is_broadcast:
            self._is_member = True
            found = replace(link_params(record), is_limited=self._params.is_limited)
            if found != self._params:
                raise LinkError(f"{group} has other parameters than the interface's link")
        self._confirmed.add(group)

    def _why_not(self) -> str | None:
        """Return why the queue pair of the rail cannot be in the partition; None if it can."""
        own, now = self._params.own_pkey, pkey_place(self._sa, self._params.pkey)
        if now is None or now[1] != own:
            return f"the port has no P_Key {own}"
        if now != self._pkey_place:
            return f"P_Key {own} is at another index than the queue pair's"
        return None


class BackupMembers:
    """Keeps all rails of one data path but the active one in the groups of the interface.

    Every method runs on the interface's loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        params: PartitionParams,
        ports: Sequence[SharedPort | None],
        active: int,
    ) -> None:
        self._loop = loop
        self._params = params
        self._groups: frozenset[Gid] = frozenset()
        self._clients = [None if port is None else port.sa for port in ports]
        self._members: dict[int, BackupMember] = {}
        for rail in range(len(ports)):
            if rail != active:
                self._begin(rail, is_joined=False)

    def _begin(self, rail: int, *, is_joined: bool) -> None:
        sa = self._clients[rail]
        if sa is not None:
            self._members[rail] = BackupMember(
                self._loop, sa, self._params, self._groups, is_joined=is_joined
            )

    def follow(self, groups: Collection[Gid]) -> None:
        """Take the groups that the interface receives now."""
        self._groups = frozenset(groups)
        for member in self._members.values():
            member.follow(groups)

    def is_ready(self, rail: int) -> bool:
        """Return whether the rail is a member of the link."""
        member = self._members.get(rail)
        return member is not None and member.is_ready

    def joining(self) -> Collection[int]:
        """Return the rails that the SA has not made members of the link."""
        return {rail for rail, member in self._members.items() if not member.is_admitted}

    def move(self, before: int, after: int) -> None:
        """The rail `after` carries the traffic now, and `before` waits."""
        self._members.pop(after).hand_over()
        self._begin(before, is_joined=True)

    def close(self) -> None:
        """Leave all groups."""
        for member in self._members.values():
            member.close()
        self._members.clear()
