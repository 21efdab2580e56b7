# SPDX-License-Identifier: BSD-2-Clause
"""Userlands: how they are packed, unpacked, found and checked; packages are stand-ins."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from ipoibu.cli.main import main
from ipoibu.lab import artefacts
from ipoibu.lab.errors import LabError
from ipoibu.lab.userland import build, image

PACKAGES = {"bash": {"version": "5.2", "source": "bash 5.2"}}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IPOIBU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / image.KIND


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of a small userland."""
    root = tmp_path / "tree"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    (root / "usr/bin/bash").write_bytes(b"program")
    (root / "usr/bin/bash").chmod(0o755)
    (root / "tmp").mkdir()
    manifest = {"format": 1, "suite": "bookworm", "ipoibu": "0.2.0", "packages": PACKAGES}
    (root / image.MANIFEST).write_text(json.dumps(manifest))
    sums = "".join(f"{digest}  {name}\n" for name, digest in artefacts.digests(root))
    (root / image.SUMS).write_text(sums)
    return root


@pytest.fixture
def release(tree: Path, tmp_path: Path) -> Path:
    """The directory with its archive."""
    directory = tmp_path / "release"
    directory.mkdir()
    artefacts.pack(tree, directory / image.ARCHIVE)
    artefacts.write_digest(directory / image.ARCHIVE)
    return directory


def test_an_archive_has_no_times_and_no_owners(tree: Path, release: Path, tmp_path: Path) -> None:
    (tree / "usr/bin/bash").touch()
    artefacts.pack(tree, tmp_path / "again.tar.gz")
    assert (tmp_path / "again.tar.gz").read_bytes() == (release / image.ARCHIVE).read_bytes()


def test_what_is_fetched_is_whole_and_found(release: Path, cache: Path) -> None:
    userland = image.add(str(release))
    assert userland.path.parent == cache
    assert (userland.path / "bin/bash").stat().st_mode & 0o777 == 0o755
    assert (userland.path / "tmp").is_dir()
    assert image.find() == userland == image.find(str(userland.path)) == image.add(str(release))
    assert (userland.suite, userland.ipoibu, userland.packages) == (
        "bookworm",
        "0.2.0",
        {"bash": "5.2"},
    )
    assert image.verify(userland) == []
    assert [path.name for path in cache.iterdir()] == [userland.path.name]


def test_every_change_is_seen(release: Path) -> None:
    userland = image.add(str(release))
    (userland.path / "usr/bin/bash").write_bytes(b"other")
    (userland.path / "bin").unlink()
    (userland.path / "new").write_bytes(b"")
    assert image.verify(userland) == ["changed: usr/bin/bash", "missing: bin", "superfluous: new"]


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def sparse() -> tarfile.TarInfo:
    """A file whose map of holes is in its content."""
    info = member("sparse")
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "x"}
    return info


@pytest.mark.parametrize(
    "members",
    [
        [member("../outside")],
        [member("/tmp/outside")],
        [member("a", tarfile.DIRTYPE), member("a/../../outside")],
        [member("link", tarfile.SYMTYPE, "/tmp"), member("link/outside")],
        [member("link", tarfile.SYMTYPE, "../outside"), member("link")],
        [member("device", tarfile.CHRTYPE)],
        [member("hard", tarfile.LNKTYPE, "/etc/passwd")],
        [member("sparse", tarfile.GNUTYPE_SPARSE)],
        [sparse()],
        [],  # no userland
    ],
)
def test_an_archive_that_reaches_out_is_refused(
    members: list[tarfile.TarInfo], tmp_path: Path, cache: Path
) -> None:
    release = tmp_path / "evil"
    release.mkdir()
    with tarfile.open(release / image.ARCHIVE, "w:gz") as tar:
        for info in members:
            tar.addfile(info, io.BytesIO())
    artefacts.write_digest(release / image.ARCHIVE)
    with pytest.raises(LabError):
        image.add(str(release))
    assert list(cache.iterdir()) == []
    assert not (tmp_path / "outside").exists()


def test_one_that_is_too_large_is_refused(
    release: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image, "UNPACKED_BYTES_MAX", 3)
    with pytest.raises(LabError, match="more than 0 MiB"):
        image.add(str(release))
    monkeypatch.setattr(image, "UNPACKED_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(image, "FILES_MAX", 3)
    with pytest.raises(LabError, match="more than 3 files"):
        image.add(str(release))
    assert list(cache.iterdir()) == []


def test_packages_lose_what_a_machine_does_without() -> None:
    for name in ("usr/share/doc/bash/copyright", "usr/bin/bash", "etc/iproute2/rt_tables"):
        assert not build._PRUNED.match(name), name
    for name in ("usr/share/man/man1/bash.1.gz", "usr/share/doc/bash/README", "etc/init.d/x"):
        assert build._PRUNED.match(name), name


def test_the_commands_use_the_cache(release: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lab = ["lab", "userland"]
    assert main([*lab, "path"]) == 1
    assert "fetch SOURCE" in capsys.readouterr().err
    assert main([*lab, "fetch", str(release)]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert main([*lab, "list"]) == 0
    assert "Debian bookworm, 1 packages, ipoibu 0.2.0" in capsys.readouterr().out
    assert main([*lab, "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["packages"] == {"bash": "5.2"}
    assert main([*lab, "verify"]) == 0
    (path / "new").write_bytes(b"")
    assert main([*lab, "verify", str(path)]) == 1
    assert "superfluous: new" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words", [[], ["remove"], ["fetch"], ["list", "x"], ["path", "a", "b"], ["list", "--", "ls"]]
)
def test_wrong_words_are_refused(words: list[str]) -> None:
    assert main(["lab", "userland", *words]) == 2
