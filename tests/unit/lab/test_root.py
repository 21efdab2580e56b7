# SPDX-License-Identifier: BSD-2-Clause
"""What machines have as their root: the host's tree, or a userland."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines import mounts
from ipoibu.lab.machines.mounts import HOST, ROOT, Root, choose_root, fstab
from ipoibu.lab.userland import image

USERLAND = image.Userland(Path("/u"), {"suite": "bookworm", "ipoibu": "0.2.0", "packages": {}})
WITHOUT = image.Userland(Path("/w"), {"suite": "bookworm", "ipoibu": None, "packages": {}})


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IPOIBU_LAB_USERLAND", raising=False)


def have(monkeypatch: pytest.MonkeyPatch, userland: image.Userland | None) -> None:
    """The cache has this userland."""

    def find(source: str | None = None) -> image.Userland:
        if userland is None:
            raise LabError("there is none")
        return userland

    monkeypatch.setattr(mounts, "find", find)


def test_a_host_that_has_everything_is_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "lacking", lambda *, runs_ipoibu: [])
    have(monkeypatch, USERLAND)
    assert choose_root() == choose_root("auto") == choose_root("host") == HOST
    assert choose_root("/u") == Root(USERLAND)
    monkeypatch.setenv("IPOIBU_LAB_USERLAND", "/u")
    assert choose_root() == Root(USERLAND)


def test_a_host_that_lacks_something_needs_a_userland(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mounts, "lacking", lambda *, runs_ipoibu: ["rdma", "ss"])
    have(monkeypatch, USERLAND)
    assert choose_root() == Root(USERLAND)
    assert choose_root("host") == HOST
    have(monkeypatch, None)
    with pytest.raises(LabError, match="lacks rdma, ss: install it, or there is none"):
        choose_root()


def test_machines_that_run_ipoibu_need_it_in_the_userland(monkeypatch: pytest.MonkeyPatch) -> None:
    have(monkeypatch, WITHOUT)
    assert choose_root("/w") == Root(WITHOUT)
    with pytest.raises(LabError, match="has no ipoibu"):
        choose_root("/w", runs_ipoibu=True)


def test_what_a_host_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(mounts, "find_spec", lambda name: None)
    assert mounts.lacking(runs_ipoibu=False) == list(mounts.NEEDED)
    assert mounts.lacking(runs_ipoibu=True) == [*mounts.NEEDED, "ipoibu's C core"]


def test_a_userland_has_its_own_programs_and_python(tmp_path: Path) -> None:
    root = Root(USERLAND)
    assert {"rootflags=/u", f"init={image.INIT}", f"LAB_PACKAGE={ROOT}"} <= set(
        root.kernel_arguments()
    )
    assert root.environment("/c") == {
        "PATH": "/c:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    }
    assert (root.word(sys.executable), root.word("ls")) == ("python3", "ls")
    assert HOST.word(sys.executable) == sys.executable
    table = fstab(tmp_path, None, root)
    assert f"{image.KMOD} none bind" in table
    assert ".pth" not in table


def test_machines_with_systemd_need_it_in_their_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    userland = image.Userland(tmp_path, USERLAND.manifest)
    have(monkeypatch, userland)
    with pytest.raises(LabError, match=f"the userland {tmp_path} has no systemd, which --init"):
        choose_root("/u", runs_systemd=True)
    program = tmp_path / "usr/lib/systemd/systemd"
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert choose_root("/u", runs_systemd=True) == Root(userland)
    monkeypatch.setattr(mounts, "SYSTEMD", ("nowhere/systemd",))
    with pytest.raises(LabError, match="this host has no systemd, which --init systemd needs"):
        choose_root("host", runs_systemd=True)
