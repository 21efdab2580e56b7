# SPDX-License-Identifier: BSD-2-Clause
"""What machines print, on the lab's output."""

from __future__ import annotations

import io
from typing import cast

from ipoibu.lab.machines import live as module
from ipoibu.lab.machines.live import Live
from ipoibu.lab.machines.machine import Machine


class Named:
    def __init__(self, name: str) -> None:
        self.name = name


A, B = (cast("Machine", Named(name)) for name in "ab")


def test_lines_of_machines_do_not_mix() -> None:
    stream = io.BytesIO()
    live = Live(stream, with_names=True)
    live(A, b"be")
    live(B, b"one\ntwo\nthr")
    live(A, b"gun\n\n")
    assert stream.getvalue() == b"b | one\nb | two\na | begun\na | \n"
    live.finish()
    assert stream.getvalue().endswith(b"b | thr\n")


def test_a_line_without_an_end_is_printed_in_pieces() -> None:
    stream = io.BytesIO()
    live = Live(stream, with_names=True)
    live(A, b"x" * (module.LINE_BYTES + 1))
    assert stream.getvalue() == b"a | " + b"x" * (module.LINE_BYTES + 1) + b"\n"


def test_bytes_of_one_machine_pass_as_they_are_until_a_pause() -> None:
    stream = io.BytesIO()
    live = Live(stream, with_names=False)
    live(A, b"\x00no line")
    live.pause()
    live(A, b"unheard")
    assert stream.getvalue() == b"\x00no line"


def test_a_reader_that_is_gone_costs_the_output_alone() -> None:
    stream = io.BytesIO()
    live = Live(stream, with_names=True)
    stream.close()
    live(A, b"one\n")
    live(A, b"two\n")
    live.finish()
