# SPDX-License-Identifier: BSD-2-Clause
"""Takes kernels from elsewhere into the cache, and writes them for others to take.

What comes is checked before it is in the cache: each file's SHA-256, and that nothing leaves its
directory or grows without bounds. What is written satisfies GPL-2.0 when all of it is published: the
source's tarball lies beside the kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from ipoibu.lab.artefacts import (
    cache_directory,
    digest_of,
    fetch,
    is_url,
    open_archive_untrusted,
    pack,
    write_digest,
)
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.kernels import (
    BUILD,
    KIND,
    MANIFEST,
    NAME,
    ORIGIN,
    Kernel,
    load,
)

# A kernel `full` has some 15 MiB, and its recipe some 30 files.
UNPACKED_BYTES_MAX: Final = 256 << 20
FILES_MAX: Final = 1000
INSTALLED: Final = Path("/usr/src")  # where Debian's packages of sources have their tarballs
_SUFFIXES: Final = (".tar.xz", ".tar.gz", ".tar")
_DIGEST_LENGTH: Final = 16  # in a directory's name


def fetch_kernel(
    source: str, release: str | None, flavour: str | None, sha256: str | None = None
) -> Kernel:
    """Take the artefact that `source` names into the cache.

    It is a directory, an archive, or a URL of an archive. A directory may also hold archives, one of them of
    this release and flavour. `sha256` is the digest of the archive, or of the kernel in a directory; without
    it, the file beside the archive says it.
    """
    cache = cache_directory(KIND)
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=cache) as place:
        work = Path(place)
        tree = work / "tree"
        tree.mkdir()
        if not is_url(source) and (Path(source) / MANIFEST).is_file():
            _copy_untrusted(load(Path(source)), tree, sha256)
        else:
            archive = source if is_url(source) else str(_archive(Path(source), release, flavour))
            unpack_untrusted(fetch(archive, "", work, sha256), tree)
        kernel = load(tree)
        _check(kernel, source, release, flavour)
        (tree / ORIGIN).write_text(f"{source}\n")
        kernel.path.chmod(0o755)
        target = cache / f"{kernel.name}-{digest_of(tree / MANIFEST)[:_DIGEST_LENGTH]}"
        if target.exists():  # fetched before, and perhaps damaged since
            os.rename(target, work / "before")
        try:
            os.rename(tree, target)
        except OSError:  # another process was faster
            if load(target).differences():
                raise
    return load(target)


def _copy_untrusted(kernel: Kernel, tree: Path, sha256: str | None) -> None:
    """Copy the files that the manifest of a directory names, each checked, and the manifest."""
    if len(kernel.files) > FILES_MAX:
        raise LabError(f"{kernel.directory} has more than {FILES_MAX} files")
    if sha256 not in (None, kernel.files["linux"]):
        raise LabError(f"{kernel.path} has the SHA-256 {kernel.files['linux']}, expected {sha256}")
    size = 0
    for name, digest in kernel.files.items():
        place = (tree / name).parent
        size += fetch(str(kernel.directory / name), "", place, digest).stat().st_size
        if size > UNPACKED_BYTES_MAX:
            raise LabError(f"{kernel.directory} has more than {UNPACKED_BYTES_MAX >> 20} MiB")
    (tree / MANIFEST).write_text(json.dumps(kernel.manifest, indent=1) + "\n")


def _archive(source: Path, release: str | None, flavour: str | None) -> Path:
    if not source.is_dir():
        return source
    wanted = f"linux-{release + '.' if release else ''}*-{flavour or '*'}"
    found = sorted(each for suffix in _SUFFIXES for each in source.glob(f"{wanted}{suffix}"))
    if len(found) != 1:
        what = "no artefact" if not found else f"{len(found)} artefacts"
        raise LabError(f"{source} has {what} {wanted}: name one file, or --kernel and --flavour")
    return found[0]


def _check(kernel: Kernel, source: str, release: str | None, flavour: str | None) -> None:
    for what, wanted, found in (
        ("Linux", release, kernel.release),
        ("flavour", flavour, kernel.flavour),
    ):
        if wanted not in (None, found):
            raise LabError(f"{source} has {what} {found}, not {wanted}")
    if differing := kernel.differences():
        raise LabError(f"{source} is not whole: {differing[0]}")
    with kernel.path.open("rb") as file:
        head = file.read(20)
    if head[:6] != b"\x7fELF\x02\x01" or head[18:20] != b"\x3e\x00":
        raise LabError(f"{source} has a kernel that is no program for x86_64")


def unpack_untrusted(archive: Path, tree: Path) -> None:
    """Unpack the files below the only directory at the top of a tar archive into `tree`."""
    with open_archive_untrusted(archive, UNPACKED_BYTES_MAX) as tar:
        for count, member in enumerate(tar):
            if count == FILES_MAX:
                raise LabError(f"{archive.name} has more than {FILES_MAX} files")
            _place_untrusted(tar, member, tree)


def _place_untrusted(tar: tarfile.TarFile, member: tarfile.TarInfo, tree: Path) -> None:
    parts = member.name.removeprefix("./").split("/")
    if len(parts) > 16 or not all(NAME.fullmatch(part) for part in parts):
        raise LabError(f"the archive has a file with the name {member.name[:200]!r}")
    target = tree.joinpath(*parts[1:])
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
    elif member.isreg():
        if len(parts) == 1:
            raise LabError(f"the archive has {member.name!r} at its top, not in a directory")
        target.parent.mkdir(parents=True, exist_ok=True)
        content = tar.extractfile(member)
        assert content is not None
        with content, target.open("xb") as output:
            shutil.copyfileobj(content, output)
    else:
        raise LabError(f"the archive has {member.name!r}, which is neither a file nor a directory")


def publish(kernel: Kernel, directory: Path, *, with_source: bool = True) -> list[Path]:
    """Write the artefact, as a directory and as an archive, and its source into `directory`.

    Return what a publisher puts into one place. Without the source the publisher has to offer it otherwise.
    """
    if differing := kernel.differences():
        raise LabError(f"{kernel.directory} is not whole: {differing[0]}")
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".publish-", dir=directory) as place:
        work = Path(place)
        tree = work / kernel.name
        shutil.copytree(kernel.directory, tree, ignore=shutil.ignore_patterns(ORIGIN))
        archive = work / f"{kernel.name}.tar.xz"
        pack(tree, archive, kernel.name)
        write_digest(archive)
        made = [tree, archive, archive.with_name(f"{archive.name}.sha256")]
        if with_source:
            made += _source(kernel, work)
        return [_replace(each, directory) for each in made]


def _source(kernel: Kernel, work: Path) -> list[Path]:
    """Return the source's tarball, of the version of which the kernel was built, and its digest."""
    source = kernel.source
    tarball = work / source["file"]
    installed = INSTALLED / source["file"]
    if installed.is_file() and digest_of(installed) == source["sha256"]:
        shutil.copyfile(installed, tarball)
    else:
        words = ["--source", str(work), "--kernel", kernel.release, "--flavour", kernel.flavour]
        done = subprocess.run(["bash", str(BUILD), *words], stdout=subprocess.PIPE, check=False)
        if done.returncode != 0 or digest_of(tarball) != source["sha256"]:
            raise LabError(
                f"{source['package']} {source['version']}, of which {kernel.name} was built, is no"
                " longer to be had: build the kernel anew"
            )
    named = tarball.rename(work / f"{source['package']}_{source['version']}.tar.xz")
    write_digest(named)
    return [named, named.with_name(f"{named.name}.sha256")]


def _replace(made: Path, directory: Path) -> Path:
    target = directory / made.name
    if target.is_dir():
        shutil.rmtree(target)
    return made.rename(target)
