# SPDX-License-Identifier: BSD-2-Clause
"""The fixture `lab` of pytest: a lab of virtual machines for one test.

    @pytest.mark.lab(guests=3, mode="connected")
    def test_it_pings(lab):
        lab.a.succeed(f"ping -c 1 {lab.c.ipv4}")

pytest loads this module wherever ipoibu is installed, so it imports nothing of ipoibu before a test uses the
fixture.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ipoibu.lab.machines.lab import Lab

MARK: Final = (
    "lab(guests=2, ipoib='kernel', fabric='ib', mode='datagram', ...): the words of ipoibu.lab.Lab"
    " for the fixture `lab`; a mark nearer to the test adds to those of its class and module"
)
REPORT_LINES: Final = 60  # of each machine's output and kernel log, and no more than
REPORT_BYTES: Final = 64 << 10
_LAB: Final = pytest.StashKey["Lab"]()


def pytest_configure(config: pytest.Config) -> None:
    """Declare the mark, for --strict-markers and --markers."""
    config.addinivalue_line("markers", MARK)


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Virtual machines with InfiniBand, as the mark `lab` describes them: an `ipoibu.lab.Lab`."""
    from ipoibu.lab.machines.lab import Lab

    words: dict[str, Any] = {}
    for mark in request.node.iter_markers("lab"):  # the nearest one first
        if mark.args:
            pytest.fail("the mark lab takes keywords only, such as guests=3", pytrace=False)
        words = {**mark.kwargs, **words}
    with Lab(**words) as lab:
        request.node.stash[_LAB] = lab
        yield lab


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add to the report of a failed test the ends of each machine's output and kernel log."""
    outcome = yield
    report = outcome.get_result()
    lab = item.stash.get(_LAB, None)
    if lab is not None and report.when == "call" and report.failed:
        for machine in lab.guests:
            for file in ("output", "kernel.log"):
                end = _end(lab.directory / machine.name / file)
                report.sections.append((f"machine {machine.name}: {file}", end))


def _end(file: Path) -> str:
    """Return the last lines of a file that a machine may have written."""
    with file.open("rb") as stream:
        stream.seek(max(0, os.fstat(stream.fileno()).st_size - REPORT_BYTES))
        text = stream.read(REPORT_BYTES).decode(errors="replace")
    return "\n".join(text.splitlines()[-REPORT_LINES:])
