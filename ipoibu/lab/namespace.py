# SPDX-License-Identifier: BSD-2-Clause
"""Named network namespaces, as `ip netns` makes them: a file under /run/netns keeps each alive.

A thread can be in another namespace than its process, and a socket stays in the namespace it was
opened in. So one process opens sockets in all hosts, without helper programs.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from ipoibu.base.errors import NotPermitted
from ipoibu.daemon.control.socket_paths import remove_namespace_dir
from ipoibu.sandbox.libc import (
    CLONE_NEWNET,
    PR_SET_PDEATHSIG,
    mount,
    prctl,
    setns,
    unmount,
    unshare,
)

NETNS_DIR: Final = Path("/run/netns")
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SHARED: Final = 0x100000
MNT_DETACH: Final = 2

_Result = TypeVar("_Result")


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    """Put `what` before the text of an `OSError`."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{what}: {error.strerror}") from error


def _in_thread(call: Callable[[], _Result]) -> _Result:
    """Run `call` on a new thread, which may change namespaces because it ends with the call."""
    result: list[_Result] = []
    failure: list[BaseException] = []

    def body() -> None:
        try:
            result.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    try:
        thread.join()
    except BaseException:  # a signal: the caller cleans up what the thread has done
        thread.join()
        raise
    if failure:
        raise failure[0]
    return result[0]


def enter(fd: int) -> None:
    """Move the calling thread into a network namespace."""
    with _named("entering a network namespace"):
        setns(fd, CLONE_NEWNET)


class LabNamespace:
    """A network namespace under /run/netns, which this process owns until `remove`."""

    def __init__(self, name: str, fd: int) -> None:
        self.name = name
        self.path = NETNS_DIR / name
        self.fd = fd

    @classmethod
    def create(cls, name: str) -> Self:
        """Make the namespace, with its loopback down; raise `NotPermitted` without CAP_SYS_ADMIN."""
        path = NETNS_DIR / name
        try:
            _share_directory()
            path.touch(mode=0o444, exist_ok=False)
        except PermissionError as error:
            raise NotPermitted(f"this user cannot make {path}: run as root") from error
        try:
            _in_thread(lambda: _bind_new(path))
            return cls(name, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except BaseException as error:
            remove(path)
            if isinstance(error, PermissionError):
                raise NotPermitted(
                    "network namespaces need CAP_SYS_ADMIN: run as root, or give the container"
                    " --privileged"
                ) from error
            raise

    def remove(self) -> None:
        """Forget the name; the namespace itself ends with the last process and socket in it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            remove(self.path)

    def inside(self, call: Callable[[], _Result]) -> _Result:
        """Run `call` in this namespace, on another thread, and return its result."""

        def entered() -> _Result:
            with _named(f"entering {self.name}"):
                setns(self.fd, CLONE_NEWNET)
            return call()

        return _in_thread(entered)

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        return self.inside(lambda: socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol))

    def popen(
        self,
        command: Sequence[str],
        *,
        fd: int | None = None,
        death_signal: int = signal.SIGKILL,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> subprocess.Popen[bytes]:
        """Start a program in this namespace, or in that of `fd`.

        The kernel sends it `death_signal` when the calling thread ends.
        """
        fd, parent = self.fd if fd is None else fd, os.getpid()

        def enter() -> None:
            try:
                setns(fd, CLONE_NEWNET)
                prctl(PR_SET_PDEATHSIG, death_signal)
            except OSError:
                os._exit(126)
            if os.getppid() != parent:
                os._exit(126)

        return subprocess.Popen(
            list(command),
            preexec_fn=enter,  # noqa: PLW1509
            env={**os.environ, **(environment or {})},
            **options,
        )

    def run(
        self, command: Sequence[str], *, timeout_s: float = 60.0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in this namespace to its end and return its output as text."""
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        process = self.popen(command, **options)
        try:
            out, err = process.communicate(timeout=timeout_s)
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()
        return subprocess.CompletedProcess(
            list(command),
            process.returncode,
            (out or b"").decode(errors="replace"),
            (err or b"").decode(errors="replace"),
        )


def _bind_new(path: Path) -> None:
    with _named("unshare"):
        unshare(CLONE_NEWNET)
    with _named(f"mounting {path}"):
        mount(b"/proc/thread-self/ns/net", os.fsencode(path), b"none", MS_BIND)


def _share_directory() -> None:
    """Share the directory as `ip netns add` does: every mount namespace sees mounts below it."""
    NETNS_DIR.mkdir(mode=0o755, parents=True, exist_ok=True)
    where = os.fsencode(NETNS_DIR)
    with contextlib.suppress(OSError):  # it is no mount yet
        mount(b"", where, b"none", MS_SHARED | MS_REC)
        return
    with _named(f"mounting {NETNS_DIR}"):
        mount(where, where, b"none", MS_BIND | MS_REC)
    with _named(f"sharing {NETNS_DIR}"):
        mount(b"", where, b"none", MS_SHARED | MS_REC)


def mount_own_run() -> None:
    """Mount an empty /run over this mount namespace's."""
    run = NETNS_DIR.parent
    with _named(f"mounting {run}"):
        mount(b"ipoibu", os.fsencode(run), b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=755")
    NETNS_DIR.mkdir()


def remove(path: Path) -> None:
    """Unmount and unlink a namespace's file, and remove the files of daemons that crashed in it.

    It ignores files that are gone already.
    """
    remove_namespace_dir(path, with_sockets=True)
    with contextlib.suppress(OSError):
        unmount(os.fsencode(path), MNT_DETACH)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def remove_stale(prefix: str) -> list[str]:
    """Remove namespaces `<prefix>-<pid>-...` whose process is gone, and return their names."""
    removed = []
    paths = sorted(NETNS_DIR.iterdir()) if NETNS_DIR.is_dir() else []
    for path in paths:
        match = re.fullmatch(re.escape(prefix) + r"-([0-9]+)-.+", path.name)
        if match and not Path(f"/proc/{match[1]}").exists():
            with contextlib.suppress(OSError):
                remove(path)
                removed.append(path.name)
    return removed
