# SPDX-License-Identifier: BSD-2-Clause
"""The stages by which a process gives up what it does not need (docs/use/sandbox.md).

The stages bind the calling thread and every thread that starts later, so `confine` comes before any
other thread. None of them can be undone.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from ipoibu.sandbox import capabilities, landlock, seccomp
from ipoibu.sandbox.errors import Unavailable
from ipoibu.sandbox.landlock import PathRule, TcpPorts
from ipoibu.sandbox.libc import prctl
from ipoibu.sandbox.user import User, become

_PR_SET_NO_NEW_PRIVS: Final = 38  # linux/prctl.h

_log = logging.getLogger(__name__)


class Stage(IntEnum):
    """The stages in their order; a process carries out all of them up to the requested one."""

    OFF = 0
    USER = 1
    CAPABILITIES = 2
    NO_NEW_PRIVS = 3
    LANDLOCK = 4
    SECCOMP = 5


@dataclass(frozen=True, slots=True)
class Needs:
    """The rights that a process keeps after the stages. Without a `user` it keeps its own user."""

    user: User | None
    capabilities: Collection[int]
    paths: Sequence[PathRule]
    tcp: TcpPorts = field(default_factory=TcpPorts)
    abstract_sockets: bool = False
    enters_namespaces: bool = False  # network namespaces; `capabilities` then has CAP_SYS_ADMIN


def confine(name: str, needs: Needs, last: Stage, *, threads: int = 1) -> None:
    """Carry out the stages up to `last`; log each stage that this machine lacks.

    `threads` is the number of threads that carry out the stages, each for itself. `NotPermitted` if the
    process may not become `needs.user`.
    """
    outside = len(os.listdir("/proc/self/task")) - threads
    if outside > 0 and last > Stage.OFF:
        _log.warning("%s: %d threads run outside the sandbox", name, outside)
    if last >= Stage.SECCOMP:
        seccomp.load()
    carried_out = []
    for stage, carry_out in _STAGES.items():
        if stage > last:
            break
        try:
            carried_out.append(carry_out(needs))
        except Unavailable as error:
            _log.warning(
                "%s: this machine lacks stage %d (%s) of the sandbox: %s",
                name,
                stage,
                stage.name.lower(),
                error,
            )
    _log.info("%s: sandbox: %s", name, ", ".join(filter(None, carried_out)) or "off")


def _user(needs: Needs) -> str:
    if needs.user is None:
        return ""
    become(needs.user)
    return f"user {needs.user.name}"


def _capabilities(needs: Needs) -> str:
    kept = capabilities.keep(needs.capabilities)
    names = " ".join(capabilities.NAMES[each] for each in sorted(kept))
    return f"capabilities {names or 'none'}"


def _no_new_privs(needs: Needs) -> str:
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return "no_new_privs"


def _landlock(needs: Needs) -> str:
    version = landlock.restrict(needs.paths, needs.tcp, abstract_sockets=needs.abstract_sockets)
    return f"Landlock version {version}"


def _seccomp(needs: Needs) -> str:
    seccomp.restrict(enters_namespaces=needs.enters_namespaces)
    return "seccomp"


_STAGES: Final[dict[Stage, Callable[[Needs], str]]] = {
    Stage.USER: _user,
    Stage.CAPABILITIES: _capabilities,
    Stage.NO_NEW_PRIVS: _no_new_privs,
    Stage.LANDLOCK: _landlock,
    Stage.SECCOMP: _seccomp,
}
