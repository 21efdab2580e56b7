# SPDX-License-Identifier: BSD-2-Clause
"""The capabilities of a process in /proc/self/status."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base import privilege
from ipoibu.base.privilege import CAP_NET_ADMIN, CAP_NET_RAW, is_capable, may_control


@pytest.mark.parametrize(
    ("effective", "raw", "admin"),
    [
        ("000001ffffffffff", True, True),
        ("0000000000002000", True, False),  # 1 << 13
        ("0000000000001000", False, True),  # 1 << 12
        ("0000000000000000", False, False),
    ],
)
def test_the_effective_set_counts(tmp_path: Path, effective: str, raw: bool, admin: bool) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tipoibu\nCapPrm:\t000001ffffffffff\nCapEff:\t{effective}\n")
    assert (is_capable(CAP_NET_RAW, status), is_capable(CAP_NET_ADMIN, status)) == (raw, admin)


def test_b3_where_nothing_else_shows_it_the_attempt_will(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B3."""
    (tmp_path / "odd").write_text("CapEff:\tnot a number\n")
    assert is_capable(CAP_NET_RAW, tmp_path / "absent") is None
    assert is_capable(CAP_NET_RAW, tmp_path / "odd") is None
    for held, may in ((None, True), (True, True), (False, False)):
        monkeypatch.setattr(privilege, "is_capable", lambda capability, held=held: held)
        assert may_control() is may
