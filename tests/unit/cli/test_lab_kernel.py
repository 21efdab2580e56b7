# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab kernel`: what it prints, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipoibu.cli.main import main
from ipoibu.lab.machines import kernels
from ipoibu.lab.machines.kernel_archive import fetch_kernel
from tests.doubles.kernel_artefact import make_kernel

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("IPOIBU_LAB_KERNEL", "IPOIBU_LAB_FLAVOUR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("IPOIBU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kernels, "recipe", lambda release, flavour: "ab" * 8)
    return tmp_path / "cache" / "lab-kernel"


def test_nothing_is_listed_where_nothing_is(capsys: Capture) -> None:
    assert main(["lab", "kernel", "list"]) == 0
    assert main(["lab", "kernel", "list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_the_path_of_a_kernel_that_is_not_there_is_how_to_get_it(capsys: Capture) -> None:
    assert main(["lab", "kernel", "path", "--kernel", "6.1", "--flavour", "full"]) == 1
    words = "--kernel 6.1 --flavour full"
    assert capsys.readouterr().err == (
        f"ipoibu: there is no kernel 6.1 full here; run: ipoibu lab kernel build {words},"
        f" or: ipoibu lab kernel fetch SOURCE {words}\n"
    )


def test_it_fetches_lists_and_prints_the_path(tmp_path: Path, cache: Path, capsys: Capture) -> None:
    source = str(make_kernel(tmp_path / "a", "6.1.9", recipe="ab" * 8))
    assert main(["lab", "kernel", "fetch", source]) == 0
    path = capsys.readouterr().out.strip()
    assert Path(path).is_relative_to(cache)
    assert main(["lab", "kernel", "list"]) == 0
    assert capsys.readouterr().out == (
        f"linux-6.1.9-lean  6.1.9-1~deb12u1  fetched from {source}\n    {path}\n"
    )
    assert main(["lab", "kernel", "path", "--kernel", "6.1"]) == 0
    assert capsys.readouterr().out == f"{path}\n"
    assert main(["lab", "kernel", "path", "--kernel", "6.1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == path


def test_a_kernel_of_another_version_is_listed_as_such(cache: Path, capsys: Capture) -> None:
    make_kernel(cache / "k", "6.1.9")
    assert main(["lab", "kernel", "list", "--kernel", "6.1"]) == 0
    assert "  built here, by another version of ipoibu\n" in capsys.readouterr().out


def test_verify_names_what_differs(tmp_path: Path, capsys: Capture) -> None:
    kernel = fetch_kernel(str(make_kernel(tmp_path / "a", "6.1.9")), None, None)
    other = fetch_kernel(str(make_kernel(tmp_path / "b", "6.12.9")), None, None)
    assert main(["lab", "kernel", "verify"]) == 0
    assert capsys.readouterr().out == f"ok       {other.directory}\nok       {kernel.directory}\n"
    (kernel.directory / "config").write_text("")
    assert main(["lab", "kernel", "verify"]) == 1
    assert capsys.readouterr().out == (
        f"ok       {other.directory}\ndiffers  {kernel.directory}\n    changed: config\n"
    )
    assert main(["lab", "kernel", "verify", "--kernel", "6.1", "--json"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert report["differences"] == ["changed: config"]
    assert main(["lab", "kernel", "verify", "--kernel", "6.12"]) == 0


def test_what_is_built_is_written_where_the_user_says(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    built = make_kernel(cache / "k", "6.1.9")
    script = tmp_path / "script"
    script.write_text(f'echo "$@" >{tmp_path}/words; echo {built}/linux\n')
    monkeypatch.setattr(kernels, "BUILD", script)
    assert main(["lab", "kernel", "build", "--kernel", "6.1"]) == 0
    assert capsys.readouterr().out == f"{built}/linux\n"
    assert (tmp_path / "words").read_text() == "--kernel 6.1 --flavour lean\n"
    to = tmp_path / "to"
    words = ["lab", "kernel", "build", "--without-source", "--json"]
    assert main([*words, "--output", str(to)]) == 0
    names = ("linux-6.1.9-lean", "linux-6.1.9-lean.tar.xz", "linux-6.1.9-lean.tar.xz.sha256")
    assert json.loads(capsys.readouterr().out)["written"] == [str(to / name) for name in names]
    assert main([*words, "--to", str(tmp_path / "before")]) == 0  # its name in earlier checkouts
    assert (tmp_path / "before" / names[0]).is_dir()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list", "--kernel", "5.4"], "--kernel '5.4' is none of 6.1, "),
        (["list", "--flavour", "fat"], "argument --flavour: 'fat' is none of lean, full"),
        (["build", "--without-source"], "--without-source needs --output"),
        (["list", "--", "true"], "lab kernel runs no COMMAND"),
        (["buidl"], "argument ACTION: 'buidl' is none of "),
        ([], "the following arguments are required: ACTION"),
    ],
)
def test_other_words_are_refused(words: list[str], said: str, capsys: Capture) -> None:
    assert main(["lab", "kernel", *words]) == 2
    assert capsys.readouterr().err.startswith(f"ipoibu: {said}")


def test_newest_is_a_release(capsys: Capture) -> None:
    assert main(["lab", "kernel", "path", "--kernel", "newest"]) == 1
    assert f"there is no kernel {kernels.releases()[-1]} lean here" in capsys.readouterr().err
