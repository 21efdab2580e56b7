# SPDX-License-Identifier: BSD-2-Clause
"""The directory whose file is a machine's memory: one that has room, and lets programs run from it."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.lab.errors import LabError

SHARED_MEMORY: Final = Path(
    "/dev/shm"
)  # in RAM; a container's may hold 64 MB, or be mounted noexec


@dataclass(frozen=True, slots=True)
class Place:
    """A directory for memory; `lack` says why it is unfit, or is None."""

    path: Path
    lack: str | None


def places(needed_bytes: int) -> Iterator[Place]:
    """Return the directories for `needed_bytes` of memory, the best ones first.

    Those after /dev/shm are on a disk in most cases, which costs nothing while the host's RAM suffices.
    """
    seen = set()
    for path in (SHARED_MEMORY, Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/run/shm")):
        if path not in seen:
            seen.add(path)
            yield Place(path, _lack(path, needed_bytes))


def memory_place(needed_bytes: int) -> tuple[Place, list[Place]]:
    """Return the first fit directory, and the unfit ones before it; raise LabError if there is none.

    The kernel runs from this memory, and a machine that outgrows it dies of SIGBUS.
    """
    unfit: list[Place] = []
    for place in places(needed_bytes):
        if place.lack is None:
            return place, unfit
        unfit.append(place)
    raise LabError(
        f"no directory can hold {needed_bytes >> 20} MiB of memory for machines: "
        f"{'; '.join(f'{place.path} {place.lack}' for place in unfit)}; "
        "set TMPDIR to a directory of another file system"
    )


def _lack(path: Path, needed_bytes: int) -> str | None:
    try:
        free_bytes = shutil.disk_usage(path).free
        with tempfile.TemporaryFile(dir=path) as file:
            os.ftruncate(file.fileno(), mmap.PAGESIZE)
            try:
                mmap.mmap(
                    file.fileno(), mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_EXEC
                ).close()
            except PermissionError:
                return "is mounted noexec"
    except OSError as error:
        return f"cannot be used: {os.strerror(error.errno or 0)}"
    if free_bytes <= needed_bytes:
        return f"has only {free_bytes >> 20} MiB free"
    return None
