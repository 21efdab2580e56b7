# SPDX-License-Identifier: BSD-2-Clause
"""Paths of the control sockets of running interfaces: one directory per network namespace.

Interface names are unique per namespace only, and namespaces usually share /run. So the path is
`/run/ipoibu/net-<inode of the namespace>/NAME.sock`. For an ordinary user, $XDG_RUNTIME_DIR/ipoibu
replaces /run/ipoibu; for everyone, IPOIBU_RUNTIME_DIR does. The namespace in which `ipoibu run` or
`ipoibu up --netns` started has a link NAME@PID.sock to the socket in the interface's namespace.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipoibu.base.errors import IpoibuError, NotPermitted, UsageError

if TYPE_CHECKING:
    from ipoibu.sandbox.user import User

SOCKET_PATH_MAX: Final = 107  # sun_path without its final NUL


def runtime_dir() -> Path:
    """The directory, by an absolute path: links lead into it."""
    return Path(os.environ.get("IPOIBU_RUNTIME_DIR") or _default_dir()).absolute()


@functools.cache  # a daemon that becomes another user keeps its directory
def _default_dir() -> str:
    if os.geteuid() == 0:
        return "/run/ipoibu"
    session = os.environ.get("XDG_RUNTIME_DIR")
    return f"{session}/ipoibu" if session else f"/tmp/ipoibu-{os.geteuid()}"


def namespace_dir(namespace: str | Path | int = "/proc/self/ns/net") -> Path:
    """Return the directory of a network namespace, which may be missing; `namespace` is any file of the
    namespace, or the file's inode."""
    inode = namespace if isinstance(namespace, int) else os.stat(namespace).st_ino
    return runtime_dir() / f"net-{inode}"


def socket_path(name: str, namespace: str | Path | int = "/proc/self/ns/net") -> Path:
    """Return the control socket of the interface `name`; `UsageError` if the path is too long."""
    path = namespace_dir(namespace) / f"{name}.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise UsageError(
            f"{path} is too long for a socket; set IPOIBU_RUNTIME_DIR to a shorter directory"
        )
    return path


def names() -> list[str]:
    """Return the interfaces with a control socket in this namespace, sorted; dead daemons may have left
    sockets."""
    directory = namespace_dir()
    try:
        return sorted(path.stem for path in directory.iterdir() if path.suffix == ".sock")
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise NotPermitted(
            f"this user cannot read {directory}: run as the user who started ipoibu, or root"
        ) from error


def outside_links(name: str) -> list[str]:
    """Return NAME@PID of each `ipoibu run` of this namespace whose interface is `name`, or that one."""
    return [each for each in names() if each == name or each.rpartition("@")[0] == name]


def outside_link(directory: Path, name: str, pid: int) -> Path:
    return directory / f"{name}@{pid}.sock"


@contextlib.contextmanager
def link_outside(
    name: str, pid: int, namespace: str | Path | int, user: User | None = None
) -> Iterator[None]:
    """Let commands in this namespace reach the interface `name` of the process `pid`, which is in
    `namespace`. Root may make the link for `user`."""
    directory = make_namespace_dir(user)
    socket = socket_path(name, namespace)
    _remove_dead_links(directory, socket)
    link = outside_link(directory, name, pid)
    link.symlink_to(socket)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            link.unlink()
        remove_empty(directory)


def _remove_dead_links(directory: Path, ours: Path) -> None:
    """Remove the links whose process was killed; one that starts has a link before its socket.

    A process that we do not see may live, in a container, as long as its socket exists. But `ours` is our
    process's: its namespace may have got the inode number of the one that a killed process was in.
    """
    for link in directory.glob("*@*.sock"):
        is_alive = Path("/proc", link.stem.rpartition("@")[2]).exists()
        with contextlib.suppress(OSError):
            if not is_alive and (link.readlink() == ours or not link.exists()):
                link.unlink()


def make_namespace_dir(
    user: User | None = None, namespace: str | Path | int = "/proc/self/ns/net"
) -> Path:
    """Create the directory for the namespace, with access for its owner only; `NotPermitted` if the
    directory is another user's and not empty. Root may create it for `user`."""
    directory = namespace_dir(namespace)
    uid = user.uid if user is not None else os.geteuid()
    try:
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_default(directory.parent)
        if user is not None:
            directory.parent.chmod(0o711)
        if _is_foreign(directory, uid):
            with contextlib.suppress(OSError):  # daemons of the other user run
                directory.rmdir()
        with contextlib.suppress(FileExistsError):
            directory.mkdir(mode=0o700)
            if user is not None:
                os.chown(directory, user.uid, user.gid)
        if _is_foreign(directory, uid):
            raise NotPermitted(
                f"{directory} belongs to another user: run as that user or root, or remove it"
            )
        if stat.S_IMODE(directory.stat().st_mode) != 0o700:  # another user's needs CAP_FOWNER
            directory.chmod(0o700)
    except PermissionError as error:
        raise NotPermitted(
            f"this user cannot create {directory}: run as root, or set IPOIBU_RUNTIME_DIR"
        ) from error
    except OSError as error:
        raise IpoibuError(f"{directory}: {os.strerror(error.errno or 0)}") from error
    return directory


def _check_default(parent: Path) -> None:
    """Refuse the default directory if a third user has made it, as any user can in /tmp. Root's is good: a
    daemon that root started for another user goes on in it."""
    if os.environ.get("IPOIBU_RUNTIME_DIR"):
        return
    if _is_foreign(parent, os.geteuid()) and _is_foreign(parent, 0):
        raise NotPermitted(f"{parent} belongs to another user: set XDG_RUNTIME_DIR, or remove it")


def _is_foreign(directory: Path, uid: int) -> bool:
    try:
        status = os.lstat(directory)
    except FileNotFoundError:
        return False
    return not stat.S_ISDIR(status.st_mode) or status.st_uid != uid


def remove_namespace_dir(
    namespace: str | Path | int = "/proc/self/ns/net", *, with_sockets: bool = False
) -> None:
    """Remove the directories that the last daemon of a namespace leaves empty.

    With `with_sockets`, remove the sockets in them first: the namespace is about to end.
    """
    with contextlib.suppress(OSError):
        directory = namespace_dir(namespace)
        if with_sockets:
            for path in directory.glob("*.sock"):
                path.unlink(missing_ok=True)
        remove_empty(directory)


def remove_empty(directory: Path) -> None:
    """Remove the directory of a namespace, and that of all, if they are empty."""
    with contextlib.suppress(OSError):
        directory.rmdir()
    with contextlib.suppress(OSError):  # a confined daemon may not remove this directory
        runtime_dir().rmdir()
