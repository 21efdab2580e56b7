# SPDX-License-Identifier: BSD-2-Clause
"""Artefacts come whole, with their digests, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab import artefacts
from ipoibu.lab.errors import LabError


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A directory with an artefact and its digest."""
    directory = tmp_path / "release"
    directory.mkdir()
    file = directory / "thing.tar"
    file.write_bytes(b"content")
    artefacts.write_digest(file)
    return directory


@pytest.mark.parametrize("form", ["{}", "{}/thing.tar", "file://{}/", "file://{}/thing.tar"])
def test_a_source_is_a_directory_a_file_or_a_url(release: Path, tmp_path: Path, form: str) -> None:
    got = artefacts.fetch(form.format(release), "thing.tar", tmp_path / "cache")
    assert got == tmp_path / "cache/thing.tar"
    assert got.read_bytes() == b"content"


def test_another_content_leaves_nothing(release: Path, tmp_path: Path) -> None:
    (release / "thing.tar").write_bytes(b"changed")
    with pytest.raises(LabError, match="SHA-256"):
        artefacts.fetch(str(release), "thing.tar", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_given_digest_counts_before_the_file_beside(release: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="expected 0000"):
        artefacts.fetch(str(release), "thing.tar", tmp_path / "cache", "0" * 64)
    digest = artefacts.digest_of(release / "thing.tar")
    (release / "thing.tar.sha256").unlink()
    assert artefacts.fetch(str(release), "thing.tar", tmp_path / "cache", digest).exists()
    with pytest.raises(LabError, match="no --sha256 is given"):
        artefacts.fetch(str(release), "thing.tar", tmp_path / "cache")


def test_what_is_no_digest_is_refused(release: Path, tmp_path: Path) -> None:
    (release / "thing.tar.sha256").write_text("<html>not found</html>")
    with pytest.raises(LabError, match="does not begin with a SHA-256"):
        artefacts.fetch(str(release), "thing.tar", tmp_path / "cache")
    with pytest.raises(LabError, match="no SHA-256"):
        artefacts.fetch(str(release), "thing.tar", tmp_path / "cache", "abc")


def test_an_endless_file_is_cut(
    release: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artefacts, "ARTEFACT_BYTES_MAX", 3)
    with pytest.raises(LabError, match="more than 0 MiB"):
        artefacts.fetch(str(release), "thing.tar", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("source", ["/nowhere", "ftp://host/thing.tar", "file:///nowhere/"])
def test_a_source_that_is_not_there_is_an_error(source: str, tmp_path: Path) -> None:
    with pytest.raises(LabError):
        artefacts.fetch(source, "thing.tar", tmp_path, "0" * 64)


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    for name in ("IPOIBU_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert artefacts.cache_directory("k") == Path("/h/.cache/ipoibu/k")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert artefacts.cache_directory("k") == Path("/x/ipoibu/k")
    monkeypatch.setenv("IPOIBU_CACHE", "/c")
    assert artefacts.cache_directory("k") == Path("/c/k")
