# SPDX-License-Identifier: BSD-2-Clause
"""openib.conf: the settings of all interfaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipoibu.importer import draft
from tests.unit.importer.imported import imported

IFCFG = {"ifcfg-ib0": "TYPE=InfiniBand\n", "ifcfg-ib1": "TYPE=InfiniBand\nCONNECTED_MODE=no\n"}
USUAL = (
    "ONBOOT=yes\nUCM_LOAD=no\nRDMA_CM_LOAD=yes\nRENICE_IB_MAD=no\nRUN_SYSCTL=no\nMLX5_LOAD=yes\n"
    "NODE_DESC=$(hostname -s)\nIPOIB_LOAD=yes\nNODE_DESC_TIME_BEFORE_UPDATE=20\nSRP_LOAD=no\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET_IPOIB_CM=yes\nIPOIB_MTU=65520\n", {"mode": "connected", "mtu": 65520}),
        ("SET_IPOIB_CM=no\n", {"mode": "datagram"}),
        ("", {}),
    ],
)
def test_they_count_where_an_interface_has_none_of_its_own(
    tmp_path: Path, text: str, expected: dict[str, Any]
) -> None:
    results, notes = imported(tmp_path, {**IFCFG, "openib.conf": USUAL + text})
    own = {"mode": "datagram"}
    assert results["ib0"] == expected
    assert results["ib1"]["mode"] == own["mode"]
    lost = [note for note in notes if "mtu" not in note]
    assert lost == []


def test_alone_they_are_of_one_interface(tmp_path: Path) -> None:
    results, notes = imported(tmp_path, {"openib.conf": "SET_IPOIB_CM=yes\n"})
    assert results == {"ib0": {"mode": "connected"}}
    assert notes == ["openib.conf:1: SET_IPOIB_CM: the settings of all interfaces: here of ib0"]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("SET_IPOIB_CM=auto", "the driver chooses the mode"),
        ("IPOIB_MTU=65520", "SET_IPOIB_CM does not ask for"),
        ("IPOIB_LOAD=no", draft.START),
        ("LOAD_EIPOIB=yes", "see `ethernet`"),
        ("COLOUR=red", draft.UNKNOWN),
    ],
)
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, line: str, why: str
) -> None:
    _, notes = imported(tmp_path, {**IFCFG, "openib.conf": f"{line}\n"})
    assert len(notes) == 1
    assert notes[0].startswith(f"openib.conf:1: {line.partition('=')[0]}: ")
    assert why in notes[0]
