# SPDX-License-Identifier: BSD-2-Clause
"""The pytest plugin, with a stand-in for the machines: pytest runs in a process of its own."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab import pytest_plugin

pytest_plugins = ["pytester"]

ROOT: Final = Path(__file__).parents[3]
PLUGIN: Final = pytest_plugin.__name__
STAND_IN: Final = """
import pathlib, sys, tempfile, types
module = types.ModuleType("ipoibu.lab.machines.lab")
class Machine:
    def __init__(self, name):
        self.name = name
class Lab:
    def __init__(self, guests=2, **words):
        self.words = words
        self.guests = [Machine(name) for name in "abcdefgh"[:guests]]
    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self.temporary.name)
        for machine in self.guests:
            place = self.directory / machine.name
            place.mkdir()
            (place / "output").write_text("x" * (1 << 20) + f"\\nsaid by {machine.name}\\n")
            (place / "kernel.log").write_text("".join(f"line {i}\\n" for i in range(1000)))
        return self
    def __exit__(self, *error):
        self.temporary.cleanup()
module.Lab = Lab
sys.modules[module.__name__] = module
"""


@pytest.fixture
def tests(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return an empty project in which machines are stand-ins."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makeconftest(STAND_IN)
    return pytester


def run(tests: pytest.Pytester, *words: str) -> pytest.RunResult:
    return tests.runpytest_subprocess("-p", PLUGIN, "--strict-markers", *words)


def test_the_mark_has_the_words_of_the_lab_and_a_failure_shows_what_each_machine_said(
    tests: pytest.Pytester,
) -> None:
    tests.makepyfile("""
        import pytest
        class TestIt:
            pytestmark = pytest.mark.lab(guests=3, mode="connected", fabric="roce", ipoib="none")
            @pytest.mark.lab(guests=4, fabric="ib")
            def test_nearer_marks_win(self, lab):
                assert len(lab.guests) == 4
                assert lab.words == {"mode": "connected", "fabric": "ib", "ipoib": "none"}
            def test_of_the_class(self, lab):
                assert len(lab.guests) == 3
                assert lab.words == {"mode": "connected", "fabric": "roce", "ipoib": "none"}
        def test_without_a_mark(lab):
            assert len(lab.guests) == 2
            assert lab.words == {}
        @pytest.mark.lab(3)
        def test_no_positions(lab):
            pass
        def test_failing(lab):
            assert False
    """)
    result = run(tests)
    result.assert_outcomes(passed=3, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*the mark lab takes keywords only, such as guests=3"])
    result.stdout.fnmatch_lines(
        [
            "*- machine a: output -*",
            "said by a",
            "*- machine a: kernel.log -*",
            "line 940",
            "line 999",
            "*- machine b: output -*",
            "said by b",
            "*- machine b: kernel.log -*",
        ],
    )
    result.stdout.no_fnmatch_line("line 939")
    assert len(result.stdout.str()) < 1 << 19  # of outputs of a megabyte


def test_workers_of_xdist_have_labs_of_their_own(tests: pytest.Pytester) -> None:
    tests.makepyfile("""
        import pytest
        @pytest.mark.parametrize("number", range(6))
        @pytest.mark.lab(guests=3)
        def test_it(lab, number):
            assert len(lab.guests) == 3
            assert number != 4
    """)
    result = run(tests, "-n", "2")
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*- machine c: output -*"])


def test_tests_without_a_lab_load_nothing_of_ipoibu(tests: pytest.Pytester) -> None:
    tests.makeconftest("")
    tests.makepyfile("""
        import pytest, sys
        @pytest.mark.lab(guests=3)
        def test_it():
            loaded = {name for name in sys.modules if name.startswith("ipoibu")}
            assert loaded == {"ipoibu", "ipoibu.lab", "ipoibu.lab.pytest_plugin"}
    """)
    run(tests).assert_outcomes(passed=1)


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    """The entry point has the module's name, so that `-p` with it loads the plugin once only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {PLUGIN: PLUGIN}
