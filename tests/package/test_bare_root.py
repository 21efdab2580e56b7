# SPDX-License-Identifier: BSD-2-Clause
"""The lab from its artefacts alone: in bare roots of Debian and Ubuntu, in a container, and as the action.

No root has a compiler, iproute2's rdma or ipoibu; Fedora's archive is not tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab.userland.image import ARCHIVE
from tests.package.test_container import BASE, CONTAINER, MIRROR, PROJECT, Podman

pytestmark = [pytest.mark.nightly, pytest.mark.lab, pytest.mark.root, pytest.mark.timeout(3600)]

HERE: Final = Path(__file__).parent
PING: Final = "a=ping -c 1 -W 5 10.9.0.2; ping -c 1 -W 5 fd00:9::3"
USER: Final = 61234  # that no /etc/passwd names


def lab(*words: str) -> list[str]:
    return [sys.executable, "-m", "ipoibu.cli", "lab", *words]


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of packaging/action/release, with the kernel that is here."""
    directory = tmp_path_factory.mktemp("artefacts")
    program = [sys.executable, str(PROJECT / "packaging/zipapp/build")]
    subprocess.run([*program, str(directory / "ipoibu-lab.pyz")], check=True)
    subprocess.run(lab("userland", "build", "--output", str(directory)), check=True)
    kernel = lab("kernel", "build", "--without-source", "--output", str(directory))
    subprocess.run(kernel, check=True)
    sums = ["sh", "-c", "sha256sum ipoibu-lab.pyz *.tar.* | grep -v sha256 >SHA256SUMS"]
    subprocess.run(sums, cwd=directory, check=True)
    return directory


def test_two_builds_of_a_userland_give_the_same_bytes(artefacts: Path, tmp_path: Path) -> None:
    subprocess.run(lab("userland", "build", "--output", str(tmp_path)), check=True)
    assert (tmp_path / ARCHIVE).read_bytes() == (artefacts / ARCHIVE).read_bytes()


@pytest.mark.parametrize("suite", ["bookworm", "trixie", "noble"])
def test_a_bare_root_has_machines_within_a_minute(artefacts: Path, suite: str) -> None:
    subprocess.run([HERE / "lab_on_bare_root", suite, artefacts], check=True)


def test_a_userland_shows_a_shared_directory(artefacts: Path, tmp_path: Path) -> None:
    """A copy of it may change, with `:ro` nothing of it; /usr may change in both cases."""
    share = tmp_path / "share"
    share.mkdir()
    (share / "file").write_text("content\n")
    environment = {**os.environ, "IPOIBU_CACHE": str(tmp_path / "cache")}
    boot = lab("--guests", "2", "--userland", str(artefacts))
    copy = "[[ $PWD == /src && $(<file) == content ]]; echo $LAB_NAME >file; touch /usr/local/bin/x"
    copy += "; sleep 1; [[ $(<file) == $LAB_NAME ]]"
    itself = "[[ $(<file) == content ]]; ! touch file; touch /usr/local/bin/x"
    for words in (
        lab("kernel", "fetch", str(artefacts)),
        [*boot, "--share", str(share), "--run", f"all={copy}"],
        [*boot, "--share", f"{share}:ro", "--run", f"all={itself}"],
    ):
        subprocess.run(words, env=environment, check=True)
    assert [file.read_text() for file in share.iterdir()] == ["content\n"]


def test_a_container_without_privileges_has_machines(artefacts: Path, tmp_path: Path) -> None:
    """Its /dev/shm has 64 MB and is mounted noexec, and its user has no name and no home."""
    base = tmp_path / "base"
    root = ["debootstrap", "--variant=minbase", "--include=python3", "bookworm", str(base), MIRROR]
    subprocess.run(root, check=True, stdout=subprocess.DEVNULL)
    archive = tmp_path / "base.tar"
    subprocess.run(["tar", "-C", str(base), "-cf", str(archive), "."], check=True)
    with tempfile.TemporaryDirectory(prefix="podman-") as state:
        podman = Podman(tmp_path, Path(state))
        podman("import", str(archive), BASE)
        file = ["-f", str(CONTAINER / "lab.Containerfile"), "--build-arg", f"BASE={BASE}"]
        podman("build", "--network", "none", *file, "-t", "localhost/ipoibu-lab", str(artefacts))
        weak = ["--user", str(USER), "--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        run = ["run", "--rm", "--network", "none", *weak, "localhost/ipoibu-lab"]
        output = podman(*run, "lab", "--guests", "3", "--run", PING)
        podman("rmi", "--all", "--force")
    assert output.count(" 0% packet loss") == 2


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that others may enter: pytest's are closed to them."""
    with tempfile.TemporaryDirectory(prefix="action-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_action_runs_for_a_user_without_a_name(artefacts: Path, place: Path) -> None:
    """Its home is not there, it has no terminal, and the checkout is read-only."""
    work, checkout, release = place / "work", place / "checkout", place / "release"
    for directory in (work, checkout):
        directory.mkdir()
    os.chown(work, USER, USER)
    shutil.copytree(artefacts, release)
    release.chmod(0o755)
    script = checkout / "test.sh"
    script.write_text("#!/bin/sh\nset -e\ntouch here\nping -c 1 -W 5 10.9.0.1\n")
    script.chmod(0o555)
    checkout.chmod(0o555)
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/nowhere",
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_OUTPUT": str(work / "outputs"),
        "RUNNER_TEMP": str(work),
        "LAB_ARTEFACTS": str(release),
        "LAB_GUESTS": "3",
        "LAB_RUN": "all: ./test.sh\n",
        "LAB_SHARE": ".",
        "LAB_REPORT": str(work / "junit.xml"),
    }
    as_user = ["setpriv", "--reuid", str(USER), "--regid", str(USER), "--clear-groups"]
    for step in ("choose", "run"):
        subprocess.run(
            [*as_user, str(PROJECT / "packaging/action/lab"), step],
            env=variables,
            cwd=checkout,
            stdin=subprocess.DEVNULL,
            check=True,
            start_new_session=True,
        )
    assert "<testsuite" in (work / "junit.xml").read_text()
    assert [path.name for path in checkout.iterdir()] == ["test.sh"]
