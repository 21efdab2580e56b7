# SPDX-License-Identifier: BSD-2-Clause
"""Kernels from elsewhere: what is taken into the cache, what is refused, and what is written for others."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.lab.artefacts import digest_of, write_digest
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines import kernel_archive, kernels
from ipoibu.lab.machines.kernel_archive import fetch_kernel, publish, unpack_untrusted
from tests.doubles.kernel_artefact import make_kernel

NAME = "linux-6.12.117-lean"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("IPOIBU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "lab-kernel"


@pytest.fixture
def artefact(tmp_path: Path) -> Path:
    return make_kernel(tmp_path / "artefact")


@pytest.fixture
def archive(artefact: Path, tmp_path: Path) -> Path:
    publish(kernels.load(artefact), tmp_path / "published", with_source=False)
    return tmp_path / "published" / f"{NAME}.tar.xz"


def refused(source: str | Path, cache: Path, **words: str | None) -> str:
    """Return why it is refused; nothing of it may be left."""
    before = sorted(cache.glob("*"))
    with pytest.raises(LabError) as caught:
        fetch_kernel(str(source), **{"release": None, "flavour": None, **words})
    assert sorted(cache.glob("*")) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("form", ["directory", "archive", "directory of archives", "URL"])
def test_a_kernel_is_taken_into_the_cache(
    artefact: Path, archive: Path, cache: Path, form: str
) -> None:
    source = {
        "directory": str(artefact),
        "archive": str(archive),
        "directory of archives": str(archive.parent),
        "URL": archive.as_uri(),
    }[form]
    kernel = fetch_kernel(source, "6.12", "lean")
    assert kernel.directory.parent == cache
    assert (kernel.name, kernel.fetched_from, kernel.differences()) == (NAME, source, [])
    assert kernel.path.stat().st_mode & 0o777 == 0o755
    assert kernels.cached() == [kernel]
    assert kernels.find_kernel("6.12") == kernel.path


def test_another_process_may_be_faster(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fetch_kernel(str(archive), None, None)
    monkeypatch.setattr(Path, "exists", lambda path: False)  # it was not there a moment ago
    assert fetch_kernel(str(archive), None, None) == first
    (first.directory / "config").write_text("")
    with pytest.raises(OSError, match="not empty"):
        fetch_kernel(str(archive), None, None)


def test_a_damaged_kernel_is_replaced(archive: Path) -> None:
    kernel = fetch_kernel(str(archive), None, None)
    kernel.path.write_bytes(b"")
    assert kernel.differences() == ["changed: linux"]
    assert fetch_kernel(str(archive), None, None).differences() == []


def test_an_archive_without_its_digest_is_refused(archive: Path, cache: Path) -> None:
    digest = digest_of(archive)
    archive.with_name(f"{archive.name}.sha256").unlink()
    assert "no --sha256 is given" in refused(archive, cache)
    fetch_kernel(str(archive), None, None, digest)


def test_another_digest_is_refused(artefact: Path, archive: Path, cache: Path) -> None:
    assert "expected " + "0" * 64 in refused(archive, cache, sha256="0" * 64)
    assert "expected " + "0" * 64 in refused(artefact, cache, sha256="0" * 64)
    assert "is no SHA-256" in refused(archive, cache, sha256="beef")
    archive.write_bytes(archive.read_bytes()[:-1] + b"\0")
    assert "has the SHA-256" in refused(archive, cache)


def test_another_kernel_is_refused(artefact: Path, archive: Path, cache: Path) -> None:
    assert refused(archive, cache, release="6.1").endswith("has Linux 6.12, not 6.1")
    assert refused(artefact, cache, flavour="full").endswith("has flavour lean, not full")
    said = "has no artefact linux-6.1.*-full: name one file, or --kernel and --flavour"
    assert refused(archive.parent, cache, release="6.1", flavour="full").endswith(said)


def test_one_of_several_archives_needs_a_name(archive: Path, cache: Path) -> None:
    write_digest(archive.with_name("linux-6.1.9-lean.tar.xz").parent / archive.name)
    archive.with_name("linux-6.1.9-lean.tar.xz").write_bytes(archive.read_bytes())
    assert "has 2 artefacts linux-*-*: name one file" in refused(archive.parent, cache)
    fetch_kernel(str(archive.parent), "6.12", None)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("/nowhere/at/all", "cannot be read"),
        ("ftp://localhost/x.tar", "expected https, http or file"),
        ("https://127.0.0.1:1/x.tar", "Connection refused"),
        ("file:///nowhere.tar", "cannot be read"),
    ],
)
def test_a_source_that_is_not_there(cache: Path, source: str, said: str) -> None:
    assert said in refused(source, cache)


def test_a_directory_that_is_not_whole_is_refused(artefact: Path, cache: Path) -> None:
    (artefact / "config").write_text("CONFIG_OTHER=y\n")
    assert "config has the SHA-256" in refused(artefact, cache)
    (artefact / "config").unlink()
    assert "config cannot be fetched" in refused(artefact, cache)


@pytest.mark.parametrize("linux", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01" + bytes(100)])
def test_a_kernel_that_is_no_program_is_refused(tmp_path: Path, cache: Path, linux: bytes) -> None:
    directory = make_kernel(tmp_path / "other", linux=linux)
    assert refused(directory, cache).endswith("has a kernel that is no program for x86_64")


def test_an_archive_is_the_same_bytes_wherever_it_is_written(
    artefact: Path, tmp_path: Path
) -> None:
    kernel = kernels.load(artefact)
    digests = set()
    for place in ("one", "two"):
        _, packed, _ = publish(kernel, tmp_path / place, with_source=False)
        digests.add(digest_of(packed))
        (artefact / "config").touch()
    assert len(digests) == 1


def test_the_source_lies_beside_the_kernel(
    artefact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "script"
    script.write_text('printf "the source" >"$2/linux-source-6.12.tar.xz"\n')
    monkeypatch.setattr(kernel_archive, "BUILD", script)
    made = publish(kernels.load(artefact), tmp_path / "to")
    source = "linux-source-6.12_6.12.117-1~deb12u1.tar.xz"
    assert [path.name for path in made] == [
        NAME,
        f"{NAME}.tar.xz",
        f"{NAME}.tar.xz.sha256",
        source,
        f"{source}.sha256",
    ]
    assert sorted(path.name for path in (tmp_path / "to").iterdir()) == sorted(
        it.name for it in made
    )
    assert (tmp_path / "to" / source).read_bytes() == b"the source"
    assert kernels.load(tmp_path / "to" / NAME).differences() == []
    publish(kernels.load(artefact), tmp_path / "to")  # again, over the first


def test_the_source_of_an_installed_package_is_copied(
    artefact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_archive, "INSTALLED", tmp_path)
    monkeypatch.setattr(kernel_archive, "BUILD", tmp_path / "builds-nothing")
    (tmp_path / "linux-source-6.12.tar.xz").write_bytes(b"the source")
    publish(kernels.load(artefact), tmp_path / "to")
    tarball = tmp_path / "to" / "linux-source-6.12_6.12.117-1~deb12u1.tar.xz"
    assert tarball.read_bytes() == b"the source"


@pytest.mark.parametrize("script", ['printf other >"$2/linux-source-6.12.tar.xz"', "exit 1"])
def test_another_source_is_not_published(
    artefact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    (tmp_path / "script").write_text(script)
    monkeypatch.setattr(kernel_archive, "BUILD", tmp_path / "script")
    with pytest.raises(LabError, match="is no longer to be had: build the kernel anew"):
        publish(kernels.load(artefact), tmp_path / "to")
    assert list((tmp_path / "to").iterdir()) == []


def test_a_damaged_kernel_is_not_published(artefact: Path, tmp_path: Path) -> None:
    (artefact / "linux").write_bytes(b"")
    with pytest.raises(LabError, match="is not whole: changed: linux"):
        publish(kernels.load(artefact), tmp_path / "to")


def member(name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", link: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), link
    padding = bytes(-len(data) % tarfile.BLOCKSIZE)
    return info.tobuf(tarfile.GNU_FORMAT) + data + padding


END = bytes(2 * tarfile.BLOCKSIZE)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (member("k/../../x"), "a file with the name"),
        (member("/etc/x"), "a file with the name"),
        (member("k/.x"), "a file with the name"),
        (member("k//x"), "a file with the name"),
        (member("k/" * 16 + "x"), "a file with the name"),
        (member("k/" + "x" * 101), "a file with the name"),
        (member("x"), "at its top, not in a directory"),
        (member("k/x", tarfile.SYMTYPE, link="/etc/passwd"), "neither a file nor a directory"),
        (member("k/x", tarfile.LNKTYPE, link="../x"), "neither a file nor a directory"),
        (member("k/x", tarfile.CHRTYPE), "neither a file nor a directory"),
        (member("k/x", tarfile.FIFOTYPE), "neither a file nor a directory"),
        (member("k/x") + member("k/x"), "File exists"),
        (member("k/x", data=b"1") + member("k/x/y"), "exists"),
        (member("k/d", tarfile.DIRTYPE) * 1001, "more than 1000 files"),
        (member("t/x", data=b"1" * 2000)[:900], "cannot be unpacked"),
        (b"", "cannot be unpacked"),
        (b"no archive" * 100, "cannot be unpacked"),
        (b"\xfd7zXZ\x00" + bytes(100), "cannot be unpacked"),
        (b"\x1f\x8b\x08\x00" + bytes(6), "cannot be unpacked"),
        (lzma.compress(member("k/x") + END)[:-30], "cannot be unpacked"),
        (gzip.compress(member("k/x") + END, mtime=0)[:-9], "cannot be unpacked"),
    ],
)
def test_an_archive_that_no_build_writes_is_refused(
    tmp_path: Path, content: bytes, said: str
) -> None:
    archive = tmp_path / "x.tar"
    archive.write_bytes(
        content + (END if content[:1] in (b"k", b"/", b"x") else b"")
    )  # t: cut short
    (tmp_path / "tree").mkdir()
    with pytest.raises(LabError, match=said):
        unpack_untrusted(archive, tmp_path / "tree")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tree", "x.tar"]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_what_grows_without_bounds_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(kernel_archive, "UNPACKED_BYTES_MAX", 1 << 20)
    (tmp_path / "x.tar").write_bytes(pack(member("k/x", data=bytes(1 << 21)) + END))
    (tmp_path / "tree").mkdir()
    with pytest.raises(LabError, match="has more than 1 MiB"):
        unpack_untrusted(tmp_path / "x.tar", tmp_path / "tree")
    assert (tmp_path / "tree" / "x").stat().st_size <= 1 << 20


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE])
def test_a_long_header_costs_no_memory(tmp_path: Path, kind: bytes) -> None:
    """tarfile reads such a header into memory; this one is there, packed a thousandfold."""
    content = gzip.compress(member("k/x", kind, bytes(64 << 20)) + END)
    (tmp_path / "x.tar").write_bytes(content)
    (tmp_path / "tree").mkdir()
    tracemalloc.start()
    with pytest.raises(LabError, match="a header of 67108864 bytes"):
        unpack_untrusted(tmp_path / "x.tar", tmp_path / "tree")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 8 << 20


def test_headers_within_headers_end(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(member("n", tarfile.GNUTYPE_LONGNAME, b"k/x\0") * 5000 + END)
    (tmp_path / "tree").mkdir()
    with pytest.raises(LabError, match="cannot be unpacked"):
        unpack_untrusted(tmp_path / "x.tar", tmp_path / "tree")


def test_a_dictionary_of_gigabytes_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 256 << 20, "preset": 0}]
    packer = lzma.LZMACompressor(lzma.FORMAT_XZ, filters=filters)
    content = packer.compress(member("k/x") + END) + packer.flush()
    (tmp_path / "x.tar").write_bytes(content)
    (tmp_path / "tree").mkdir()
    with pytest.raises(LabError, match="Memory usage limit exceeded"):
        unpack_untrusted(tmp_path / "x.tar", tmp_path / "tree")


def whole() -> bytes:
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in (
                ("k/linux", b"1" * 700),
                ("k/recipe/" + "n" * 99, b""),
                ("k/ä", b"2"),
            ):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                info.pax_headers = {"comment": "x" * 30}
                tar.addfile(info, io.BytesIO(data))
        return buffer.getvalue()


WHOLE = whole()


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=8),
    st.integers(0, len(WHOLE)),
    st.sampled_from(["tar", "gz", "xz"]),
)
def test_bytes_that_change_are_refused_or_unpacked_within(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[int, int]],
    length: int,
    form: str,
) -> None:
    content = bytearray(WHOLE)
    for at, value in changes:
        content[at] = value
    if form == "tar":
        del content[length:]
    packed = {"tar": bytes, "gz": lambda data: gzip.compress(data, 1), "xz": lzma.compress}[form](
        bytes(content)
    )
    place = tmp_path_factory.mktemp("fuzz")
    (place / "x").write_bytes(packed)
    (place / "tree").mkdir()
    with suppress(LabError):
        unpack_untrusted(place / "x", place / "tree")
    assert sorted(path.name for path in place.iterdir()) == ["tree", "x"]
    assert not any(path.is_symlink() for path in place.rglob("*"))


@given(st.binary(max_size=300), st.sampled_from([b"", b"\xfd7zXZ\x00", b"\x1f\x8b\x08"]))
def test_any_bytes_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, head: bytes
) -> None:
    place = tmp_path_factory.mktemp("fuzz")
    (place / "x").write_bytes(head + content)
    (place / "tree").mkdir()
    with suppress(LabError):
        unpack_untrusted(place / "x", place / "tree")
    assert list((place / "tree").iterdir()) == []


def test_the_manifest_of_an_archive_is_checked(tmp_path: Path, artefact: Path, cache: Path) -> None:
    manifest = json.loads((artefact / "manifest.json").read_text())
    manifest["files"]["../../linux"] = "0" * 64
    (artefact / "manifest.json").write_text(json.dumps(manifest))
    assert "a manifest that no build writes" in refused(artefact, cache)
