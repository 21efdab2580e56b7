# SPDX-License-Identifier: BSD-2-Clause
"""The file of `--peer-key-file`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.cli.main import main
from ipoibu.fabric.mesh import peer_key
from ipoibu.fabric.mesh.peer_key import PeerKey

HEX = "0123456789abcdef" * 4


def written(path: Path, text: str, mode: int = 0o600) -> PeerKey:
    path.write_text(text)
    path.chmod(mode)
    return PeerKey(path)


@pytest.mark.parametrize("text", [HEX, f"# the key of ib0\n\n  {HEX.upper()}  # 2026\n"])
def test_a_file_has_one_key(tmp_path: Path, text: str) -> None:
    key = written(tmp_path / "key", text, 0o640)
    assert key.secret == bytes.fromhex(HEX)
    assert HEX not in repr(key)


def test_a_new_key_is_its_owners_and_replaces_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "key"
    assert main(["genkey", str(path)]) == 0
    assert capsys.readouterr().out == ""
    assert path.stat().st_mode & 0o777 == 0o600
    first = PeerKey(path).secret
    assert main(["genkey", str(path)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert PeerKey(path).secret == first
    assert main(["genkey", str(tmp_path / "none" / "key")]) == 2
    capsys.readouterr()
    assert main(["genkey"]) == 0
    printed = capsys.readouterr().out
    assert written(tmp_path / "other", printed).secret != first


def test_a_key_is_read_once(tmp_path: Path) -> None:
    key = written(tmp_path / "key", HEX)
    before = key.secret
    (tmp_path / "key").unlink()
    assert key.secret == before


def test_a_kept_key_serves_every_object_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_key, "_kept", {})
    path = tmp_path / "key"
    written(path, HEX).keep()
    path.unlink()
    assert PeerKey(path).secret == bytes.fromhex(HEX)
    with pytest.raises(UsageError, match="No such file"):
        _ = PeerKey(tmp_path / "other").secret


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", ": the file has no key; make one: ipoibu genkey FILE"),
        ("# nothing\n", ": the file has no key; make one: ipoibu genkey FILE"),
        ("\nsecret\n", ":2: no key: expected 64 hexadecimal digits; make one: ipoibu"),
        (HEX[1:], ":1: no key: expected 64"),
        (f"{HEX}\n{HEX}\n", ":2: a second key: expected one"),
        (5000 * "#", ": more than 4096 bytes: this is no key file"),
    ],
)
def test_bad_content_names_file_and_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "key"
    with pytest.raises(UsageError, match=re.escape(f"{path}{fault}")):
        _ = written(path, text).secret


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o644])
def test_a_file_that_every_user_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    key = written(tmp_path / "key", HEX, mode)
    with pytest.raises(UsageError, match=r"every user may read or change the key: chmod o= /"):
        _ = key.secret


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "text").write_bytes(b"\xff\xfe")
    (tmp_path / "text").chmod(0o600)
    for name, fault in (
        ("none", "No such file or directory"),
        ("fifo", "not a regular file"),
        ("", "Is a directory"),
        ("text", "invalid start byte"),
    ):
        with pytest.raises(UsageError, match=fault):
            _ = PeerKey(tmp_path / name).secret
