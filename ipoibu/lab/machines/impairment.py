# SPDX-License-Identifier: BSD-2-Clause
"""What a machine's side of the wire does to the frames that the machine sends, in the words of netem.

    its = impairments(["loss 1% delay 5ms", "a:loss 5%"], "abc")
    impair_command(its["a"])  # tc qdisc replace dev vec0 root netem loss 5%

The kernel's netem on vec0 loses, delays, duplicates, corrupts and reorders; see tc-netem(8).
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from typing import Final

from ipoibu.base.errors import UsageError

WIRE: Final = "vec0"
MEND_COMMAND: Final = ("tc", "qdisc", "replace", "dev", WIRE, "root", "pfifo_fast")  # as at first
NOWHERE: Final = "lab-nowhere"  # no host has this device, so a tc that gets so far changes nothing
TC_S: Final = 30.0


def impairments(texts: Sequence[str], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return netem's words for each machine that has some; `UsageError` for words that tc refuses.

    `ROLE:WORDS` is about that machine alone, and comes after the words for all.
    """
    own: dict[str, tuple[str, ...]] = {}
    shared: dict[str, tuple[str, ...]] = {}
    for text in texts:
        role, words = _parse(text)
        if role is None:
            shared = dict.fromkeys(names, words)
        elif role in names:
            own[role] = words
        else:
            raise UsageError(
                f"--impair {text!r}: there is no machine {role!r} but {', '.join(names)}"
            )
    return shared | own


def impair_command(words: Sequence[str]) -> list[str]:
    """Return the command that impairs what its machine sends, in place of what did so before."""
    return ["tc", "qdisc", "replace", "dev", WIRE, "root", "netem", *words]


def _parse(text: str) -> tuple[str | None, tuple[str, ...]]:
    match = re.fullmatch(r"(?:(\w+):)?(.*)", text, re.DOTALL)
    assert match is not None
    role, rest = match.groups()
    try:
        words = tuple(shlex.split(rest))
    except ValueError as error:
        raise UsageError(f"--impair {text!r}: {error}") from error
    if not words:
        raise UsageError(f"--impair {text!r} has no words; an example: loss 1% delay 5ms")
    if refusal := _refusal(words):
        raise UsageError(f"--impair {text!r}: tc says: {refusal}")
    return role, words


def _refusal(words: Sequence[str]) -> str:
    """Return what tc says against `words`, or nothing. A host without tc leaves that to the machine's.

    tc reads all words before it looks for the device, which does not exist.
    """
    command = ["tc", "qdisc", "replace", "dev", NOWHERE, "root", "netem", *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=TC_S, check=False
        )
    except FileNotFoundError:
        return ""
    said = (done.stderr or done.stdout).strip()
    return "" if said == f'Cannot find device "{NOWHERE}"' else said
