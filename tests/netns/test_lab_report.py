# SPDX-License-Identifier: BSD-2-Clause
"""The report of a failed test has what its labs show."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.lab import NamespaceLab
from tests.lab_report import describe

pytestmark = pytest.mark.netns

ROOT = Path(__file__).parents[2]
FAILING = """
import pytest
from ipoibu.lab import NamespaceLab

@pytest.fixture
def lab():
    with NamespaceLab() as lab:
        yield lab

def test_a_lab_of_a_fixture(lab):
    assert False

def test_a_lab_of_the_test():
    with NamespaceLab(start=False):
        pytest.fail("so be it")

def test_that_passes(lab):
    pass
"""


def test_a_lab_is_described_whether_its_daemons_run_or_not(lab: NamespaceLab) -> None:
    text = describe(lab)
    for host in lab.hosts:
        assert f'{host.name} show: {{"' in text
        assert str(host.ipv4) in text
    with NamespaceLab(start=False) as idle:
        assert describe(idle).rstrip().endswith("h2 log:")


def test_a_failed_test_shows_the_labs_while_they_run(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.lab_report import pytest_runtest_call\n")
    (tmp_path / "test_failing.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), "-c", "/dev/null"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert done.stdout.count("Captured lab call") == 2
    assert done.stdout.count("h1 show:") == 1  # the other lab has no daemon
