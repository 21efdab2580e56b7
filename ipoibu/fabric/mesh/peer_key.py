# SPDX-License-Identifier: BSD-2-Clause
"""The key that the hosts of a link share, and the file that holds it: `--peer-key-file`."""

from __future__ import annotations

import functools
import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.base.errors import NotPermitted, UsageError
from ipoibu.wire.mesh_key import KEY_LEN

_FORM: Final = re.compile(rf"[0-9a-fA-F]{{{2 * KEY_LEN}}}")
_FILE_MAX_BYTES: Final = 4096
_MAKE: Final = "make one: ipoibu genkey FILE"


@dataclass(frozen=True)
class PeerKey:
    """The key in a file. Logs and messages never show the key itself."""

    path: Path

    @functools.cached_property
    def secret(self) -> bytes:
        """32 bytes, as the file has them when a program first asks this object, or as `keep` read them.
        `UsageError` names the file, the line and the remedy."""
        return _kept[self.path] if self.path in _kept else _read(self.path)

    def keep(self) -> None:
        """Read the file for this object and all others with its path, for the life of the process, which is
        about to lose the right to read it. `UsageError`."""
        _kept[self.path] = self.secret


def new_key() -> str:
    """Return the text of a new key."""
    return secrets.token_hex(KEY_LEN)


def write_new(path: Path) -> None:
    """Make a file with a new key that its owner alone may read; `UsageError` if the file is there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(f"{new_key()}\n")
    except FileExistsError as error:
        raise UsageError(f"{path} is there already: remove it if no host needs its key") from error
    except PermissionError as error:
        raise NotPermitted(f"{path}: this user cannot make it") from error
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


_kept: dict[Path, bytes] = {}


def _read(path: Path) -> bytes:
    """Read a file with one line of 64 hexadecimal digits; `#` begins a comment."""
    try:
        text = _text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    found = None
    for number, line in enumerate(text.splitlines(), 1):
        word = line.partition("#")[0].strip()
        if not word:
            continue
        if found is not None:
            raise UsageError(f"{path}:{number}: a second key: expected one")
        if not _FORM.fullmatch(word):
            raise UsageError(
                f"{path}:{number}: no key: expected {2 * KEY_LEN} hexadecimal digits; {_MAKE}"
            )
        found = bytes.fromhex(word)
    if found is None:
        raise UsageError(f"{path}: the file has no key; {_MAKE}")
    return found


def _text(path: Path) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO would block
    with open(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise UsageError(f"{path}: not a regular file")
        if status.st_mode & stat.S_IRWXO:
            raise UsageError(f"{path}: every user may read or change the key: chmod o= {path}")
        data = file.read(_FILE_MAX_BYTES + 1)
    if len(data) > _FILE_MAX_BYTES:
        raise UsageError(f"{path}: more than {_FILE_MAX_BYTES} bytes: this is no key file")
    return data.decode()
