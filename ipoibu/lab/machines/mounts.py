# SPDX-License-Identifier: BSD-2-Clause
"""The files of a machine: its root, which is the host's tree or a userland, and what is mounted over it."""

from __future__ import annotations

import os
import re
import shutil
import site
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self

from ipoibu.lab.errors import LabError
from ipoibu.lab.userland.image import INIT, KMOD, Userland, find

ROOT: Final = (
    Path(__file__).resolve().parents[3]
)  # where the package is: the checkout or site-packages
PRIVATE: Final = (
    "/dev/shm",
    "/run",
    "/tmp",
    "/var/tmp",
)  # each machine has its own, empty at first
INSIDE: Final = Path(__file__).resolve().parent / "inside"
PROGRAMS: Final = (Path("/bin"), Path("/sbin"), Path("/usr/bin"), Path("/usr/sbin"))
# All are inside/kmod.
MODULE_COMMANDS: Final = ("modprobe", "lsmod", "modinfo", "rmmod", "insmod", "depmod")
# Programs without which no machine boots, or has no link.
NEEDED: Final = ("bash", "ip", "mount", "rdma", "ss", "stty")
SYSTEMD: Final = ("usr/lib/systemd/systemd", "lib/systemd/systemd")
SHARE: Final = "/src"  # where a machine finds the directory that its user shares


@dataclass(frozen=True)
class Share:
    """A directory that a machine sees at /src, and may change for itself unless `is_read_only`."""

    path: Path
    is_read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `DIR[:ro]`; `LabError` if there is no such directory."""
        path = Path(text.removesuffix(":ro"))
        if not path.is_dir():
            raise LabError(f"--share {text}: there is no directory {path}")
        return cls(path.resolve(), text.endswith(":ro"))


@dataclass(frozen=True)
class Root:
    """The root of a machine: the host's tree, or `userland` if it is not None."""

    userland: Userland | None = None

    def kernel_arguments(self) -> list[str]:
        """Return what the kernel's command line says about the root and its first program."""
        words = ["root=/dev/root", "rootfstype=hostfs", "hostfs=/", "ro"]
        if self.userland is None:
            return [*words, f"init={INSIDE}/init"]
        own = (f"rootflags={self.userland.path}", f"init={INIT}", f"LAB_PACKAGE={ROOT}")
        return [*words, *own]

    def environment(self, commands: str) -> dict[str, str]:
        """Return the variables of a command; `commands` is a directory that the machine has besides."""
        programs = f"{commands}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        if self.userland is not None:
            return {"PATH": programs}
        return {"PATH": f"{Path(sys.executable).parent}:{programs}", "PYTHONPATH": str(ROOT)}

    def word(self, word: str) -> str:
        """Return a word of a command as the machine has it: the host's Python is another one there."""
        return "python3" if self.userland is not None and word == sys.executable else word

    def paths(self) -> list[Path]:
        """Return the paths that the kernel's command line has to carry."""
        return [INSIDE] if self.userland is None else [ROOT, self.userland.path]

    @property
    def has_systemd(self) -> bool:
        """Whether a machine can have systemd as process 1; inside/systemd looks for it in the same places."""
        top = Path("/") if self.userland is None else self.userland.path
        return any(os.access(top / place, os.X_OK) for place in SYSTEMD)

    def directories(self) -> list[Path]:
        """Return the directories that a machine needs even where a private place covers them."""
        if self.userland is not None:
            return [ROOT]
        return sorted({ROOT, Path(sys.prefix), Path(sys.base_prefix)})

    def start_hooks(self) -> list[Path]:
        """Return the .pth files that no machine needs."""
        return start_hooks() if self.userland is None else []

    def module_programs(self) -> list[Path]:
        """Return the files of the root's kmod, which scripts and units call by their paths."""
        return module_programs() if self.userland is None else [Path(KMOD)]


HOST: Final = Root()


