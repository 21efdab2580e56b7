# SPDX-License-Identifier: BSD-2-Clause
"""Builds and runs the plain C tests of `ext/verbs/tests` under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.doubles.c_build import EXT, build, run

PROGRAMS = sorted(source.stem for source in (EXT / "verbs" / "tests").glob("test_*.c"))

pytestmark = pytest.mark.skipif(
    not Path("/usr/include/infiniband/verbs.h").exists(),
    reason="needs libibverbs-dev, without which the verbs fabric is not built either",
)


@pytest.fixture(scope="module", params=["1", pytest.param("thread", marks=pytest.mark.nightly)])
def built(request: pytest.FixtureRequest) -> Path:
    return build("verbs/tests", f"SANITIZE={request.param}")


def test_there_are_programs_to_run() -> None:
    assert set(PROGRAMS) == {
        "test_connected",
        "test_handles",
        "test_lost_receives",
        "test_mesh",
        "test_mesh_table",
        "test_receive",
        "test_send",
    }


@pytest.mark.builds
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_passes_under_a_sanitizer(built: Path, name: str) -> None:
    run(built / name)
