# SPDX-License-Identifier: BSD-2-Clause
"""The script that builds a kernel, with stand-ins for apt, the source and make: what a build makes of edits
and of its own end."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.lab.machines import kernels
from tests.doubles.packets import until

PATIENCE_S = 100.0  # a build starts some fifty programs

# Each writes what the real program would. make waits for the file `go`, in a program that it starts.
PROGRAMS = {
    "dpkg-query": 'case "$*" in *db:*linux-source*) ;; *db:*) printf installed ;; *) echo 1 ;; esac',
    "apt-get": 'case "$*" in *download*) name=${@: -1}; touch "${name%=*}_1.deb" ;; esac',
    "apt-cache": "echo Version: 9.9.1-1",
    "dpkg-deb": "tar -c -C $STANDINS/source ./usr",
    "gcc": "case $1 in -dumpfullversion) echo 1 ;; *) echo x86_64-linux-gnu ;; esac",
    "strip": 'cp "$3" "$2"',
    "make": """
        for word; do case $word in O=*) objects=${word#O=} ;; esac; done
        case "$*" in
        *allnoconfig) cp "$objects/fragment" "$objects/.config" ;;
        *kernelversion) echo 9.9.1 ;;
        *linux)
            echo $$ >$STANDINS/make
            bash -c 'echo $$ >$0/compiler; until [[ -e $0/go ]]; do sleep 0.05; done' $STANDINS
            echo program | tee "$objects"/linux "$objects"/modules.builtin{,.modinfo} ;;
        esac""",
}


class Builder:
    """A release 9.9 that this host can build, and how far a build is."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.kernel = directory / "kernel"
        (self.kernel / "9.9").mkdir(parents=True)
        for name in ("build", "archive", "artefact"):
            shutil.copy(kernels.RECIPES / name, self.kernel)
        (self.kernel / "default").write_text("9.9\n")
        (self.kernel / "config").write_text("CONFIG_ONE=y\n")
        (self.kernel / "9.9/apt-source").write_text("deb nowhere\n")
        self._make_source()
        programs = directory / "programs"
        programs.mkdir()
        for name, script in PROGRAMS.items():
            self.stand_in(name, script)
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "IPOIBU_CACHE": str(directory / "cache"),
        }
        for name in ("IPOIBU_LAB_KERNEL", "IPOIBU_LAB_FLAVOUR"):
            self.environment.pop(name, None)

    def stand_in(self, name: str, script: str) -> None:
        program = self.directory / "programs" / name
        program.write_text(f"#!/bin/bash\nSTANDINS={self.directory}\n{script}\n")
        program.chmod(0o755)

    def _make_source(self) -> None:
        tree = self.directory / "source/linux-source-9.9"
        (tree / "LICENSES/preferred").mkdir(parents=True)
        for name in ("COPYING", "LICENSES/preferred/GPL-2.0"):
            (tree / name).write_text("licence\n")
        place = self.directory / "source/usr/src"
        place.mkdir(parents=True)
        tarball = str(place / f"{tree.name}.tar.xz")
        subprocess.run(["tar", "-cJf", tarball, "-C", str(tree.parent), tree.name], check=True)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*words, "bash", str(self.kernel / "build")],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_pid(self, name: str) -> int:
        """Return the process ID of `make`, or of the `compiler`."""
        file = self.directory / name
        until(lambda: file.exists() and file.read_text().endswith("\n"), PATIENCE_S)
        return int(file.read_text())

    def let_make_end(self) -> None:
        (self.directory / "go").touch()

    def recipe(self) -> str:
        words = ["bash", str(self.kernel / "build"), "--recipe"]
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, check=True
        ).stdout.strip()


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[Builder]:
    builder = Builder(tmp_path)
    yield builder
    builder.let_make_end()


def path_of(build: subprocess.Popen[str]) -> Path:
    """Return what a build that ends well prints."""
    output, errors = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == 0, errors
    return Path(output.strip())


def test_an_edit_during_a_build_is_not_in_it(builder: Builder) -> None:
    recipe = builder.recipe()
    build = builder.start()
    builder.wait_for_pid("make")
    (builder.kernel / "config").write_text("CONFIG_TWO=y\n")
    for name in ("build", "archive", "artefact"):
        (builder.kernel / name).write_text("exit 99\n" * 5000)
    builder.let_make_end()
    kernel = kernels.load(path_of(build).parent)
    assert kernel.differences() == []
    assert kernel.manifest["recipe"] == recipe
    assert (kernel.directory / "recipe/config").read_text() == "CONFIG_ONE=y\n"


