# SPDX-License-Identifier: BSD-2-Clause
"""A client of the control socket that records requests, for tests of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import pytest

Requests = list[tuple[str, str, dict[str, Any]]]


def record_requests(monkeypatch: pytest.MonkeyPatch, answer: Callable[[str, str], Any]) -> Requests:
    """Record every request as (interface, command, arguments); `answer` gets interface and command."""
    requests: Requests = []

    class RecordingClient:
        pid = 0  # no process has it

        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *error: object) -> None:
            return None

        def request(self, command: str, **arguments: Any) -> Any:
            requests.append((self.name, command, arguments))
            return answer(self.name, command)

        def begin(self, command: str) -> None:
            self._begun = command

        def answer(self) -> Any:
            return self.request(self._begun)

    monkeypatch.setattr("ipoibu.daemon.control.client.Client", RecordingClient)
    return requests
