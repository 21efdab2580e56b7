# SPDX-License-Identifier: BSD-2-Clause
"""The lab kernel, for every test in machines."""

import subprocess
from pathlib import Path

import pytest

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.kernels import find_kernel


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let a time limit count for test bodies only: the first fixture may have to build a kernel.

    The limit is longer than those of `play`, which tell what the machines printed.
    """
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.timeout(300, func_only=True))


@pytest.fixture(scope="session")
def lab_release(lab_kernel: Path) -> str:
    """Return the release of the lab kernel, such as "6.1"."""
    version = subprocess.run([lab_kernel, "--version"], capture_output=True, text=True, check=True)
    return ".".join(version.stdout.split(".")[:2])


@pytest.fixture(scope="session")
def lab_kernel(pytestconfig: pytest.Config) -> Path:
    """Return the path of the lab kernel; build it first where it is missing, and show the progress."""
    return find(pytestconfig)


@pytest.fixture(scope="session")
def full_kernel(pytestconfig: pytest.Config) -> Path:
    """Return the path of the kernel of the flavour full, in the same way."""
    return find(pytestconfig, "full")


def find(pytestconfig: pytest.Config, flavour: str | None = None) -> Path:
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            return find_kernel(flavour=flavour)
    except LabError as error:
        pytest.fail(f"{error}: what it needs is in its output above", pytrace=False)
