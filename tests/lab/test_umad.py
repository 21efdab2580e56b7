# SPDX-License-Identifier: BSD-2-Clause
"""libibumad over a real kernel: agents, retries, tables in segments, reports. OpenSM: tests/opensm."""

import json
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import python, shell
from tests.lab.bare import run

from .scenarios import umad

pytestmark = pytest.mark.lab


def test_the_sa_client_and_an_administrator_meet_over_ib_umad(
    lab_kernel: Path, tmp_path: Path
) -> None:
    fake_sa, client = run(
        lab_kernel,
        [python(umad.administrate), python(umad.ask)],
        directory=tmp_path,
        timeout_s=60,
    )
    answers = json.loads(client.check().output.splitlines()[-1])
    # only one agent of a port can get the reports
    assert answers["reports"] == [True, False]
    assert answers["mtu"] == 2048
    # 201 records of 56 bytes are 57 segments, which the kernel delivers one by one
    assert answers["listed"] == umad.GROUPS + 1
    assert answers["event"] == 66
    assert answers["silence"] == "NoAnswer"
    assert answers["changes"] == ["silent", "returned"]
    [acknowledged] = json.loads(fake_sa.check().output.splitlines()[-1])["acknowledged"]
    assert acknowledged & 0xFFFFFFFF == 1  # the upper half of a transaction id is the kernel's
    counts = answers["counts"]
    assert counts["sa_failed"] == 1
    assert set(counts) <= {"sa_failed", "sa_retry", "sa_unsent", "sa_late", "sa_duplicate"}


def test_a_port_of_another_link_layer_is_refused(lab_kernel: Path, tmp_path: Path) -> None:
    first, _ = run(
        lab_kernel,
        [python(umad.open_ethernet), shell("link_up vec0; meet up")],
        directory=tmp_path,
    )
    assert first.check().output.splitlines() == ["LinkError: rxe0/1: not an InfiniBand port"]
