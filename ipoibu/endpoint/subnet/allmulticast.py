# SPDX-License-Identifier: BSD-2-Clause
"""Receives every group of the link, for a multicast router (M7).

RFC 4391 §11: a router becomes a NonMember of all groups, which keeps none of them alive, and learns of
new ones by trap 66. Reports get lost, or go to another program on the port, so `AllMulticast` lists the
groups again now and then. `SaSubnet` handles the groups that the interface itself joins as a full member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from ipoibu.base.addr import Gid
from ipoibu.base.errors import BadFrame, LinkError
from ipoibu.base.limits import ALL_GROUPS_LIST_S, GROUPS_MAX
from ipoibu.endpoint.interface_contract import InterfaceContract
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.sa.errors import NoRecords
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState, McMemberRecord

if TYPE_CHECKING:
    from ipoibu.fabric.sa.client import SaClient

_log = logging.getLogger(__name__)

STATE: Final = JoinState.NON_MEMBER


class AllMulticast:
    """The groups of one link that we receive for a router; every method runs on the interface's loop.

    `attach` has the queue pair receive a group, `detach` ends that and leaves the group at the SA. Both
    count for this purpose only: a group that the interface joined for itself stays attached.
    """

    def __init__(
        self,
        interface: InterfaceContract,
        sa: SaClient,
        attach: Callable[[McMemberRecord], None],
        detach: Callable[[Gid], None],
    ) -> None:
        self._interface = interface
        self._sa = sa
        self._attach = attach
        self._detach = detach
        self._params = interface.params
        self._held: set[Gid] = set()
        self._joining: set[Gid] = set()  # requested; the SA may have added us already
        self._news: dict[Gid, bool] = {}  # by group: whether it exists, according to a report
        self._woken = asyncio.Event()
        self._must_list = True
        self._is_doubted = False  # the SA may have forgotten that we are a member
        self._refusals = Repeats()
        self._task: asyncio.Task[None] | None = None

    @property
    def held(self) -> tuple[Gid, ...]:
        return tuple(sorted(self._held, key=lambda group: group.raw))

    def open(self) -> None:
        """Start: the link is up, or comes up."""
        if self._task is None:
            self._must_list = True
            self._task = self._interface.loop.create_task(self._run())

    def close(self) -> None:
        """The link is down: stop receiving the groups, and leave them."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        for group in self._held | self._joining:
            self._detach(group)
        self._held.clear()
        self._joining.clear()
        self._news.clear()

    def note_group(self, group: Gid, *, exists: bool) -> None:
        """The SA reports that it created or deleted the group (M2)."""
        if self._is_of_link(group):
            self._news[group] = exists
            if len(self._news) > GROUPS_MAX:  # members can create groups faster than we join them
                self._news.clear()
                self._must_list = True
            self._woken.set()

    def refresh(self) -> None:
        """Another SA may have taken over: list the groups, and join them again."""
        self._must_list = self._is_doubted = True
        self._woken.set()

    # ---- inside

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                if self._must_list:
                    await self._list()
                while self._news:
                    await self._learn(*self._news.popitem())
            except LinkError as error:
                self._complain(error)
            try:
                async with asyncio.timeout(ALL_GROUPS_LIST_S):  # wait_for() may lose a cancellation
                    await self._woken.wait()
            except TimeoutError:
                self._must_list = True

    async def _list(self) -> None:
        self._news.clear()
        records = await self._sa.groups(self._params.pkey)
        there, again = self._of_link(records), self._is_doubted
        self._must_list = self._is_doubted = False
        for group in self._held - there:
            await self._learn(group, exists=False)
        for group in there if again else there - self._held:
            await self._learn(group, exists=True, again=again)

    async def _learn(self, group: Gid, exists: bool, again: bool = False) -> None:
        if not exists:
            if group in self._held:
                self._held.discard(group)
                self._detach(group)
            return
        if group in self._held:
            if not again:
                return
        elif len(self._held) >= GROUPS_MAX:
            self._interface.counts["group_table_full"] += 1
            return
        self._joining.add(group)
        try:
            self._attach(await self._sa.join(group, STATE))
        except NoRecords:
            return  # the group is gone meanwhile
        except LinkError as error:
            self._complain(error)
        else:
            self._held.add(group)
        finally:
            self._joining.discard(group)

    def _complain(self, error: LinkError) -> None:
        """M6."""
        self._interface.counts["group_join_refused"] += 1
        if self._refusals.add():
            _log.warning("all groups of the link: %s (%d times)", error, self._refusals.count)

    def _of_link(self, records: Iterable[McMemberRecord]) -> set[Gid]:
        return {it.mgid for it in records if it.mgid is not None and self._is_of_link(it.mgid)}

    def _is_of_link(self, group: Gid) -> bool:
        try:
            parts = mgid.parse_untrusted(group)
        except BadFrame:
            return False
        link = self._params.pkey, self._params.scope
        # The interface is a full member of its broadcast group. A second membership would hide that the
        # SA has forgotten the first, for which `SaClient` asks now and then.
        return (parts.pkey, parts.scope) == link and group != mgid.broadcast(*link)
