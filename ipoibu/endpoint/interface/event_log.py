# SPDX-License-Identifier: BSD-2-Clause
"""The log of an interface's transitions: neighbours, groups, connections and drops of peers' messages.

This sink writes every such line, so `ipoibu monitor` and the log agree. Peers cause most
transitions, so each kind of line has a rate limit; the next line says how many did not appear.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from ipoibu.base.limits import EVENT_LOGS_BURST, EVENT_LOGS_PER_S, PEER_LOGS_BURST, PEER_LOGS_PER_S
from ipoibu.proto.groups.groups import Kind, Member
from ipoibu.proto.machine.backoff import Repeats
from ipoibu.proto.machine.ratelimit import TokenBucket
from ipoibu.proto.machine.transition import Topic, Transition
from ipoibu.proto.neigh import nud

_log: Final = logging.getLogger(__name__)

_EXHAUSTED: Final = nud.Input.EXHAUSTED.value
_INCOMPLETE: Final = nud.State.INCOMPLETE.value
_RECEIVED: Final = (Member.MEMBER.value, Member.LINGERING.value)


class EventLog:
    """Logs the transitions of the interface `name`; `clock` gives the time, which never runs backwards."""

    def __init__(self, name: str, clock: Callable[[], float]) -> None:
        self._name = name
        self._clock = clock
        self._words: Final = {
            Topic.NEIGHBOUR: self._neighbour,
            Topic.GROUP: self._group,
            Topic.CONNECTION: self._connection,
            Topic.DROP: self._drop,
        }
        self._limits: dict[str, TokenBucket] = {}  # by kind of line
        self._left_out: Counter[str] = Counter()  # lines since the last one of the kind
        self._refusals: dict[object, Repeats] = {}  # by group, while the fabric refuses it

    def take(self, transition: Transition) -> None:
        """A sink of `Transitions`."""
        words = self._words.get(transition.topic)
        if words is not None:
            words(transition)

    def _neighbour(self, it: Transition) -> None:
        if it.cause == _EXHAUSTED:
            why = "no host answers" if it.before == _INCOMPLETE else f"{it.hwaddr} does not answer"
            self._write(logging.INFO, "failed", f"neighbour {it.subject} failed: {why}", it.subject)
        elif it.hwaddr is None or it.after == nud.State.NONE.value:
            pass
        elif it.former is not None:
            text = f"neighbour {it.subject} moved from {it.former} to {it.hwaddr}: {it.cause}"
            self._write(logging.WARNING, "moved", text, it.subject)
        elif it.before in (nud.State.NONE.value, _INCOMPLETE, nud.State.FAILED.value):
            text = f"neighbour {it.subject} learnt: {it.hwaddr}: {it.cause}"
            self._write(logging.DEBUG, "learnt", text, it.subject)

    def _group(self, it: Transition) -> None:
        if it.detail != Kind.FULL.value:
            return
        if it.after == Member.BACKOFF.value:
            refusals = self._refusals.setdefault(it.subject, Repeats())
            if refusals.add():
                self._say(
                    logging.WARNING, f"cannot join group {it.subject}: {it.cause}{refusals.times}"
                )
            return
        if it.after in (Member.MEMBER.value, Member.NONE.value):
            self._refusals.pop(it.subject, None)
        if it.after == Member.MEMBER.value and it.before != Member.LINGERING.value:
            self._write(logging.INFO, "joined", f"joined group {it.subject}")
        elif it.before in _RECEIVED and it.after not in _RECEIVED:
            why = it.cause if it.after == Member.PARKED.value else "the group has no users"
            self._write(logging.INFO, "left", f"left group {it.subject}: {why}")

    def _connection(self, it: Transition) -> None:
        from ipoibu.proto.rc.connection import Input, State  # few interfaces have connections

        live, none = State.LIVE.value, State.NONE.value
        peer = f"{it.subject}, {it.detail}"
        why = ": ".join(filter(None, (it.cause, it.reason)))
        level = (
            logging.WARNING
            if it.cause in (Input.BROKEN.value, Input.UNOPENED.value)
            else logging.INFO
        )
        if it.after == live:
            self._write(logging.INFO, "connected", f"connected to {peer}", it.subject)
        elif it.after == none and it.before == live:
            self._write(level, "ended", f"the connection to {peer}, ended: {why}", it.subject)
        elif it.after == none:  # the policy logs how long datagrams go instead
            level = level if level == logging.WARNING else logging.DEBUG
            self._write(level, "unmade", f"no connection to {peer}: {why}", it.subject)

    def _drop(self, it: Transition) -> None:
        text = f"dropped a message of {it.subject}: {it.after} (`ipoibu stats` counts them)"
        self._write(logging.INFO, "dropped", text, it.subject)

    def _write(self, level: int, kind: str, text: str, peer: object = None) -> None:
        """Write a line, about `peer` if that is given, of a kind that peers or programs can cause at any
        rate."""
        if not _log.isEnabledFor(level):
            return
        limit = self._limits.get(kind)
        if limit is None:
            is_warning = level >= logging.WARNING
            limit = self._limits[kind] = (
                TokenBucket(PEER_LOGS_PER_S, PEER_LOGS_BURST)
                if is_warning
                else TokenBucket(EVENT_LOGS_PER_S, EVENT_LOGS_BURST)
            )
        if not limit.take(self._clock()):
            self._left_out[kind] += 1
            return
        left_out = self._left_out.pop(kind, 0)
        more = f" ({left_out} such lines left out before)" if left_out else ""
        self._say(level, f"{text}{more}", peer)

    def _say(self, level: int, text: str, peer: object = None) -> None:
        _log.log(level, "%s: %s", self._name, text, extra={"peer": peer})
