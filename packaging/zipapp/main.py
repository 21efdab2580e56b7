# SPDX-License-Identifier: BSD-2-Clause
"""The start of ipoibu-lab.pyz: unpacks it once into the cache, since machines read files, and calls it."""

import hashlib
import os
import sys
import tempfile
import zipfile
from pathlib import Path

if sys.version_info < (3, 11):  # noqa: UP036
    sys.exit("ipoibu: Python 3.11 or newer is needed, this is " + sys.version.split()[0])

ARCHIVE = Path(sys.argv[0]).resolve()


def cache() -> Path:
    if own := os.environ.get("IPOIBU_CACHE"):
        return Path(own)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "ipoibu"
    try:
        return Path.home() / ".cache/ipoibu"
    except RuntimeError:
        sys.exit("ipoibu: this user has no home: set IPOIBU_CACHE to a directory")


def unpacked() -> Path:
    """Return the directory with the files of this archive."""
    place = cache() / "lab-program"
    target = place / hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()[:16]
    if not target.exists():
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".unpack-", dir=place) as work:
                tree = Path(work) / "tree"
                with zipfile.ZipFile(ARCHIVE) as archive:
                    for member in archive.infolist():
                        file = Path(archive.extract(member, tree))
                        file.chmod(member.external_attr >> 16 & 0o777)
                if not target.exists():
                    tree.rename(target)
        except OSError as error:
            if not target.exists():  # else another process was faster
                sys.exit(f"ipoibu: {place}: {error}; set IPOIBU_CACHE to a directory")
    return target


if __name__ == "__main__":
    sys.path[0] = str(unpacked())
    from ipoibu.cli.main import main

    sys.exit(main())
