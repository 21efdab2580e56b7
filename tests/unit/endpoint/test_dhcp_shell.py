# SPDX-License-Identifier: BSD-2-Clause
"""The identities and the files of the DHCP clients."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.errors import BadFrame
from ipoibu.endpoint.dhcp.shell import LeaseKeeper
from ipoibu.endpoint.dhcp_config import DhcpConfig

GUID: Final = bytes.fromhex("0002c903000010a5")
PKEY: Final = PKey(0x8001)
DUID: Final = bytes.fromhex("00030020") + GUID


@pytest.mark.parametrize(
    ("form", "iaid", "duid"),
    [
        ("duid", "00008001", DUID),
        ("guid", "00008001", DUID),
        ("ff:01:02:03:04:00:02:aa", "01020304", bytes((0, 2, 0xAA))),
        ("20:00:02", "00008001", DUID),
    ],
)
def test_dhcpv6_has_the_duid_and_the_iaid_of_the_client_identifier(
    form: str, iaid: str, duid: bytes
) -> None:
    identity = DhcpConfig(form, "node7").identity6(GUID, PKEY)
    assert (identity.iaid.hex(), identity.duid, identity.host_name) == (iaid, duid, "node7")


class Handover:
    """A keeper, which a loop that does not run serves as a clock."""

    def __init__(self, directory: Path | None, suffix: str = ".lease6") -> None:
        self.loop = asyncio.new_event_loop()
        config = DhcpConfig(lease_dir=directory)
        self.keeper = LeaseKeeper("ib0", config, GUID, self.loop, suffix)
        self.taken: list[tuple[bytes, float]] = []

    def recall(self) -> None:
        self.keeper.recall(lambda message, since_s: self.taken.append((message, since_s)))

    def close(self) -> None:
        self.keeper.close()
        self.loop.close()


def test_a_lease_is_kept_with_its_age(tmp_path: Path) -> None:
    first = Handover(tmp_path)
    first.keeper.keep("fd00::7/128", "00:03", b"reply", first.loop.time() - 100)
    first.close()
    (path,) = tmp_path.iterdir()
    assert path.name == f"ib0-{GUID.hex()}.lease6"
    second = Handover(tmp_path)
    second.recall()
    ((message, since_s),) = second.taken
    assert message == b"reply"
    assert second.loop.time() - since_s == pytest.approx(100, abs=30)
    second.keeper.remove()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_both_ip_versions_have_files_of_their_own(tmp_path: Path) -> None:
    for suffix in (".lease", ".lease6"):
        kept = Handover(tmp_path, suffix)
        kept.keeper.keep("address", "server", suffix.encode(), time.monotonic())
        kept.close()
    assert {path.suffix for path in tmp_path.iterdir()} == {".lease", ".lease6"}
    kept = Handover(tmp_path)
    kept.recall()
    kept.close()
    assert kept.taken[0][0] == b".lease6"


def test_without_a_directory_or_a_file_nothing_is_kept(tmp_path: Path) -> None:
    for directory in (None, tmp_path):
        kept = Handover(directory)
        kept.recall()
        kept.close()
        assert kept.taken == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        '{"message": 1, "since": 0}',
        '{"since": 0}',
        "[]",
        "[" * 16_000,
        '{"message": "00", "since": NaN}',
        '{"message": "00", "since": -Infinity}',
        '{"message": "00", "since": 9e99}',  # from the future
    ],
)
def test_a_damaged_file_is_reported_and_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    path = tmp_path / f"ib0-{GUID.hex()}.lease6"
    path.write_text(content)
    kept = Handover(tmp_path)
    kept.recall()
    kept.close()
    assert kept.taken == []
    assert f"ib0: no lease from {path}: " in caplog.text


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _writable(path: Path) -> None:
    path.write_text('{"message": "00", "since": 0}')
    path.chmod(0o666)


def _zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (_fifo, "not a regular file"),
        (_zeros, "not a regular file"),
        (_writable, "every user may change it"),
    ],
)
def test_a_file_that_another_user_may_have_made_is_no_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, make: Callable[[Path], None], why: str
) -> None:
    make(tmp_path / f"ib0-{GUID.hex()}.lease6")
    kept = Handover(tmp_path)
    kept.recall()
    kept.close()
    assert kept.taken == []
    assert why in caplog.text


def test_a_file_of_another_user_is_no_lease(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Handover(tmp_path)
    kept.keeper.keep("address", "server", b"reply", time.monotonic())
    kept.close()
    owner, fstat = 4711, os.fstat

    def of_another(fd: int) -> os.stat_result:
        fields = list(fstat(fd))
        fields[stat.ST_UID] = owner
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", of_another)
    kept = Handover(tmp_path)
    kept.recall()
    assert kept.taken == []
    assert "it belongs to another user (4711)" in caplog.text
    owner = 0
    kept.recall()
    kept.close()
    assert len(kept.taken) == 1


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ((4711, 0o755), "its directory belongs to another user (4711)"),
        ((os.geteuid(), 0o777), "every user may change its directory"),
        ((os.geteuid(), 0o1777), None),
        ((0, 0o755), None),
    ],
)
def test_a_file_that_another_user_can_put_there_is_no_lease(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: tuple[int, int],
    why: str | None,
) -> None:
    """An older file of ours, by a rename."""
    owner, mode = status
    kept = Handover(tmp_path)
    kept.keeper.keep("address", "server", b"reply", time.monotonic())
    kept.close()
    fields = list(tmp_path.stat())
    fields[stat.ST_UID], fields[stat.ST_MODE] = owner, stat.S_IFDIR | mode
    monkeypatch.setattr(Path, "stat", lambda path: os.stat_result(fields))
    kept = Handover(tmp_path)
    kept.recall()
    kept.close()
    assert len(kept.taken) == (why is None)
    assert why is None or why in caplog.text


def test_a_full_disk_is_named_and_left_without_a_draft(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(content: object) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("ipoibu.endpoint.dhcp.lease_file.json.dumps", full)
    kept = Handover(tmp_path)
    kept.keeper.keep("address", "server", b"reply", time.monotonic())
    kept.close()
    assert f"{tmp_path}/ib0-{GUID.hex()}.lease6: No space left on device" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_message_that_cannot_be_read_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / f"ib0-{GUID.hex()}.lease6"
    path.write_text('{"message": "00", "since": 0}')
    kept = Handover(tmp_path)

    def refuse(message: bytes, since_s: float) -> None:
        raise BadFrame("dhcp6_short")

    kept.keeper.recall(refuse)
    kept.close()
    assert "dhcp6_short" in caplog.text


def test_a_directory_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / "file").write_text("")
    kept = Handover(tmp_path / "file")
    for _ in range(2):
        kept.keeper.keep("a", "b", b"c", 0.0)
    kept.close()
    assert caplog.text.count("not kept over restarts") == 1
