# SPDX-License-Identifier: BSD-2-Clause
"""The checkup asks each daemon once, whatever its parts want to know."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from ipoibu.base.errors import IpoibuError, NoSuchDevice
from ipoibu.daemon.control.client import NotAnswering
from ipoibu.doctor import daemons as checkup_daemons
from ipoibu.doctor.daemons import daemons

FATES: dict[str, Exception | None] = {
    "ib0": None,
    "ib1": NotAnswering("ib1 (7) does not answer"),
    "ib2": NoSuchDevice("ib2"),
    "ib3": IpoibuError("only the owner"),
    "ib4@77": None,
}


class Client:
    made: ClassVar[list[str]] = []

    def __init__(self, name: str) -> None:
        self.made.append(name)
        self._name = name
        fate = FATES[name]
        if isinstance(fate, NoSuchDevice):
            raise fate

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def request(self, command: str) -> Any:
        fate = FATES[self._name]
        if fate is not None:
            raise fate
        return {"name": self._name}


def test_who_answers_is_shown_and_who_does_not_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checkup_daemons, "names", lambda: list(FATES))
    monkeypatch.setattr(checkup_daemons, "Client", Client)
    monkeypatch.setattr(Client, "made", [])
    shown, silent = daemons()
    assert shown == {"ib0": {"name": "ib0"}, "ib4@77": {"name": "ib4@77"}}
    assert [(it.check, it.status, it.detail) for it in silent] == [
        ("daemon", "fail", "ib1 (7) does not answer")
    ]
    assert Client.made == list(FATES)


def test_without_the_sockets_directory_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise IpoibuError("of another user")

    monkeypatch.setattr(checkup_daemons, "names", refuse)
    assert daemons() == ({}, [])
