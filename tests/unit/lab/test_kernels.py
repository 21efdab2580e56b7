# SPDX-License-Identifier: BSD-2-Clause
"""The choice of the kernel that a machine boots, and the checks of the cache's kernels."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ipoibu.doctor import lab
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines import kernels
from tests.doubles.kernel_artefact import make_kernel

OTHER = "0" * 16  # a recipe that is not this package's
DEFAULT = kernels.default_release()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("IPOIBU_LAB_KERNEL", "IPOIBU_LAB_FLAVOUR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IPOIBU_CACHE", str(tmp_path))
    monkeypatch.setattr("ipoibu.lab.machines.kernels.BUILD", tmp_path / "builds-nothing")
    monkeypatch.setattr("ipoibu.lab.machines.kernels.recipe", lambda release, flavour: "ab" * 8)
    monkeypatch.setattr("ipoibu.lab.machines.kernels.releases", lambda: ["6.1", "6.12", DEFAULT])
    return tmp_path / "lab-kernel"


def add(cache: Path, name: str, version: str, *, fetched: bool = False, **more: Any) -> Path:
    directory = make_kernel(cache / name, version, **{"recipe": "ab" * 8, **more})
    if fetched:
        (directory / "fetched-from").write_text("/media/kernels\n")
    return directory / "linux"


def test_the_recipe_is_of_the_release_and_the_flavour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    digests = {
        kernels.recipe(release, flavour)
        for release in ("6.1", "6.12", kernels.default_release())
        for flavour in kernels.FLAVOURS
    }
    assert len(digests) >= 4
    assert all(len(digest) == 16 for digest in digests)


def test_the_default_releases_can_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    defaults = kernels.default_releases()
    assert defaults[0] == kernels.default_release()
    assert set(defaults) <= set(kernels.releases())


def test_a_built_kernel_of_this_recipe_is_found_without_apt(cache: Path) -> None:
    built = add(cache, "k1", f"{DEFAULT}.3")
    assert kernels.find_kernel() == built
    assert kernels.check_kernel() == (0, f"built {built}")


def test_a_host_without_apt_is_told_to_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    said = "no kernel is here, and one is built where Debian's apt is"
    assert kernels.check_kernel() == (1, said)
    remedy = lab.kernel(1, said).remedy
    assert remedy is not None
    assert remedy.startswith("ipoibu lab kernel fetch SOURCE")


def test_the_newest_source_goes_first(cache: Path) -> None:
    add(cache, "b", f"{DEFAULT}.9")
    newest = add(cache, "a", f"{DEFAULT}.10")
    add(cache, "c", f"{DEFAULT}.2")
    assert kernels.find_kernel() == newest


def test_a_built_kernel_of_another_recipe_is_out_of_date(cache: Path) -> None:
    add(cache, "k1", f"{DEFAULT}.3", recipe=OTHER)
    with pytest.raises(LabError, match="builds-nothing failed with status 127"):
        kernels.find_kernel()


def test_a_fetched_kernel_of_another_recipe_is_used_and_that_is_said(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetched = add(cache, "k1", f"{DEFAULT}.3", fetched=True, recipe=OTHER)
    assert kernels.find_kernel() == fetched
    said = f"lab-kernel: linux-{DEFAULT}.3-lean was fetched for another version of ipoibu"
    assert capsys.readouterr().err.startswith(said)
    assert kernels.check_kernel() == (0, f"fetched {fetched}")
    built = add(cache, "k2", f"{DEFAULT}.1")
    assert kernels.find_kernel() == built


def test_without_the_default_release_the_newest_fetched_one_is_used(cache: Path) -> None:
    add(cache, "built", "99.2.1")
    add(cache, "k1", "99.1.5", fetched=True)
    newest = add(cache, "k2", "99.1.6", fetched=True)
    assert kernels.find_kernel() == newest


@pytest.fixture
def archive(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the script build the releases that have a file here; the recipe is that of the release."""
    archive = cache / "archive"
    archive.mkdir(parents=True)
    monkeypatch.setattr(kernels, "default_releases", lambda: ["99.3", "99.1"])
    monkeypatch.setattr(kernels, "releases", lambda: ["99.1", "99.3"])
    monkeypatch.setattr(kernels, "recipe", lambda release, flavour: release + flavour)
    script = cache / "script"
    script.write_text(f'echo "$2" >>{cache}/asked; cat {archive}/"$2" || exit 3\n')
    monkeypatch.setattr(kernels, "BUILD", script)
    return archive


