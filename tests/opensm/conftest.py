# SPDX-License-Identifier: BSD-2-Clause
"""A simulated fabric under a real OpenSM, and hosts on it; see ipoibu/lab/ibsim.py for the packages."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.lab.ibsim import Ibsim
from tests.lab_report import pytest_runtest_call
from tests.privilege import pytest_collection_modifyitems, pytest_configure

# pytest finds these here
__all__ = ["pytest_collection_modifyitems", "pytest_configure", "pytest_runtest_call"]

ROOT: Final = Path(__file__).parents[2]
HOST: Final = Path(__file__).with_name("host.py")

Call = Callable[..., Any]


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Ibsim]:
    """Four hosts without a manager; the test calls `start_opensm`."""
    with Ibsim(tmp_path, hosts=4) as started:
        yield started


@pytest.fixture
def plug(fabric: Ibsim) -> Iterator[Callable[[int], Call]]:
    """`plug(2)("join", ...)` sends host 2 a command.

    It returns the result, or a `Refused` with the name and text of the error.
    """
    with ExitStack() as ends:

        def plugged(number: int) -> Call:
            process = subprocess.Popen(
                [sys.executable, str(HOST)],
                env={**fabric.environment(number), "PYTHONPATH": str(ROOT)},
                cwd=fabric.directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            assert process.stdin is not None
            assert process.stdout is not None
            stdin, stdout = process.stdin, process.stdout

            def answer() -> Any:
                line = stdout.readline()
                assert line, f"host {number} ended with {process.wait()}"
                said = json.loads(line)
                return said["ok"] if "ok" in said else (said["error"], said["text"])

            def call(name: str, *positional: Any, **named: Any) -> Any:
                stdin.write(json.dumps([name, positional, named]) + "\n")
                stdin.flush()
                return answer()

            def end() -> None:
                stdin.close()
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                stdout.close()

            ends.callback(end)
            answer()
            return call

        yield plugged
