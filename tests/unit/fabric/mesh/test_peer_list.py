# SPDX-License-Identifier: BSD-2-Clause
"""The peers of a mesh as the operator lists them."""

from __future__ import annotations

import os
import queue
import socket
from collections import Counter
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.base.limits import MESH_PORT
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.mesh import peer_list
from ipoibu.fabric.mesh.peer_list import PeerSource, parse_peer, read_peers, resolve
from ipoibu.wire.mesh import Locator

WAIT_S: Final = 20.0


@pytest.mark.parametrize(
    ("text", "peer"),
    [
        ("10.0.0.1", ("10.0.0.1", MESH_PORT)),
        ("10.0.0.1:99", ("10.0.0.1", 99)),
        ("host.example", ("host.example", MESH_PORT)),
        ("host.example:65535", ("host.example", 65535)),
        ("fe80::1", ("fe80::1", MESH_PORT)),
        ("[fe80::1]:99", ("fe80::1", 99)),
        ("[fe80::1]", ("fe80::1", MESH_PORT)),
    ],
)
def test_a_peer_is_a_host_and_perhaps_a_port(text: str, peer: tuple[str, int]) -> None:
    assert parse_peer(text) == peer


@pytest.mark.parametrize(
    "text",
    ["", ":1", "host:", "host:0", "host:65536", "host:x", "a b", "[::1", "[host]:1", "1:2:3"],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no peer"):
        parse_peer(text)


@pytest.mark.parametrize("text", ["10.0.0..1", ".host", "host..example:1", "a" * 64, "a\0b"])
def test_a_name_that_the_resolver_would_stumble_over_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no peer"):
        parse_peer(text)


def test_a_file_has_a_peer_a_line_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_text("# all of them\n10.0.0.1\n\n  host:99  # the second\n")
    assert read_peers(path) == [("10.0.0.1", MESH_PORT), ("host", 99)]


def test_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "peers"
    path.write_text("10.0.0.1\nhost:x\n")
    with pytest.raises(UsageError, match=r"peers:2: 'host:x' is no peer"):
        read_peers(path)
    with pytest.raises(UsageError, match="No such file"):
        PeerSource(MeshOptions(file=tmp_path / "none"), lambda _: None)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError):
        read_peers(path)


def test_a_name_stands_for_all_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        if host == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return [
            (socket.AF_INET, 1, 6, "", ("10.0.0.1", port)),
            (socket.AF_INET6, 1, 6, "", ("fe80::1%eth0", port, 0, 3)),
            (socket.AF_UNIX, 1, 6, "", "x"),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    failures = Counter({"many": 3})
    assert resolve([("many", 7), ("gone", 8)], failures) == {
        Locator(ip_address("10.0.0.1"), 7),
        Locator(ip_address("fe80::1"), 7),
    }
    assert failures == {"gone": 1}


def test_a_file_that_changes_is_read_again_and_a_wrong_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(peer_list, "MESH_FILE_S", 0.01)
    path = tmp_path / "peers"
    path.write_text("10.0.0.1\n")
    delivered: queue.SimpleQueue[set[Locator]] = queue.SimpleQueue()
    source = PeerSource(MeshOptions(("10.0.0.9",), path), delivered.put)
    source.start()
    try:
        given = Locator(ip_address("10.0.0.9"), MESH_PORT)
        assert delivered.get(timeout=WAIT_S) == {given, Locator(ip_address("10.0.0.1"), MESH_PORT)}
        replace(path, "10.0.0.2:7\n")
        assert delivered.get(timeout=WAIT_S) == {given, Locator(ip_address("10.0.0.2"), 7)}
        replace(path, "host:x and more\n")
        while "the peers stay as they were" not in caplog.text:
            pass
        path.unlink()
        replace(path, "\n")
        assert delivered.get(timeout=WAIT_S) == {given}
        assert delivered.empty()
    finally:
        source.close()


def test_names_are_looked_up_again_soon_without_an_address_and_after_a_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [None] * 6 + ["10.0.0.1", "10.0.0.2"]

    def look_up(host: str, port: int, **_: Any) -> list[Any]:
        address = answers.pop(0)
        if address is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, 1, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    for name in ("MESH_FILE_S", "MESH_RESOLVE_SOON_S"):
        monkeypatch.setattr(peer_list, name, 0.01)
    delivered: queue.SimpleQueue[set[Locator]] = queue.SimpleQueue()
    source = PeerSource(MeshOptions(("peers.test",)), delivered.put)
    source.start()
    try:
        assert delivered.get(timeout=WAIT_S) == set()
        assert delivered.get(timeout=WAIT_S) == {Locator(ip_address("10.0.0.1"), MESH_PORT)}
        assert caplog.text.count("peer peers.test: Name or service not known") == 3  # 1, 2, 5
        assert len(answers) == 1
        source.note_lost()
        assert delivered.get(timeout=WAIT_S) == {Locator(ip_address("10.0.0.2"), MESH_PORT)}
    finally:
        source.close()


def replace(path: Path, text: str) -> None:
    """Replace the file in one step, as an editor does."""
    other = path.with_suffix(".new")
    other.write_text(text)
    os.replace(other, path)
