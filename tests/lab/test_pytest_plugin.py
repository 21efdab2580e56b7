# SPDX-License-Identifier: BSD-2-Clause
"""The fixture `lab` of pytest, with machines, and two workers of pytest-xdist."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab import pytest_plugin

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]


def test_a_project_tests_in_machines(
    lab_kernel: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    pytester.makepyfile(f"""
        import pathlib, pytest
        pytestmark = pytest.mark.lab(kernel=pathlib.Path({str(lab_kernel)!r}))
        @pytest.mark.lab(mode="connected")
        def test_connected(lab):
            lab.a.succeed(f"ping -c 1 -W 10 -s 40000 {{lab.b.ipv4}}", timeout=60)
        @pytest.mark.lab(ipoib="none")
        def test_failing(lab):
            lab.b.succeed("echo first words; false")
    """)
    result = pytester.runpytest_subprocess("-p", pytest_plugin.__name__, "-n", "2")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["*- machine b: output -*", "*first words*", "*- machine b: kernel.log -*"]
    )