def test_only_what_decides_about_the_bytes_is_in_the_key(builder: Builder) -> None:
    recipe = builder.recipe()
    for name in ("build", "archive"):
        with (builder.kernel / name).open("a") as file:
            file.write("# more\n")
    assert builder.recipe() == recipe
    with (builder.kernel / "artefact").open("a") as file:
        file.write("# more\n")
    assert builder.recipe() != recipe


FAILURE = "*linux) echo 'make: *** Error 1'; exit 2 ;"
SILENT = "*linux) seq 200; exit 2 ;"
NO_HOST = {
    "dpkg-query": 'case "$*" in *db:*) ;; *) echo 1 ;; esac',
    "apt-get": 'case "$*" in *install*) exit 1 ;; esac',
}


@pytest.mark.parametrize(
    ("programs", "status", "said"),
    [
        ({"apt-cache": ""}, 3, "the archive gives no linux-source-9.9 "),
        ({"apt-get": 'case "$*" in *download*) exit 1 ;; esac'}, 3, "no linux-source-9.9 9.9.1-1"),
        ({"patch": "exit 1"}, 3, "one.patch does not apply to linux-source-9.9 9.9.1-1"),
        ({"make": PROGRAMS["make"].replace("*linux)", FAILURE)}, 3, "the kernel did not build"),
        ({"make": PROGRAMS["make"].replace("*linux)", SILENT)}, 3, "the kernel did not build"),
        ({"strip": "echo no room >&2; exit 1"}, 3, "no room"),
        (NO_HOST, 1, "flex bison bc"),
    ],
    ids=["archive", "download", "patch", "compiler", "silent", "strip", "host"],
)
def test_the_exit_status_says_whether_another_release_may_do(
    builder: Builder, programs: dict[str, str], status: int, said: str
) -> None:
    (builder.kernel / "patches").mkdir()
    (builder.kernel / "patches/one.patch").write_text("not applied\n")
    builder.let_make_end()
    for name, script in {"patch": "", **programs}.items():
        builder.stand_in(name, script)
    build = builder.start()
    _, errors = build.communicate(timeout=PATIENCE_S)
    assert build.returncode == status, errors
    assert said in errors


@pytest.mark.parametrize("failure", [FAILURE, SILENT])
def test_a_build_that_fails_says_how_its_log_ends_and_where_it_is(
    builder: Builder, failure: str
) -> None:
    builder.stand_in("make", PROGRAMS["make"].replace("*linux)", failure))
    build = builder.start()
    _, errors = build.communicate(timeout=PATIENCE_S)
    kept = builder.directory / "cache/lab-kernel/failed.log"
    assert f"its log is {kept}" in errors
    lines = kept.read_text().splitlines()
    assert errors.splitlines()[-10:][-len(lines) :] == lines[-10:]


def has_ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


# The shell ends the group of make. Where the shell itself is killed, the kernel ends make, and make the rest.
@pytest.mark.parametrize(
    ("number", "names"),
    [
        (signal.SIGTERM, ["make", "compiler"]),
        (signal.SIGHUP, ["make", "compiler"]),
        (signal.SIGKILL, ["make"]),
    ],
)
def test_a_build_that_is_killed_ends_make_and_the_next_one_builds(
    builder: Builder, number: signal.Signals, names: list[str]
) -> None:
    with builder.start() as build:
        builder.wait_for_pid("compiler")
        pidfds = [os.pidfd_open(builder.wait_for_pid(name)) for name in names]
        build.send_signal(number)
    assert build.returncode != 0
    for pidfd in pidfds:
        until(lambda pidfd=pidfd: has_ended(pidfd), PATIENCE_S)  # type: ignore[misc]
        os.close(pidfd)
    builder.let_make_end()
    assert kernels.load(path_of(builder.start()).parent).differences() == []
    assert list((builder.directory / "cache/lab-kernel").glob("build.*")) == []


def test_a_build_ends_with_the_process_that_has_asked_for_it(builder: Builder) -> None:
    script = "import pathlib, sys; from ipoibu.lab.machines import kernels\n"
    script += "kernels.BUILD = pathlib.Path(sys.argv[1]); kernels.build('9.9')"
    words = [sys.executable, "-c", script, str(builder.kernel / "build")]
    with subprocess.Popen(words, env=builder.environment) as process:
        pidfd = os.pidfd_open(builder.wait_for_pid("make"))
        process.kill()
    until(lambda: has_ended(pidfd), PATIENCE_S)
    os.close(pidfd)
