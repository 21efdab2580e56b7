# SPDX-License-Identifier: BSD-2-Clause
"""The scripts of a lab's machines: which runs where and when, and how they end.

A machine's role is its name. The scripts of a role run one after the other, those of different roles side by
side. A script for `all` runs in every machine at once, when all earlier scripts have ended, and later ones
wait for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.lab.machines.agent import MERGED, Command
from ipoibu.lab.machines.lab import Lab
from ipoibu.lab.machines.machine import Machine
from ipoibu.lab.machines.mounts import SHARE, Share
from ipoibu.lab.machines.runner import (
    GRACE_S,
    MachineFailed,
    Result,
    announce_failure,
    shell,
)

ALL: Final = "all"
TIMED_OUT: Final = 124  # the status of timeout(1)
PLAY_S: Final = 60.0  # for the commands of `play`
FAILED: Final = 1  # the status when a machine, not a script, has failed


@dataclass(frozen=True, slots=True)
class Script:
    """What runs in the machines of a role: a file of the host, a text for bash, or a command's words."""

    role: str
    text: str = ""
    words: tuple[str, ...] = ()

    @classmethod
    def parse(cls, argument: str, names: Sequence[str]) -> Script:
        """Parse `ROLE=SCRIPT`; `UsageError` for a role that there is not."""
        role, equals, text = argument.partition("=")
        if not equals or not text.strip():
            raise UsageError(f"--run {argument!r}: expected ROLE=SCRIPT")
        if role not in (*names, ALL):
            raise UsageError(f"--run {argument!r}: the roles are {', '.join(names)} and {ALL}")
        return cls(role, text)

    def argv(self, machine: Machine, name: str, share: Share | None) -> list[str]:
        """Return the command for a machine, which gets a file from outside the share as `name`."""
        if self.words:
            return list(self.words)
        if not os.path.isfile(self.text):  # Path.is_file fails for a long text
            return shell(self.text)
        file = Path(self.text).resolve()
        if share is not None and file.is_relative_to(share.path):
            path = f"{SHARE}/{file.relative_to(share.path)}"
        else:
            with file.open("rb") as source:
                path = machine.share_file(name, source, executable=True)
        return [path] if os.access(file, os.X_OK) else ["bash", path]


@dataclass(slots=True)
class _Part:
    """The scripts of one machine: those still to run, the one that runs, and the output so far."""

    machine: Machine
    total: int
    started_s: float
    waiting: list[Script] = field(default_factory=list)
    running: Command | None = None
    output: list[str] = field(default_factory=list)
    status: int = 0
    ended_s: float = 0.0
    ran: int = 0

    @property
    def is_done(self) -> bool:
        """Whether it has run its scripts of this stage."""
        return self.running is None and not self.waiting

    @property
    def is_whole(self) -> bool:
        """Whether it has run all of its scripts."""
        return self.running is None and self.ran == self.total

    def begin(self, lab: Lab) -> None:
        """Start the next script."""
        script = self.waiting.pop(0)
        self.ran += 1
        argv = script.argv(self.machine, f"script-{self.ran}", lab.share)
        self.running = self.machine.run_words(argv, MERGED)

    def take_end(self) -> None:
        """Take the end of the script that ran."""
        assert self.running is not None
        status = self.machine.wait_for(self.running, 0)
        assert status is not None
        self.output.append(str(self.running.output))
        self.running = None
        self.status = status
        self.ended_s = time.monotonic()

    def has_ended(self) -> bool:
        return self.running is not None and self.running.has_ended

    def end(self) -> None:
        """Keep what a script that is still running has written."""
        if self.running is not None:
            self.output.append(str(self.running.output))
        if not self.is_whole or not self.total:
            self.ended_s = time.monotonic()


