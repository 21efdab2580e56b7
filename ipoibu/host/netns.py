# SPDX-License-Identifier: BSD-2-Clause
"""A network namespace by the words of ip(8): the name of `ip netns`, a file, or a process."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ipoibu.base.closing import Closing
from ipoibu.base.errors import IpoibuError, NoSuchDevice, NotPermitted, UsageError
from ipoibu.sandbox.libc import CLONE_NEWNET, setns

NAMED: Final = Path("/run/netns")  # where `ip netns` keeps its files


@dataclass(frozen=True, slots=True)
class NetworkNamespace:
    """The namespace that `text` names; `path` is a file of it."""

    text: str
    path: Path

    @classmethod
    def parse(cls, text: str, named: Path = NAMED) -> Self:
        """Read NAME, PATH or PID. As for `ip link set netns`, a name wins over the process of that number.

        The namespace need not exist yet; `enter` finds out.
        """
        if "/" in text:
            return cls(text, Path(text))
        if text in ("", ".", "..") or "\0" in text:
            raise UsageError(
                f"{text!r} is no network namespace: give a name of `ip netns`, a file or a process"
            )
        if text.isascii() and text.isdigit() and not (named / text).exists():
            return cls(text, Path(f"/proc/{text}/ns/net"))
        return cls(text, named / text)

    def open(self) -> OpenNamespace:
        """Find the namespace; `NoSuchDevice`, `NotPermitted` or `UsageError`."""
        try:
            return OpenNamespace(self, os.open(self.path, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise self.refusal(error) from error

    def is_gone(self) -> bool:
        """Return whether the file no longer leads to the namespace of the calling process."""
        try:
            there = os.stat(self.path)
        except PermissionError:
            return False  # the kernel hides the namespace of a living process from confined ones
        except OSError:
            return True
        here = os.stat("/proc/self/ns/net")
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def refusal(self, error: OSError) -> IpoibuError:
        if error.errno in (errno.ENOENT, errno.ESRCH, errno.ENOTDIR):
            if self.path.is_relative_to("/proc") and "/" not in self.text:
                return NoSuchDevice(
                    f"--netns {self.text}: no process has that number, nor has `ip netns` that name"
                )
            return NoSuchDevice(
                f"--netns {self.text}: there is no {self.path}; `ip netns` lists the names"
            )
        if error.errno in (errno.EPERM, errno.EACCES):
            return NotPermitted(
                f"--netns {self.text}: entering it needs CAP_SYS_ADMIN: run as root"
            )
        if error.errno == errno.EINVAL:
            return UsageError(f"--netns {self.text}: {self.path} is no network namespace")
        return IpoibuError(f"--netns {self.text}: {os.strerror(error.errno or 0)}")


class OpenNamespace(Closing):
    """A namespace that was found once: processes and threads enter this one, although the path may lead each
    of them to another one, or to none (/proc/self/fd/7)."""

    def __init__(self, name: NetworkNamespace, fd: int) -> None:
        self.name = name
        self._fd = fd

    def inode(self) -> int:
        return os.fstat(self._fd).st_ino

    def enter(self) -> None:
        """Move the calling thread into the namespace; others stay where they are."""
        try:
            setns(self._fd, CLONE_NEWNET)
        except OSError as error:
            raise self.name.refusal(error) from error

    def close(self) -> None:
        os.close(self._fd)
