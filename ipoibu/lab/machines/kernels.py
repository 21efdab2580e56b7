# SPDX-License-Identifier: BSD-2-Clause
"""The kernels of machines in this user's cache, which `kernel/build` has built or `kernel_archive` has
fetched: which there are, which one a machine boots, and whether they are whole.

Each is an artefact: a directory with the kernel, its configuration, its recipe and a manifest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from ipoibu.lab.artefacts import cache_directory, differences
from ipoibu.lab.errors import LabError

KIND: Final = "lab-kernel"
RECIPES: Final = Path(__file__).resolve().parent / "kernel"
BUILD: Final = RECIPES / "build"
FLAVOURS: Final = ("lean", "full")
NEWEST: Final = "newest"
NO_SUCH_KERNEL: Final = 3  # exit status of `kernel/build`: another release may do
BY_PTRACE: Final = ("6.1", "6.12")  # these know no other way to run the processes of a machine

MANIFEST: Final = "manifest.json"
ORIGIN: Final = "fetched-from"  # in the directory of a kernel that was fetched
FORMAT: Final = 1
MANIFEST_BYTES_MAX: Final = 1 << 20
NAME: Final = re.compile(r"(?!\.)[A-Za-z0-9._+-]{1,100}")
_PATH: Final = re.compile(rf"{NAME.pattern}(?:/{NAME.pattern}){{0,15}}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Kernel:
    """An artefact. What its manifest has was checked by `read_manifest_untrusted`."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def path(self) -> Path:
        """The program that a machine's host runs."""
        return self.directory / "linux"

    @property
    def name(self) -> str:
        """Its name, such as linux-6.12.117-lean."""
        return str(self.manifest["name"])

    @property
    def release(self) -> str:
        return str(self.manifest["release"])

    @property
    def flavour(self) -> str:
        return str(self.manifest["flavour"])

    @property
    def source(self) -> dict[str, Any]:
        """The source package: its `package`, `version`, `file` and `sha256`."""
        return dict(self.manifest["source"])

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of each file but the manifest."""
        return dict(self.manifest["files"])

    @property
    def fetched_from(self) -> str | None:
        """The source that the user named; None if the kernel was built here."""
        try:
            return (self.directory / ORIGIN).read_text("utf-8").strip()
        except OSError:
            return None

    @property
    def is_current(self) -> bool:
        """True if this package builds it from the same patches and configuration."""
        return self.release in releases() and self.manifest["recipe"] == recipe(
            self.release, self.flavour
        )

    def differences(self) -> list[str]:
        """Return what differs from the manifest: nothing, if the artefact is whole."""
        return differences(self.directory, self.files, (MANIFEST, ORIGIN))

    def describe(self) -> dict[str, Any]:
        """Return what `ipoibu lab kernel list --json` prints."""
        return {
            "name": self.name,
            "release": self.release,
            "flavour": self.flavour,
            "version": self.manifest["version"],
            "path": str(self.path),
            "sha256": self.files["linux"],
            "source": f"{self.source['package']} {self.source['version']}",
            "fetched_from": self.fetched_from,
            "current": self.is_current,
        }

    @property
    def _age(self) -> tuple[list[int], int]:
        """Sort key: the version, then the time at which it came."""
        numbers = [int(part) for part in re.findall(r"\d+", self.source["version"])]
        return numbers, self.directory.stat().st_mtime_ns


def read_manifest_untrusted(directory: Path) -> dict[str, Any]:
    """Return the manifest of an artefact; LabError if it is none that this version can use."""
    try:
        with (directory / MANIFEST).open("rb") as file:
            text = file.read(MANIFEST_BYTES_MAX + 1)
        if len(text) > MANIFEST_BYTES_MAX:
            raise LabError(f"{directory} has a manifest of more than {MANIFEST_BYTES_MAX} bytes")
        manifest = json.loads(text)
        if manifest["format"] != FORMAT:
            raise LabError(
                f"{directory} is a kernel of format {manifest['format']!r}, not {FORMAT}"
            )
        source = manifest["source"]
        words = [manifest[name] for name in ("name", "release", "flavour", "version", "recipe")]
        words += [source["package"], source["file"]]
        files = manifest["files"]
        is_fit = (
            all(isinstance(word, str) and NAME.fullmatch(word) for word in words)
            and re.fullmatch(r"[\w.+~:-]{1,100}", source["version"], re.ASCII)
            and manifest["architecture"] == "x86_64"
            and "linux" in files
            and not {MANIFEST, ORIGIN} & set(files)
            and all(_PATH.fullmatch(name) for name in files)
            and all(_DIGEST.fullmatch(digest) for digest in [source["sha256"], *files.values()])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise LabError(f"{directory} is no kernel's artefact: {error!r}") from error
    if not is_fit:
        raise LabError(f"{directory} has a manifest that no build writes")
    return dict(manifest)


def load(directory: Path) -> Kernel:
    """Return the artefact in `directory`; LabError if there is none."""
    return Kernel(directory, read_manifest_untrusted(directory))


def releases() -> list[str]:
    """Return the releases of Linux that can be built, the newest last."""
    names = [each.name for each in RECIPES.iterdir() if each.name[0].isdigit()]
    return sorted(names, key=lambda name: [int(part) for part in name.split(".")])


def default_releases() -> list[str]:
    """Return the releases for who asks for none: each for where those before it cannot be built."""
    return (RECIPES / "default").read_text("ascii").split()


def default_release() -> str:
    return default_releases()[0]


def chosen(release: str | None = None, flavour: str | None = None) -> tuple[str | None, str]:
    """Return the release, or None if nobody has asked for one, and the flavour.

    The environment chooses what the arguments leave open.
    """
    release = release or os.environ.get("IPOIBU_LAB_KERNEL") or None
    flavour = flavour or os.environ.get("IPOIBU_LAB_FLAVOUR") or FLAVOURS[0]
    if flavour not in FLAVOURS:
        raise LabError(f"no flavour {flavour}; there are: {' '.join(FLAVOURS)}")
    if release == NEWEST:
        release = releases()[-1]
    return release, flavour


@cache
def recipe(release: str, flavour: str) -> str:
    """Return the digest of what this package adds to the source of a kernel."""
    words = ["bash", str(BUILD), "--recipe", "--kernel", release, "--flavour", flavour]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()


def cached(release: str | None = None, flavour: str | None = None) -> list[Kernel]:
    """Return the kernels of the cache, or those of a release and a flavour; the newest first."""
    found = [
        kernel
        for kernel in _all_cached()
        if release in (None, kernel.release) and flavour in (None, kernel.flavour)
    ]
    return sorted(found, key=lambda kernel: kernel._age, reverse=True)


def _all_cached() -> Iterator[Kernel]:
    for manifest in cache_directory(KIND).glob(f"[!.]*/{MANIFEST}"):
        try:
            yield load(manifest.parent)
        except LabError:  # of another version of this package; `verify` names it
            continue


def best(release: str | None = None, flavour: str | None = None) -> Kernel | None:
    """Return the kernel of the cache that a machine boots; None if there is none.

    Who asks for no release gets the default one, or the next where a build has failed, or else the newest
    that was fetched.
    """
    release, flavour = chosen(release, flavour)
    if release is not None:
        return _best_of(cached(release, flavour))
    for each in default_releases():
        kernel = _best_of(cached(each, flavour))
        if kernel is not None:
            return kernel
        if not _failed(each, flavour).exists():
            break
    return _best_of([kernel for kernel in cached(None, flavour) if kernel.fetched_from is not None])


def _failed(release: str, flavour: str) -> Path:
    """Return the file that says that a build of this recipe has failed here."""
    return cache_directory(KIND) / f"failed-{recipe(release, flavour)}"


def _best_of(kernels: Sequence[Kernel]) -> Kernel | None:
    """Return the first kernel of this package's recipe; or else the first that was fetched, which the user
    wanted, while a built one of another recipe is out of date."""
    current = [kernel for kernel in kernels if kernel.is_current]
    fetched = [kernel for kernel in kernels if kernel.fetched_from is not None]
    return next(iter([*current, *fetched]), None)


def booted_release() -> str:
    """Return the release of the kernel that a machine boots, now or when it is built."""
    kernel = best()
    return chosen()[0] or default_release() if kernel is None else kernel.release


def find_kernel(release: str | None = None, flavour: str | None = None) -> Path:
    """Return the lab kernel, building it first when there is none (minutes; progress on stderr)."""
    kernel = best(release, flavour)
    if kernel is None:
        return build(release, flavour).path
    if not kernel.is_current:
        print(
            f"lab-kernel: {kernel.name} was fetched for another version of ipoibu: fetch it anew",
            file=sys.stderr,
        )
    return kernel.path


def build(release: str | None = None, flavour: str | None = None) -> Kernel:
    """Build the kernel that this package makes of the newest source, unless it is in the cache.

    Who asks for no release gets the first default one that the archive has and that builds; machines boot
    that one until a build of those before it succeeds. The build ends with the thread that has asked for it.
    """
    release, flavour = chosen(release, flavour)
    candidates = default_releases() if release is None else [release]
    for each, following in zip(candidates, [*candidates[1:], None], strict=True):
        status, path = _run_build(each, flavour)
        if status == 0:
            _failed(each, flavour).unlink(missing_ok=True)
            return load(path.parent)
        if status != NO_SUCH_KERNEL or following is None:
            break
        _failed(each, flavour).touch()
        print(
            f"lab-kernel: NO LINUX {each}, for the reason above: machines boot {following}"
            f" until `ipoibu lab kernel build` has built {each}",
            file=sys.stderr,
            flush=True,
        )
    raise LabError(f"{BUILD} failed with status {status}")


def _run_build(release: str, flavour: str) -> tuple[int, Path]:
    """Return the exit status of `kernel/build`, and the path that it has printed."""
    done = subprocess.run(
        [*("setpriv", "--pdeathsig", "TERM", "bash", str(BUILD)), *_words(release, flavour)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, Path(done.stdout.strip())


def check_kernel(release: str | None = None, flavour: str | None = None) -> tuple[int, str]:
    """Return 0 and "fetched PATH" or "built PATH"; if the cache has no kernel, the exit status and the
    last line of `build --check`, or that this host builds none."""
    kernel = best(release, flavour)
    if kernel is not None:
        said = f"{'built' if kernel.fetched_from is None else 'fetched'} {kernel.path}"
        if chosen(release)[0] is None and kernel.release in default_releases()[1:]:
            said += f" (Linux {default_release()} did not build; this tries again: ipoibu lab kernel build)"
        return 0, said
    if shutil.which("apt-get") is None:
        return 1, "no kernel is here, and one is built where Debian's apt is"
    words = ["bash", str(BUILD), "--check", *_words(release, flavour)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout or done.stderr).strip().rpartition("\n")[2]


def _words(release: str | None, flavour: str | None) -> list[str]:
    release, flavour = chosen(release, flavour)
    return [*(() if release is None else ("--kernel", release)), "--flavour", flavour]