def lacking(*, runs_ipoibu: bool) -> list[str]:
    """Return what the host's own tree lacks as the root of machines; nothing, if it will do."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if runs_ipoibu and find_spec("ipoibu._core.pump") is None:
        missing.append("ipoibu's C core")
    return missing


def choose_root(
    word: str | None = None, *, runs_ipoibu: bool = False, runs_systemd: bool = False
) -> Root:
    """Return the root that `word` names: `host`, a userland's directory, archive or URL, or `auto`: the
    host's tree if it will do, or else the newest userland of the cache.

    Without a word IPOIBU_LAB_USERLAND says it, or else it is `auto`. Raise LabError if there is none, or
    if it lacks the ipoibu or the systemd that machines shall run.
    """
    root = _choose(word or os.environ.get("IPOIBU_LAB_USERLAND") or "auto", runs_ipoibu=runs_ipoibu)
    if runs_systemd and not root.has_systemd:
        where = "this host" if root.userland is None else f"the userland {root.userland.path}"
        remedy = (
            "install it" if root.userland is None else "take a host's own tree (--userland host)"
        )
        raise LabError(f"{where} has no systemd, which --init systemd needs: {remedy}")
    return root


def _choose(word: str, *, runs_ipoibu: bool) -> Root:
    if word == "host":
        return HOST
    userland = None
    if word == "auto":
        missing = lacking(runs_ipoibu=runs_ipoibu)
        if not missing:
            return HOST
        try:
            userland = find()
        except LabError as error:
            raise LabError(
                f"this host lacks {', '.join(missing)}: install it, or {error}"
            ) from None
    userland = userland or find(word)
    if runs_ipoibu and userland.ipoibu is None:
        raise LabError(
            f"the userland {userland.path} has no ipoibu: its machines run ib_ipoib only"
        )
    return Root(userland)


def fstab(directory: Path, share: Share | None, root: Root) -> str:
    """Return the mounts over a machine's root, which is read-only.

    `directory`, at /run/lab, is the only writable part of the host. A private place that covers the
    package or the interpreter gets a mount of it. init lays a writable layer over a share's files.
    """
    mounts = [
        ("sysfs", "/sys", "sysfs", "defaults"),
        ("devtmpfs", "/dev", "devtmpfs", "defaults"),
        ("devpts", "/dev/pts", "devpts", "X-mount.mkdir"),
        *(("tmpfs", place, "tmpfs", "X-mount.mkdir") for place in PRIVATE),
        ("tmpfs", "/run/netns", "tmpfs", "X-mount.mkdir"),
        ("hostfs", "/run/lab", "hostfs", f"X-mount.mkdir,{directory}"),
    ]
    for path in root.directories():
        if any(path.is_relative_to(place) for place in PRIVATE):
            mounts.append(("hostfs", str(path), "hostfs", f"ro,X-mount.mkdir,{path}"))
    if share is not None:
        place = SHARE if share.is_read_only else "/run/share"
        mounts.append(("hostfs", place, "hostfs", f"ro,X-mount.mkdir,{share.path}"))
    mounts += [("/dev/null", str(hook), "none", "bind") for hook in root.start_hooks()]
    mounts += [(str(INSIDE / "kmod"), str(kmod), "none", "bind") for kmod in root.module_programs()]
    return "".join(f"{' '.join(mount)} 0 0\n" for mount in mounts)


def module_programs(places: Sequence[Path] = PROGRAMS) -> list[Path]:
    """Return the files of the root's kmod, which scripts and units call by their paths.

    None of its commands can work in a machine. A program that is more than this, such as busybox, stays.
    """
    names = ("kmod", *MODULE_COMMANDS)
    files = {(place / name).resolve() for place in places for name in names}
    return sorted(file for file in files if file.is_file() and file.name in names)


def start_hooks() -> list[Path]:
    """Return the .pth files by which the machine's packages run code at the start of every Python.

    No scenario needs that code, and in a machine it may take longer than the rest of the start. A file
    that adds a directory to the path, too, stays.
    """
    places = [Path(place) for place in site.getsitepackages([sys.prefix, sys.base_prefix])]
    files = sorted({file for place in places for file in place.glob("*.pth")})
    files = [file for file in files if not re.search(r"\s", str(file))]  # fstab has words
    return [file for file in files if _only_runs_code(file.read_text(errors="replace"))]


def _only_runs_code(pth: str) -> bool:
    lines = [line for line in pth.splitlines() if line.strip() and not line.startswith("#")]
    return all(line.startswith(("import ", "import\t")) for line in lines)
