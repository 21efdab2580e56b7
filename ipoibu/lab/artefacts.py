# SPDX-License-Identifier: BSD-2-Clause
"""Large files that the lab takes from elsewhere, kernels and userlands: where they are kept, and how they
come, each with its SHA-256.

A *source* is a file, a directory, or a URL of either (that of a directory ends with a slash). Beside the
file NAME there is NAME.sha256, as sha256sum prints it, unless the caller knows the digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import IO, Final

from ipoibu.lab.errors import LabError

# A source that lies is stopped here; the largest artefact has a tenth of this.
ARTEFACT_BYTES_MAX: Final = 1 << 30
SUM_BYTES_MAX: Final = 4096  # of a NAME.sha256
STALL_S: Final = 60.0  # a server that sends nothing for so long has gone
_CHUNK: Final = 1 << 20
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def cache_directory(kind: str) -> Path:
    """Return the directory of this user's cache that holds artefacts of `kind`; it may not be there."""
    if own := os.environ.get("IPOIBU_CACHE"):
        return Path(own) / kind
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "ipoibu" / kind
    try:
        return Path.home() / ".cache" / "ipoibu" / kind
    except RuntimeError as error:  # no HOME, and a user whom /etc/passwd does not name
        raise LabError("this user has no home: set IPOIBU_CACHE to a directory") from error


def is_url(source: str) -> bool:
    return re.match(r"[a-z]+://", source) is not None


def locate(source: str, name: str) -> str:
    """Return the file of `source`: `name` within it, if it is a directory."""
    if is_url(source):
        return source + name if source.endswith("/") else source
    return str(Path(source) / name) if Path(source).is_dir() else source


def fetch(source: str, name: str, directory: Path, sha256: str | None = None) -> Path:
    """Copy `name`, or the file that `source` is, into `directory`; return its path there.

    Raise LabError, and leave nothing, if it cannot be read or has another digest than `sha256` or
    the file beside it say.
    """
    file = locate(source, name)
    wanted = sha256 or expected_digest(file)
    if not _DIGEST.fullmatch(wanted):
        raise LabError(f"{wanted!r} is no SHA-256, which has 64 hexadecimal digits")
    directory.mkdir(parents=True, exist_ok=True)
    target = directory / Path(file).name
    fd, part = tempfile.mkstemp(prefix=".part-", dir=directory)
    try:
        with open(fd, "wb") as output, closing(_open(file)) as incoming:
            digest = _copy(incoming, output, file)
        if digest != wanted:
            raise LabError(f"{file} has the SHA-256 {digest}, expected {wanted}")
        Path(part).chmod(0o644)
        os.rename(part, target)
    except OSError as error:
        raise LabError(f"{file} cannot be fetched: {error}") from error
    finally:
        Path(part).unlink(missing_ok=True)
    return target


def expected_digest(file: str) -> str:
    """Return the digest that `file`.sha256 has for the file or URL."""
    beside = f"{file}.sha256"
    try:
        with closing(_open(beside)) as incoming:
            text = incoming.read(SUM_BYTES_MAX).decode("ascii", "replace")
    except OSError as error:
        raise LabError(f"{beside} cannot be read, and no --sha256 is given: {error}") from error
    found = _DIGEST.match(text)
    if found is None:
        raise LabError(f"{beside} does not begin with a SHA-256")
    return found.group()


def write_digest(file: Path) -> str:
    """Write `file`.sha256 beside the file; return the digest."""
    digest = digest_of(file)
    file.with_name(f"{file.name}.sha256").write_text(f"{digest}  {file.name}\n")
    return digest


def digest_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _open(file: str) -> IO[bytes]:
    if not is_url(file):
        return open(file, "rb")
    if not file.startswith(("https://", "http://", "file://")):
        raise LabError(f"{file}: expected https, http or file")
    try:
        return urllib.request.urlopen(file, timeout=STALL_S)  # type: ignore[no-any-return]
    except urllib.error.HTTPError as error:  # it is an open file, too
        error.close()
        raise


def _copy(incoming: IO[bytes], output: IO[bytes], file: str) -> str:
    """Copy to the end; return the digest."""
    digest = hashlib.sha256()
    size = 0
    while chunk := incoming.read(_CHUNK):
        size += len(chunk)
        if size > ARTEFACT_BYTES_MAX:
            raise LabError(f"{file} has more than {ARTEFACT_BYTES_MAX >> 20} MiB")
        digest.update(chunk)
        output.write(chunk)
    return digest.hexdigest()
