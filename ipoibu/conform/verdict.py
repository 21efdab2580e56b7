# SPDX-License-Identifier: BSD-2-Clause
"""What came of a test, with what was sent and heard."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Any

from ipoibu.conform.test import Test


class Outcome(enum.Enum):
    PASS = "pass"
    FAIL = "fail"
    WARN = "warn"  # a "should" that the peer does not follow
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, slots=True)
class Line:
    """One datagram, or an event: seconds since the test began, ">" sent, "<" heard or "-", what, bytes."""

    at_s: float
    mark: str
    what: object
    where: str = ""
    raw: bytes = b""

    @property
    def words(self) -> str:
        return f"{self.what}{self.where}"

    def __str__(self) -> str:
        return f"{self.at_s:8.3f} s {self.mark} {self.words}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason`: what was wrong, or why the test is not applicable; `tries` is 2 if the first failed."""

    test: Test
    outcome: Outcome
    reason: str = ""
    transcript: tuple[Line, ...] = field(default=())
    seconds: float = 0.0
    tries: int = 1

    def as_json(self) -> dict[str, Any]:
        return {
            "id": self.test.id,
            "clauses": list(self.test.clauses),
            "level": self.test.level.value,
            "source": self.test.source,
            "title": self.test.title,
            "outcome": self.outcome.value,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "tries": self.tries,
            "transcript": [
                {
                    "at_s": round(line.at_s, 6),
                    "mark": line.mark,
                    "words": line.words,
                    "hex": line.raw.hex(),
                }
                for line in self.transcript
            ],
        }
