# SPDX-License-Identifier: BSD-2-Clause
"""The files of a machine: the host's, read-only, and what is mounted over them."""

from __future__ import annotations

import re
import site
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ipoibu.lab.errors import LabError

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


def fstab(directory: Path, share: Share | None) -> str:
    """Return the mounts over a machine's root, which is the host's tree, read-only.

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
    for path in sorted({ROOT, Path(sys.prefix), Path(sys.base_prefix)}):
        if any(path.is_relative_to(place) for place in PRIVATE):
            mounts.append(("hostfs", str(path), "hostfs", f"ro,X-mount.mkdir,{path}"))
    if share is not None:
        place = SHARE if share.is_read_only else "/run/share"
        mounts.append(("hostfs", place, "hostfs", f"ro,X-mount.mkdir,{share.path}"))
    mounts += [("/dev/null", str(hook), "none", "bind") for hook in start_hooks()]
    mounts += [(str(INSIDE / "kmod"), str(kmod), "none", "bind") for kmod in module_programs()]
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
