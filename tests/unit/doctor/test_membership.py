# SPDX-License-Identifier: BSD-2-Clause
"""The checkup of limited members, running and in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.errors import IpoibuError
from ipoibu.doctor import membership as checkup_membership
from ipoibu.doctor.machine import link_partition
from ipoibu.doctor.membership import memberships

ANSWERS: dict[str, dict[str, Any]] = {
    "ib0": {"show": {"membership": "full", "pkey": "0xffff", "guid": "11"}, "stats": {}},
    "ib0.8001": {
        "show": {"membership": "limited", "pkey": "0x8001", "guid": "0011"},
        "stats": {"fabric.drop_pkey": 7},
    },
    "ib1": {"show": {"membership": "limited", "pkey": "0x8002", "guid": "0022"}, "stats": {}},
}


class Client:
    def __init__(self, name: str) -> None:
        if name not in ANSWERS:
            raise IpoibuError(f"{name} does not answer")
        self._answers = ANSWERS[name]

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def request(self, command: str) -> Any:
        return self._answers[command]


def test_each_limited_member_is_a_warning_with_what_was_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkup_membership, "Client", Client)
    shown = {name: answers["show"] for name, answers in ANSWERS.items()}
    gone = {"gone": {"membership": "limited", "pkey": "0x8003", "guid": "0033"}}
    found = list(memberships({**gone, **shown}))
    assert [(it.check, it.status) for it in found] == [("membership", "warn")] * 2
    assert found[0].detail == (
        "ib0.8001 is a limited member of partition 0x8001: it reaches full members alone;"
        " 7 packets of other limited members, or partitions, were dropped"
    )
    assert found[0].remedy is not None
    assert "0x0011=full" in found[0].remedy
    assert (
        found[1].detail
        == "ib1 is a limited member of partition 0x8002: it reaches full members alone"
    )


@pytest.mark.parametrize(
    ("members", "status"), [("ALL=limited,SELF=full", "warn"), ("ALL=limited,0x1=full", "ok")]
)
def test_a_file_with_limited_members_alone_is_a_warning(
    tmp_path: Path, members: str, status: str
) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text(f"Default=0x7fff,ipoib:{members};\n")
    found = link_partition(str(file), PKey(0xFFFF))
    assert found.status == status
    assert ("no full member" in found.detail) == (status == "warn")
