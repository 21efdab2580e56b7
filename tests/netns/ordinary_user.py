# SPDX-License-Identifier: BSD-2-Clause
"""Users of a lab's hosts who are not root and have no capability."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import ipoibu
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

IPOIBU: Final = [sys.executable, "-m", "ipoibu.cli"]


class OrdinaryUser:
    """A user of one host, with a runtime directory of its own."""

    def __init__(self, host: Host, directory: Path) -> None:
        self.host = host
        self.uid = 60000 + host.number
        self.directory = directory / str(self.uid)
        self.directory.mkdir()
        os.chown(self.directory, self.uid, self.uid)

    @classmethod
    @contextlib.contextmanager
    def pair(cls) -> Iterator[tuple[Self, Self]]:
        """One user of each of two hosts."""
        with (
            NamespaceLab(start=False) as lab,
            tempfile.TemporaryDirectory(prefix="ipt-") as directory,
        ):
            Path(directory).chmod(0o755)
            first, second = (cls(host, Path(directory)) for host in lab.hosts)
            yield first, second

    def words(self, *words: str) -> list[str]:
        """The command line of `ipoibu WORDS...` as this user, without any capability."""
        become = f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"
        bare = "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"
        return ["setpriv", *become, *bare, *IPOIBU, *words]

    def environment(self) -> dict[str, str]:
        return {
            "XDG_RUNTIME_DIR": str(self.directory),
            "IPOIBU_RUNTIME_DIR": "",
            "PYTHONPATH": str(Path(ipoibu.__file__).parent.parent),
            "SHELL": "/bin/sh",
        }

    def popen(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        return self.host.namespace.popen(
            self.words(*words), environment=self.environment(), **options
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `ipoibu WORDS...`, and return its status and output as text."""
        process = self.popen(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=200)
        return subprocess.CompletedProcess(words, process.returncode, out.decode(), err.decode())

    def left(self) -> list[str]:
        return [str(path) for path in self.directory.rglob("*")]
