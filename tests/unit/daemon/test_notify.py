# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ipoibu.daemon.process.notify import notify


def test_without_a_service_manager_there_is_no_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    assert not notify("READY=1")


def test_the_service_manager_gets_the_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        assert notify("READY=1\nSTATUS=up")
        assert manager.recv(100) == b"READY=1\nSTATUS=up"


def test_an_abstract_address_starts_with_an_at_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"ipoibu-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        assert notify("STOPPING=1")
        assert manager.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("path", ["/not/there", "relative", "/" + "x" * 200])
def test_one_who_does_not_listen_is_no_error(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    assert not notify("READY=1")
