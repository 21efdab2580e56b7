# SPDX-License-Identifier: BSD-2-Clause
"""What an error quotes of a machine."""

from __future__ import annotations

import pytest

from ipoibu.lab.machines.machine import CommandFailed
from ipoibu.lab.machines.runner import MachineFailed, Result
from ipoibu.lab.machines.stream import OUTPUT_BYTES, QUOTED_CHARACTERS

LONG = "x" * OUTPUT_BYTES + "\nthe end\n"


def test_an_error_quotes_the_ends_of_what_machines_say() -> None:
    victim = Result("b", None, LONG, LONG, "ended", 1.0)
    failed = Result("a", 1, LONG, LONG, None, 1.0, victims=(victim,))
    with pytest.raises(MachineFailed) as caught:
        failed.check()
    text = str(caught.value)
    assert text.count("the end\n") + text.endswith("the end") == 3
    assert text.count(" characters before this]") == 3
    assert len(text) < 4 * QUOTED_CHARACTERS


def test_an_error_quotes_the_end_of_a_command() -> None:
    text = str(CommandFailed("a", "make", 1, LONG))
    assert text.startswith("machine a: make: exit status 1\n[16711688 characters before this]\n")
    assert text.endswith("x\nthe end")
    assert len(text) < 2 * QUOTED_CHARACTERS
