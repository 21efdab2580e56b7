# SPDX-License-Identifier: BSD-2-Clause
"""The lab kernel as an artefact: it needs nothing of its host, and boots where nobody could build it."""

import os
import struct
import subprocess
from pathlib import Path

import pytest

from ipoibu.lab.machines import kernels
from ipoibu.lab.machines.kernel_archive import fetch_kernel, publish
from ipoibu.lab.machines.runner import shell
from tests.lab.bare import run

pytestmark = pytest.mark.lab

PT_INTERP, SHT_SYMTAB = 3, 2
BUILDERS = ("apt-cache", "apt-get", "dpkg", "dpkg-deb", "dpkg-query", "gcc", "make")


def kinds(program: bytes, table_at: int, size_at: int, type_at: int) -> set[int]:
    """Return the types in the table of segments or of sections of a 64-bit ELF program."""
    (offset,) = struct.unpack_from("<Q", program, table_at)
    size, count = struct.unpack_from("<HH", program, size_at)
    return {
        struct.unpack_from("<I", program, offset + index * size + type_at)[0]
        for index in range(count)
    }


def test_the_kernel_is_static_and_stripped(lab_kernel: Path) -> None:
    program = lab_kernel.read_bytes()
    assert PT_INTERP not in kinds(program, 32, 54, 0)
    assert SHT_SYMTAB not in kinds(program, 40, 58, 4)


def test_the_artefact_is_whole(lab_kernel: Path) -> None:
    kernel = kernels.load(lab_kernel.parent)
    assert kernel.differences() == []
    assert kernel.is_current
    subprocess.run(["sha256sum", "-c", "--quiet", "linux.sha256"], cwd=kernel.directory, check=True)
    patches = list(kernel.directory.glob("recipe/**/*.patch"))
    sources = list(kernel.directory.glob("recipe/**/*.c"))
    assert patches
    assert sources
    for file in [*patches, *sources]:
        assert "SPDX-License-Identifier: " in file.read_text().partition("\n")[0]


def test_a_fetched_kernel_boots_where_none_can_be_built(
    lab_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = kernels.load(lab_kernel.parent)
    _, archive, _ = publish(built, tmp_path / "published", with_source=False)
    monkeypatch.setenv("IPOIBU_CACHE", str(tmp_path / "cache"))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in BUILDERS:
        (programs / name).write_text(f"#!/bin/sh\necho {name} >>{tmp_path}/called\nexit 1\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    fetched = fetch_kernel(str(archive), None, None)
    assert fetched.path.read_bytes() == lab_kernel.read_bytes()
    found = kernels.find_kernel(built.release, built.flavour)
    (result,) = run(found, [shell("uname -r")], directory=tmp_path / "run")
    assert result.check().output.strip() == f"{built.manifest['version']}-ipoibu"
    assert not (tmp_path / "called").exists()


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_two_builds_in_two_directories_give_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for place in ("one", "another/of/a/longer/name"):
        monkeypatch.setenv("IPOIBU_CACHE", str(tmp_path / place))
        monkeypatch.setenv("KBUILD_BUILD_USER", place[:3])
        kernel = kernels.build()
        _, _, digest = publish(kernel, tmp_path / place / "to", with_source=False)
        digests.append((kernel.files, digest.read_text()))
    assert digests[0] == digests[1]
