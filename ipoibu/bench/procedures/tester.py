# SPDX-License-Identifier: BSD-2-Clause
"""A sender and a receiver on two hosts, which run trials with frames of chosen sizes and rates."""

from __future__ import annotations

import itertools
import json
import select
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self

from ipoibu.bench.procedures.times import Times
from ipoibu.bench.traffic import END_S, START_S, Ends, python
from ipoibu.lab import LabError

TAGGED_MOST: Final = 10_000
FULL_SPEED_S: Final = 1.0  # is enough to know the sender's rate
FEW: Final = 64  # frames, to begin with
_GENERATOR: Final = python("ipoibu.bench.procedures.generator")

Limit = Literal["path", "sender", "receiver"]


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a stream of frames; `offered` is the rate asked for, or 0 for full speed."""

    size: int
    frames: int
    offered: float
    sent: int
    took_s: float
    received: int
    overflowed: int  # at the receiving program, whose socket was full
    reordered: int = 0
    tagged: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    @property
    def rate(self) -> float:
        """The rate in frames a second at which frames left."""
        return self.sent / self.took_s if self.took_s > 0 else 0.0

    @property
    def arrived_rate(self) -> float:
        return self.received / self.took_s if self.took_s > 0 else 0.0

    @property
    def lost(self) -> int:
        return max(0, self.sent - self.received)

    @property
    def lost_percent(self) -> float:
        return 100 * self.lost / self.sent if self.sent else 0.0

    def fault(self, accepted_percent: float) -> Limit | None:
        """Return who lost more frames than that, or None if nobody did.

        The path is not to blame for what the receiving program had no time for. A sender that was slower
        than the rate asked for loses nothing: `rate` is what it reached.
        """
        if self.lost_percent <= accepted_percent:
            return None
        return "receiver" if self.overflowed >= self.lost else "path"

    def as_dict(self) -> dict[str, Any]:
        names = ("size", "offered", "sent", "received", "overflowed", "reordered")
        return {name: getattr(self, name) for name in names} | {"took_s": round(self.took_s, 6)}


class Tester:
    """The two programs, from `__enter__` to `__exit__`, and every trial that they have run."""

    def __init__(self, ends: Ends, times: Times) -> None:
        self._ends, self._times = ends, times
        self._numbers = itertools.count(1)
        self._programs: list[subprocess.Popen[bytes]] = []
        self.trials: list[Trial] = []

    def __enter__(self) -> Self:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        try:
            for space, words in (
                (self._ends.receiver, ["receive", self._ends.bound]),
                (self._ends.sender, ["send", self._ends.address]),
            ):
                self._programs.append(space.popen([*_GENERATOR, *words], **pipes))
                hello = self._heard(self._programs[-1], START_S)
            self.mtu = int(hello["mtu"])
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        for program in self._programs:
            program.kill()
            program.wait()
            for pipe in (program.stdin, program.stdout):
                if pipe is not None:
                    pipe.close()

    def stream(self, size: int, rate: float, seconds: float, *, tagged: bool = False) -> Trial:
        """Send at a rate for so long."""
        frames = max(1, round(rate * seconds))
        return self._trial(size, frames, rate, tagged=tagged)

    def burst(self, size: int, frames: int) -> Trial:
        """Send so many frames as fast as the sender can."""
        return self._trial(size, frames, 0.0, tagged=False)

    def full_speed(self, size: int) -> float:
        """Return the rate at which the sender can send frames into this path."""
        frames, seconds = FEW, min(self._times.trial_s, FULL_SPEED_S)
        while (trial := self.burst(size, frames)).took_s < seconds / 2:
            frames = max(2 * frames, int(trial.rate * seconds))
        return trial.rate

    def _trial(self, size: int, frames: int, rate: float, *, tagged: bool) -> Trial:
        receiver, sender = self._programs
        number = next(self._numbers)
        every = max(1, frames // TAGGED_MOST) if tagged else frames + 1
        self._ask(receiver, {"trial": number, "every": every}, END_S)
        order = {"trial": number, "size": size, "frames": frames, "rate": rate}
        sent = self._ask(sender, order, END_S + (2 * frames / rate if rate else END_S))
        settle_s = self._times.settle_s
        finish = {
            "settle_s": settle_s,
            "expected": int(sent["sent"]),
        }  # with all frames it ends at once
        got = self._ask(receiver, finish, END_S + settle_s)
        trial = Trial(
            size=size,
            frames=frames,
            offered=rate,
            sent=int(sent["sent"]),
            took_s=float(sent["took_s"]),
            received=int(got["received"]),
            overflowed=int(got["overflowed"]),
            reordered=int(got["reordered"]),
            tagged=tuple((a, b) for a, b in got["tagged"]) if tagged else (),
        )
        self.trials.append(trial)
        return trial

    def _ask(
        self, program: subprocess.Popen[bytes], order: Mapping[str, Any], patience_s: float
    ) -> dict[str, Any]:
        assert program.stdin is not None
        try:
            program.stdin.write(json.dumps(order).encode() + b"\n")
            program.stdin.flush()
        except BrokenPipeError as error:
            raise LabError("the traffic generator has ended") from error
        return self._heard(program, patience_s)

    def _heard(self, program: subprocess.Popen[bytes], patience_s: float) -> dict[str, Any]:
        assert program.stdout is not None
        if not select.select([program.stdout], [], [], patience_s)[0]:
            raise LabError("the traffic generator does not answer")
        line = program.stdout.readline()
        if not line:
            raise LabError("the traffic generator has ended")
        answer = json.loads(line)
        assert isinstance(answer, dict)
        return answer
