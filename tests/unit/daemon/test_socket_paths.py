# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from ipoibu.base.errors import IpoibuError, NotPermitted, UsageError
from ipoibu.daemon.control import socket_paths as paths


def test_names_are_kept_apart_by_network_namespace(runtime: Path) -> None:
    inode = os.stat("/proc/self/ns/net").st_ino
    assert paths.socket_path("ib0") == runtime / f"net-{inode}" / "ib0.sock"
    other = runtime.parent / "other"
    other.touch()
    assert paths.socket_path("ib0", other).parent.name == f"net-{other.stat().st_ino}"


@pytest.mark.parametrize(
    ("uid", "session", "directory"),
    [
        (0, None, "/run/ipoibu"),
        (0, "/run/user/0", "/run/ipoibu"),
        (1000, "/run/user/1000", "/run/user/1000/ipoibu"),
        (1000, None, "/tmp/ipoibu-1000"),
    ],
)
def test_the_default_depends_on_the_user(
    monkeypatch: pytest.MonkeyPatch, uid: int, session: str | None, directory: str
) -> None:
    monkeypatch.delenv("IPOIBU_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", session or "")
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    paths._default_dir.cache_clear()
    assert paths.runtime_dir() == Path(directory)
    monkeypatch.undo()
    paths._default_dir.cache_clear()


@pytest.mark.parametrize(("owner", "is_refused"), [(0, False), (65534, False), (1234, True)])
def test_a_third_users_default_directory_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, owner: int, is_refused: bool
) -> None:
    """The daemon that root started for user 65534 makes its directory again after it has become that
    user."""
    parent = tmp_path / "ipoibu"
    monkeypatch.delenv("IPOIBU_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(paths, "_default_dir", lambda: str(parent))
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    monkeypatch.setattr(
        paths, "_is_foreign", lambda directory, uid: directory == parent and uid != owner
    )
    if is_refused:
        with pytest.raises(NotPermitted, match=f"{parent} belongs to another user"):
            paths.make_namespace_dir()
    else:
        assert paths.make_namespace_dir() == paths.namespace_dir()


def test_a_run_is_linked_outside_as_long_as_it_lasts(runtime: Path) -> None:
    with paths.link_outside("ib0", os.getpid(), "/proc/self/ns/net"):
        link = runtime / f"net-{os.stat('/proc/self/ns/net').st_ino}" / f"ib0@{os.getpid()}.sock"
        assert os.readlink(link) == str(paths.socket_path("ib0"))
        assert paths.outside_links("ib0") == paths.outside_links(link.stem) == [link.stem]
        assert paths.outside_links("ib") == []
    assert not runtime.exists()


@pytest.mark.parametrize("inode", ["another", "the same"])
def test_the_link_of_a_killed_run_goes_with_the_next_one(
    runtime: Path, tmp_path: Path, inode: str
) -> None:
    directory = paths.make_namespace_dir()
    ended = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(ended, 0)
    inside = tmp_path / "net"  # stands for the file of the new run's namespace
    inside.touch()
    socket = paths.make_namespace_dir(namespace=inside) / "ib0.sock"
    socket.touch()
    before = socket if inode == "the same" else Path("/no/such.sock")
    (directory / f"ib0@{ended}.sock").symlink_to(before)
    with paths.link_outside("ib0", os.getpid(), inside):
        assert paths.names() == [f"ib0@{os.getpid()}"]


def test_a_link_of_a_process_that_we_do_not_see_stays_with_its_socket(
    runtime: Path, tmp_path: Path
) -> None:
    directory = paths.make_namespace_dir()
    ended = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(ended, 0)
    socket = tmp_path / "ib0.sock"
    socket.touch()
    (directory / f"ib0@{ended}.sock").symlink_to(socket)
    with paths.link_outside("ib1", os.getpid(), "/proc/self/ns/net"):
        assert paths.names() == [f"ib0@{ended}", f"ib1@{os.getpid()}"]


def test_a_path_too_long_for_a_socket_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", "/" + "x" * 100)
    with pytest.raises(UsageError, match="IPOIBU_RUNTIME_DIR"):
        paths.socket_path("ib0")


def test_the_directory_is_its_owners_alone(runtime: Path) -> None:
    directory = paths.make_namespace_dir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(directory.parent.stat().st_mode) == 0o700
    directory.chmod(0o755)
    assert stat.S_IMODE(paths.make_namespace_dir().stat().st_mode) == 0o700


def test_a_link_in_the_directorys_place_is_refused(runtime: Path, tmp_path: Path) -> None:
    runtime.mkdir()
    paths.namespace_dir().symlink_to(tmp_path)
    with pytest.raises(IpoibuError):
        paths.make_namespace_dir()


def test_a_file_in_the_way_is_a_clear_error(runtime: Path) -> None:
    runtime.write_text("")
    with pytest.raises(IpoibuError, match=str(runtime)):
        paths.make_namespace_dir()


def test_a_closed_directory_is_not_permitted(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*args: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", closed)
    with pytest.raises(NotPermitted, match="IPOIBU_RUNTIME_DIR"):
        paths.make_namespace_dir()
    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(NotPermitted):
        paths.names()


def test_names_are_those_of_sockets_sorted(runtime: Path) -> None:
    assert paths.names() == []
    directory = paths.make_namespace_dir()
    for name in ("ib1.sock", "ib0.sock", "ib0.8001.sock", "notes.txt"):
        (directory / name).touch()
    assert paths.names() == ["ib0", "ib0.8001", "ib1"]


def test_the_last_daemon_leaves_no_directory_and_the_last_but_one_does(runtime: Path) -> None:
    directory = paths.make_namespace_dir()
    (directory / "ib1.sock").touch()
    paths.remove_namespace_dir()
    assert directory.exists()
    (directory / "ib1.sock").unlink()
    paths.remove_namespace_dir()
    assert not runtime.exists()


def test_a_directory_with_the_right_mode_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service keeps no CAP_FOWNER, which a change of another user's directory needs."""
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(tmp_path / "run"))
    made = paths.make_namespace_dir()

    def refuse(self: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    assert paths.make_namespace_dir() == made


def test_the_directory_is_absolute_because_links_lead_into_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", "run")
    assert paths.runtime_dir() == tmp_path / "run"
