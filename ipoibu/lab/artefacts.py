# SPDX-License-Identifier: BSD-2-Clause
"""Large files that the lab takes from elsewhere, kernels and userlands: where they are kept, how they come,
each with its SHA-256, how they are packed and unpacked, and whether they are whole.

A *source* is a file, a directory, or a URL of either (that of a directory ends with a slash). Beside the
file NAME there is NAME.sha256, as sha256sum prints it, unless the caller knows the digest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import re
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Final, Self

from ipoibu.lab.errors import LabError

# A source that lies is stopped here; the largest artefact has a tenth of this.
ARTEFACT_BYTES_MAX: Final = 1 << 30
SUM_BYTES_MAX: Final = 4096  # of a NAME.sha256
STALL_S: Final = 60.0  # a server that sends nothing for so long has gone
HEADER_BYTES_MAX: Final = 1 << 16  # of a long name or of other words about one member of an archive
DICTIONARY_BYTES_MAX: Final = 128 << 20  # of xz
_CHUNK: Final = 1 << 20
_HEADERS: Final = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)
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


def pack(tree: Path, archive: Path, top: str | None = None) -> None:
    """Write the files and links below `tree` into a tar archive, below the directory `top` if it has one.

    They come in order, without times and owners, so that the same files give the same bytes. The name of the
    archive ends in .tar.xz or .tar.gz: for files of hundreds of megabytes xz needs minutes.
    """
    with (
        archive.open("wb") as file,
        _packer(archive, file) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in [*([tree] if top else []), *sorted(tree.rglob("*"))]:
            member = tarfile.TarInfo(str(Path(top or "") / path.relative_to(tree)))
            member.mode = 0o755
            if path.is_symlink():
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(member)
            elif path.is_dir():
                member.type = tarfile.DIRTYPE
                tar.addfile(member)
            else:
                status = path.stat()
                member.size = status.st_size
                member.mode = 0o755 if status.st_mode & 0o100 else 0o644
                with path.open("rb") as content:
                    tar.addfile(member, content)


def _packer(archive: Path, file: IO[bytes]) -> Any:
    if archive.suffix == ".xz":
        return lzma.open(file, "wb", preset=6)
    return gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0)


@contextmanager
def open_archive_untrusted(archive: Path, bytes_max: int) -> Iterator[tarfile.TarFile]:
    """Read a tar archive from its beginning to its end: packed by xz, by gzip, or not.

    LabError, in the block, too, for what is no archive or has more than `bytes_max` unpacked.
    """
    try:
        with (
            archive.open("rb") as packed,
            tarfile.open(
                fileobj=_Bounded(packed, archive.name, bytes_max), mode="r|", tarinfo=_Member
            ) as tar,
        ):
            yield tar
    except (
        tarfile.TarError,
        lzma.LZMAError,
        zlib.error,
        EOFError,
        OSError,
        ValueError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise LabError(f"{archive.name} cannot be unpacked: {error}") from error


class _Member(tarfile.TarInfo):
    """A member of an archive. tarfile keeps what one says about another in memory, so that is bounded."""

    # Every version of tarfile calls this between reading a header and reading what that announces. Python
    # 3.11.2-6+deb12u9 no longer calls `frombuf` of a subclass.
    def _proc_member(self, tar: tarfile.TarFile) -> Self:
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has a sparse file")
        if self.type in _HEADERS and self.size > HEADER_BYTES_MAX:
            raise tarfile.ReadError(f"it has a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc,no-any-return]

    def _proc_gnusparse_10(self, *_: object) -> None:  # the map of a sparse file, in its content
        raise tarfile.ReadError("it has a sparse file")


class _Bounded(io.RawIOBase):
    """A file's content without its compression, up to a limit."""

    def __init__(self, packed: IO[bytes], name: str, bytes_max: int) -> None:
        self._name = name
        self._left = self._bytes_max = bytes_max
        head = packed.peek(6)[:6] if isinstance(packed, io.BufferedReader) else b""
        self._chunks = _chunks(packed, head)
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Return exactly `size` bytes, fewer at the end only, as tarfile wants."""
        parts = [self._rest]
        have = len(self._rest)
        while have < size and (chunk := next(self._chunks, b"")):
            self._left -= len(chunk)
            if self._left < 0:
                raise LabError(f"{self._name} has more than {self._bytes_max >> 20} MiB")
            parts.append(chunk)
            have += len(chunk)
        whole = b"".join(parts)
        self._rest = whole[size:]
        return whole[:size]


def _chunks(packed: IO[bytes], head: bytes) -> Iterator[bytes]:
    if head == b"\xfd7zXZ\x00":
        xz = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY_BYTES_MAX)
        while not xz.eof:
            incoming = packed.read(_CHUNK) if xz.needs_input else b""
            if xz.needs_input and not incoming:
                raise EOFError("it ends too early")
            if chunk := xz.decompress(incoming, _CHUNK):
                yield chunk
    elif head[:2] == b"\x1f\x8b":
        gzip = zlib.decompressobj(31)
        pending = b""
        while not gzip.eof:
            pending = pending or packed.read(_CHUNK)
            if not pending:
                raise EOFError("it ends too early")
            if chunk := gzip.decompress(pending, _CHUNK):
                yield chunk
            pending = gzip.unconsumed_tail
    else:
        while chunk := packed.read(_CHUNK):
            yield chunk


def differences(tree: Path, wanted: Mapping[str, str], besides: Collection[str] = ()) -> list[str]:
    """Return what differs from `wanted`, the digest of each file below `tree` but of those `besides`."""
    found = dict(digests(tree, besides))
    changed = {name for name, digest in found.items() if wanted.get(name, digest) != digest}
    return [
        *(f"changed: {name}" for name in sorted(changed)),
        *(f"missing: {name}" for name in sorted(wanted.keys() - found.keys())),
        *(f"superfluous: {name}" for name in sorted(found.keys() - wanted.keys())),
    ]


def digests(tree: Path, besides: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Return each file below `tree`, sorted, with its digest: of a link that of its target's name, and
    nothing of a device."""
    for path in sorted(tree.rglob("*")):
        name = str(path.relative_to(tree))
        if name in besides:
            continue
        if path.is_symlink():
            yield name, hashlib.sha256(os.readlink(path).encode()).hexdigest()
        elif not path.is_dir():
            yield name, digest_of(path) if path.is_file() else ""
