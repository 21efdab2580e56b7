# SPDX-License-Identifier: BSD-2-Clause
"""Finds, unpacks, lists and checks userlands.

A userland has in its root `MANIFEST.json`, which says what it was made of, and `SHA256SUMS`. The cache
holds each in a directory that has the beginning of its archive's SHA-256 for a name.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.lab.artefacts import (
    cache_directory,
    differences,
    digest_of,
    fetch,
    is_url,
    open_archive_untrusted,
)
from ipoibu.lab.errors import LabError

KIND: Final = "lab-userland"
ARCHIVE: Final = "ipoibu-userland-x86_64.tar.gz"
MANIFEST: Final = "MANIFEST.json"
SUMS: Final = "SHA256SUMS"
FORMAT: Final = 1
INIT: Final = "/usr/lib/ipoibu/init"  # in the userland: the script `init` of this room
KMOD: Final = "/usr/bin/kmod"  # the lab covers it by what answers modprobe and lsmod
UNPACKED_BYTES_MAX: Final = 1 << 30  # one has an eighth of this, and some 4000 files
FILES_MAX: Final = 100_000
_NAME_LENGTH: Final = 16


@dataclass(frozen=True, slots=True)
class Userland:
    """A directory that a machine can have as its root."""

    path: Path
    manifest: dict[str, Any]

    @property
    def suite(self) -> str:
        """The release of Debian that its packages are of."""
        return str(self.manifest["suite"])

    @property
    def packages(self) -> dict[str, str]:
        """The version of each package."""
        return {name: each["version"] for name, each in self.manifest["packages"].items()}

    @property
    def ipoibu(self) -> str | None:
        """The version of ipoibu within; None if it has none."""
        return self.manifest["ipoibu"]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        own = f", ipoibu {self.ipoibu}" if self.ipoibu else ""
        return f"{self.path}  Debian {self.suite}, {len(self.packages)} packages{own}"


def load(path: Path) -> Userland:
    """Return the userland in the directory `path`; LabError if there is none that we can use."""
    try:
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        if manifest["format"] != FORMAT:
            raise LabError(f"{path} is a userland of format {manifest['format']}, not {FORMAT}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is no userland: {error}") from error
    return Userland(path.resolve(), manifest)


def cached() -> list[Userland]:
    """Return the userlands of the cache, the newest first."""
    places = [path for path in cache_directory(KIND).glob("*") if (path / MANIFEST).is_file()]
    return [load(path) for path in sorted(places, key=_changed_s, reverse=True)]


def find(source: str | None = None) -> Userland:
    """Return the userland that `source` names: a directory, an archive, or a URL; the cache's newest if
    it is None. LabError if there is none."""
    if source is not None:
        if not is_url(source) and (Path(source) / MANIFEST).is_file():
            return load(Path(source))
        return add(source)
    if found := cached():
        return found[0]
    raise LabError("there is no userland here: ipoibu lab userland fetch SOURCE, or build one")


def add(source: str, sha256: str | None = None) -> Userland:
    """Fetch the archive that `source` is or has, and unpack it into the cache."""
    cache = cache_directory(KIND)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as work:
        archive = fetch(source, ARCHIVE, Path(work), sha256)
        target = cache / digest_of(archive)[:_NAME_LENGTH]
        if not (target / MANIFEST).is_file():
            tree = Path(work) / "tree"
            unpack_untrusted(archive, tree)
            load(tree)  # refuses what is no userland
            try:
                os.rename(tree, target)
            except OSError:  # another process was faster
                load(target)
        os.utime(target)
    return load(target)


def unpack_untrusted(archive: Path, directory: Path) -> None:
    """Unpack files, directories and symbolic links of a tar archive into the new `directory`."""
    directory.mkdir()
    places: set[Path] = set()
    with open_archive_untrusted(archive, UNPACKED_BYTES_MAX) as tar:
        for count, member in enumerate(tar):
            if count == FILES_MAX:
                raise LabError(f"{archive.name} has more than {FILES_MAX} files")
            target = _inner_untrusted(directory, member.name, places)
            if member.isdir():
                target.mkdir(exist_ok=True)
            elif member.issym():
                target.symlink_to(member.linkname)
            elif member.isreg():
                content = tar.extractfile(member)
                assert content is not None
                with content, _create(target, 0o755 if member.mode & 0o100 else 0o644) as file:
                    shutil.copyfileobj(content, file)
            else:
                raise LabError(f"{archive.name} has {member.name!r}, which is no file")


def verify(userland: Userland) -> list[str]:
    """Return what differs from the userland's own list of files: nothing, if it is whole."""
    wanted = {}
    for line in (userland.path / SUMS).read_text("utf-8").splitlines():
        digest, _, name = line.partition("  ")
        wanted[name] = digest
    return differences(userland.path, wanted, (SUMS,))


def remove(userland: Userland) -> None:
    shutil.rmtree(userland.path)


def _changed_s(path: Path) -> float:
    return path.stat().st_mtime


def _create(path: Path, mode: int) -> Any:
    """Open a new file; one that is there, or behind a symbolic link, is an error."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, mode)
    os.fchmod(fd, mode)
    return os.fdopen(fd, "wb")


def _inner_untrusted(directory: Path, name: str, places: set[Path]) -> Path:
    """Return the place of an archive's member; LabError if it leads out of the directory.

    `places` are the directories within that are no symbolic links.
    """
    name = name.removeprefix("./").rstrip("/") or "."
    target = directory / name
    parent = target.parent
    is_inside = not name.startswith("/") and ".." not in name.split("/") and "\0" not in name
    if is_inside and parent not in places and name != ".":
        is_inside = parent.resolve() == directory.resolve() / parent.relative_to(directory)
        places.add(parent)
    if not is_inside:
        raise LabError(f"the archive has {name!r}, outside of its root")
    return target
