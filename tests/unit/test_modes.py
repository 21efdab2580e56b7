# SPDX-License-Identifier: BSD-2-Clause
"""A mode of an endpoint is asked where the part that depends on it is made, not by who calls the part."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.unit.test_layers import ROOT

ROOM: Final = ROOT / "ipoibu/endpoint"

# By question: the files that may ask it.
ASKED: Final = {
    r"\b(?:subnet|rc|rails|ports) is (?:not )?None": set(),
    r"\bmode [!=]= \"": {"config.py"},
    r"\bis_connected\b": {
        "config.py",
        "datapath/datapath.py",
        "interface/interface.py",  # `set_mode`
        "rails/rails.py",
    },
    r"\.sa is (?:not )?None": {
        "api/views.py",  # what `Endpoint.paths` shows
        "datapath/datapath.py",  # refuses peers
        "interface/interface.py",  # `open_subnet`, and what the engine is told
        "interface/rail_follower.py",  # `open_backups`
        "rails/rails.py",  # compares the rails, and closes a port aside
        "subnet/link.py",
        "subnet/ports.py",
    },
}


@pytest.mark.parametrize("question", ASKED)
def test_a_mode_is_asked_where_its_part_is_made(question: str) -> None:
    asking = {
        path.relative_to(ROOM).as_posix()
        for path in ROOM.rglob("*.py")
        if re.search(question, path.read_text(encoding="utf-8"))
    }
    assert asking == ASKED[question]
