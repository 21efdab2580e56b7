# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.cli import journal
from ipoibu.cli.journal import JournalHandler


class Lines(logging.Handler):
    """Keeps the lines."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "journal")
    monkeypatch.setattr(journal, "JOURNAL", path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as daemon:
        daemon.bind(path)
        yield daemon


@pytest.fixture
def fallback() -> Lines:
    return Lines()


@pytest.fixture
def log(fallback: Lines) -> Iterator[logging.Logger]:
    logger = logging.getLogger("test_journal")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    handler = JournalHandler("ib0", fallback)
    logger.addHandler(handler)
    yield logger
    logger.removeHandler(handler)
    handler.close()


def fields(entry: bytes) -> dict[str, str]:
    """Read an entry by the protocol."""
    found = {}
    while entry:
        line, _, rest = entry.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", rest)
            value, rest = rest[8 : 8 + length], rest[8 + length :]
            assert rest[:1] == b"\n"
            rest = rest[1:]
        found[name.decode()] = value.decode()
        entry = rest
    return found


def test_an_entry_has_its_level_interface_and_peer(
    daemon: socket.socket, log: logging.Logger
) -> None:
    log.warning("%s: neighbour %s moved", "ib0", "10.0.0.2", extra={"peer": "10.0.0.2"})
    entry = fields(daemon.recv(4096))
    assert entry.pop("CODE_FILE") == __file__
    assert int(entry.pop("CODE_LINE")) > 0
    assert entry == {
        "MESSAGE": "ib0: neighbour 10.0.0.2 moved",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "ipoibu",
        "IPOIBU_INTERFACE": "ib0",
        "IPOIBU_PEER": "10.0.0.2",
    }


@pytest.mark.parametrize(
    ("text", "interface"),
    [
        ("ib0.8001: link up", "ib0.8001"),
        ("soft:eth0: the port is down", "ib0"),
        ("ib01: another interface is here", "ib0"),
    ],
)
def test_a_line_of_a_child_belongs_to_the_child(
    daemon: socket.socket, log: logging.Logger, text: str, interface: str
) -> None:
    log.info(text, extra={"peer": None})
    entry = fields(daemon.recv(4096))
    assert entry["IPOIBU_INTERFACE"] == interface
    assert entry["PRIORITY"] == "6"
    assert "IPOIBU_PEER" not in entry


def test_a_text_of_several_lines_is_one_entry(daemon: socket.socket, log: logging.Logger) -> None:
    try:
        raise ValueError("why")
    except ValueError:
        log.exception("ib0: a defect")
    entry = fields(daemon.recv(65536))
    assert entry["PRIORITY"] == "3"
    assert entry["MESSAGE"].splitlines()[0] == "ib0: a defect"
    assert entry["MESSAGE"].splitlines()[-1] == "ValueError: why"


def test_without_a_journal_the_line_goes_to_standard_error(
    log: logging.Logger, fallback: Lines, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(journal, "JOURNAL", str(tmp_path / "missing"))
    log.error("ib0: no room")
    assert fallback.texts == ["ib0: no room"]