def test_where_the_archive_lacks_the_default_release_the_next_one_is_built_and_booted(
    cache: Path, archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = add(cache, "old", "99.1.7", recipe="99.1lean")
    (archive / "99.1").write_text(f"{old}\n")
    assert kernels.find_kernel() == old
    said = "lab-kernel: NO LINUX 99.3, for the reason above: machines boot 99.1 until"
    assert capsys.readouterr().err.startswith(said)
    assert kernels.find_kernel() == old
    assert kernels.check_kernel()[1].startswith(f"built {old} (Linux 99.3 did not build")
    assert kernels.booted_release() == "99.1"
    assert (cache / "asked").read_text() == "99.3\n99.1\n"  # what failed is not tried at each boot
    new = add(cache, "new", "99.3.1", recipe="99.3lean")
    (archive / "99.3").write_text(f"{new}\n")
    assert kernels.build().path == kernels.find_kernel() == new
    (new.parent / "manifest.json").unlink()
    assert kernels.best() is None  # the failure is forgotten


def test_another_recipe_of_the_default_release_is_tried(
    cache: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = add(cache, "old", "99.1.7", recipe="99.1lean")
    (archive / "99.1").write_text(f"{old}\n")
    kernels.build()
    monkeypatch.setattr(kernels, "recipe", lambda release, flavour: "mended " + release + flavour)
    assert kernels.best() is None


def test_who_asks_for_a_release_gets_no_other(
    cache: Path, archive: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (archive / "99.1").write_text(f"{add(cache, 'old', '99.1.7')}\n")
    with pytest.raises(LabError, match="failed with status 3"):
        kernels.build("99.3")
    monkeypatch.setenv("IPOIBU_LAB_KERNEL", "99.3")
    with pytest.raises(LabError, match="failed with status 3"):
        kernels.build()
    assert (cache / "asked").read_text() == "99.3\n99.3\n"


def test_a_host_that_builds_no_kernel_is_not_asked_for_another_release(
    cache: Path, archive: Path
) -> None:
    kernels.BUILD.write_text(f'echo "$2" >>{cache}/asked; exit 1\n')
    with pytest.raises(LabError, match="failed with status 1"):
        kernels.build()
    assert (cache / "asked").read_text() == "99.3\n"
    assert kernels.check_kernel()[0] == 1


def test_the_environment_chooses_release_and_flavour(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(cache, "a", f"{DEFAULT}.3")
    full = add(cache, "b", f"{DEFAULT}.3", flavour="full")
    old = add(cache, "c", "6.1.4")
    monkeypatch.setenv("IPOIBU_LAB_FLAVOUR", "full")
    assert kernels.find_kernel() == full
    assert kernels.find_kernel("6.1", "lean") == old
    monkeypatch.setenv("IPOIBU_LAB_KERNEL", "6.1")
    monkeypatch.setenv("IPOIBU_LAB_FLAVOUR", "lean")
    assert kernels.find_kernel() == old
    monkeypatch.setenv("IPOIBU_LAB_FLAVOUR", "fat")
    with pytest.raises(LabError, match="no flavour fat; there are: lean full"):
        kernels.find_kernel()


def test_newest_is_the_last_release(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("IPOIBU_LAB_KERNEL", "newest")
    numbers = [[int(part) for part in each.split(".")] for each in kernels.releases()]
    assert numbers == sorted(numbers)
    assert kernels.chosen()[0] == kernels.releases()[-1]


@pytest.mark.parametrize(
    "changed",
    [
        {"format": 2},
        {"name": "../linux"},
        {"name": 7},
        {"release": ""},
        {"architecture": "aarch64"},
        {"files": {}},
        {"files": {"linux": "12"}},
        {"files": {"linux": "0" * 64, "../x": "0" * 64}},
        {"files": {"linux": "0" * 64, "/x": "0" * 64}},
        {"files": {"linux": "0" * 64, "manifest.json": "0" * 64}},
        {"files": ["linux"]},
        {"source": "Debian"},
        {"source": {"package": "p", "version": "1\n", "file": "f", "sha256": "0" * 64}},
    ],
)
def test_a_manifest_that_no_build_writes_is_refused(cache: Path, changed: dict[str, Any]) -> None:
    directory = make_kernel(cache / "k", **changed)
    with pytest.raises(LabError):
        kernels.load(directory)
    assert kernels.cached() == []


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b"\xff", b'{"a":' * 5000])
def test_a_manifest_that_is_no_manifest_is_refused(cache: Path, text: bytes) -> None:
    directory = make_kernel(cache / "k")
    (directory / "manifest.json").write_bytes(text)
    with pytest.raises(LabError, match="is no kernel's artefact"):
        kernels.load(directory)


def test_a_manifest_without_end_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = make_kernel(cache / "k")
    monkeypatch.setattr(kernels, "MANIFEST_BYTES_MAX", 100)
    with pytest.raises(LabError, match="a manifest of more than 100 bytes"):
        kernels.load(directory)


def test_differences_are_named(cache: Path) -> None:
    directory = add(cache, "k", "6.1.4").parent
    kernel = kernels.load(directory)
    assert kernel.differences() == []
    (directory / "config").unlink()
    (directory / "further").touch()
    (directory / "recipe/6.1/patches/um.patch").write_text("other")
    (directory / "linux.sha256").unlink()
    (directory / "linux.sha256").symlink_to("linux")
    assert kernel.differences() == [
        "changed: linux.sha256",
        "changed: recipe/6.1/patches/um.patch",
        "missing: config",
        "superfluous: further",
    ]


def test_what_is_built_is_an_artefact(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build` asks the script for the release and the flavour, and believes no other answer."""
    linux = add(cache, "k", "6.1.4")
    script = cache / "script"
    script.write_text(f'echo "$@" >{cache}/words; echo {linux}\n')
    monkeypatch.setattr(kernels, "BUILD", script)
    assert kernels.build("6.1", "full").path == linux
    assert (cache / "words").read_text() == "--kernel 6.1 --flavour full\n"
    (linux.parent / "manifest.json").unlink()
    with pytest.raises(LabError, match="is no kernel's artefact"):
        kernels.build()


def test_the_description_is_json(cache: Path) -> None:
    add(cache, "k", "6.1.4", fetched=True)
    (kernel,) = kernels.cached("6.1", "lean")
    described = json.loads(json.dumps(kernel.describe()))
    assert described["fetched_from"] == "/media/kernels"
    assert described["current"] is True
    assert set(described) == {
        "name", "release", "flavour", "version", "path", "sha256", "source", "fetched_from", "current"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--kernel", "9"], 2, "lab-kernel: no kernel release 9; there are: 6.1 "),
        (["--flavour", "fat"], 2, "lab-kernel: no flavour fat; there are: lean full"),
        (["--flavour"], 2, "lab-kernel: usage: build "),
        (["--kernel"], 2, "lab-kernel: usage: build "),
        (["--chekc"], 2, "lab-kernel: usage: build "),
    ],
)
def test_the_script_refuses_other_words(
    monkeypatch: pytest.MonkeyPatch, words: list[str], status: int, said: str
) -> None:
    monkeypatch.undo()
    done = subprocess.run(
        ["bash", kernels.BUILD, *words], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(said)