class Roles:
    """Runs the scripts in a running lab: `run`, and when the lab has ended `results` and `status`."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = scripts
        self._parts: list[_Part] = []
        self._first: _Part | None = (
            None  # the part whose script failed first, or whose machine ended
        )
        self._has_timed_out = False
        self._timeout_s: float | None = None

    def run(self, lab: Lab, timeout_s: float | None = None) -> bool:
        """Run all scripts; end when one fails or after `timeout_s`. Return whether all have succeeded.

        When one fails, the others get GRACE_S, in which each machine appends what it is doing to its
        output. `MachineFailed` if a machine ends.
        """
        began_s = time.monotonic()
        self._timeout_s = timeout_s
        deadline = None if timeout_s is None else began_s + timeout_s
        self._parts = [
            _Part(it, sum(s.role in (it.name, ALL) for s in self._scripts), began_s)
            for it in lab.guests
        ]
        try:
            return all(self._run_stage(lab, stage, deadline) for stage in self._stages())
        except MachineFailed:
            ended = (part for part in self._parts if part.machine.has_ended)
            self._first = self._first or next(ended, None)
            raise
        finally:
            for part in self._parts:
                part.end()

    @property
    def have_begun(self) -> bool:
        """Whether the lab came up, so that there are results."""
        return bool(self._parts)

    def results(self, lab: Lab) -> list[Result]:
        """Return the result of each machine of a lab that has ended: of its scripts, and of itself."""
        results = [
            self._result(part, own) for part, own in zip(self._parts, lab.results, strict=False)
        ]
        if self._first is None:
            return results
        index = self._parts.index(self._first)
        victims = [it for it in results if it.failure is not None and not it.has_complaint]
        culprit = replace(results[index], victims=tuple(victims))
        return [
            culprit
            if it is results[index]
            else replace(it, culprit=culprit)
            if it in victims
            else it
            for it in results
        ]

    def status(self, lab: Lab) -> int:
        """Return the exit status of the whole: of the first script that failed, or of a failed machine."""
        if self._first is not None and self._first.status != 0:
            return self._first.status
        if self._has_timed_out:
            return TIMED_OUT
        return 0 if lab.failure is None else FAILED

    def _stages(self) -> list[list[Script]]:
        """Return the scripts, with each one for all apart."""
        stages: list[list[Script]] = [[]]
        for script in self._scripts:
            if script.role == ALL:
                stages += [[script], []]
            else:
                stages[-1].append(script)
        return stages

    def _run_stage(self, lab: Lab, stage: Sequence[Script], deadline: float | None) -> bool:
        """Return whether all scripts of the stage have succeeded in time."""
        for part in self._parts:
            part.waiting = [it for it in stage if it.role in (part.machine.name, ALL)]
        while not all(part.is_done for part in self._parts):
            for part in self._parts:
                if part.running is None and part.waiting:
                    part.begin(lab)
            if not lab.wait_for(self._any_has_ended, deadline):
                self._end_early(lab, has_timed_out=True)
                return False
            for part in self._parts:
                if part.has_ended():
                    part.take_end()
                    if part.status != 0 and self._first is None:
                        self._first = part
            if self._first is not None:
                self._end_early(lab)
                return False
        return True

    def _any_has_ended(self) -> bool:
        return any(part.has_ended() for part in self._parts)

    def _end_early(self, lab: Lab, *, has_timed_out: bool = False) -> None:
        """Let the machines say what they are doing, and give the scripts a moment to end."""
        self._has_timed_out = has_timed_out
        announce_failure(lab.directory)
        deadline = time.monotonic() + GRACE_S
        running = [part for part in self._parts if part.running is not None]
        lab.wait_for(lambda: all(part.has_ended() for part in running), deadline)
        for part in running:
            if part.has_ended():
                part.take_end()

    def _result(self, part: _Part, own: Result) -> Result:
        status: int | None = part.status
        output = "".join(part.output)
        failure = own.failure if own.has_complaint else None
        has_failed = part is self._first and part.status != 0
        if not part.is_whole and not has_failed:
            status, output = None, own.output  # with what the machine says that it is doing
            failure = failure or self._why_it_ended(part, own)
        return replace(
            own,
            status=status,
            output=output,
            failure=failure,
            duration_s=part.ended_s - part.started_s,
        )

    def _why_it_ended(self, part: _Part, own: Result) -> str | None:
        """Return why the scripts of a machine did not come to their end."""
        if self._first is not None and part is not self._first:
            return f"ended because machine {self._first.machine.name} failed"
        if self._has_timed_out:
            return f"did not end within {self._timeout_s:g} s"
        return own.failure


def play(
    lab: Lab, commands: Sequence[str | Sequence[str]], timeout_s: float = PLAY_S
) -> list[Result]:
    """Boot the lab, run a command in each machine, side by side, end the lab, and return their results.

    A command is a text for bash with the functions of inside/*.sh, or the words of a program. When one fails,
    or after `timeout_s`, all are ended. `LabError` if the lab does not come up; what goes wrong later is in
    the results, whose `check` raises it.
    """
    roles = Roles(
        [
            Script(it.name, words=tuple(shell(words) if isinstance(words, str) else words))
            for it, words in zip(lab.plans, commands, strict=True)
        ]
    )
    try:
        with lab:
            roles.run(lab, timeout_s)
    except MachineFailed:
        if not roles.have_begun:
            raise
    return roles.results(lab)
