# SPDX-License-Identifier: BSD-2-Clause
"""Log lines as entries of systemd's journal, with fields, by its native protocol.

The protocol is https://systemd.io/JOURNAL_NATIVE_PROTOCOL/: one datagram for each entry. Besides the
journal's own fields an entry has IPOIBU_INTERFACE and, if it concerns one peer, IPOIBU_PEER.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Iterator
from typing import Final

from ipoibu.base.exhaustion import EXHAUSTION

JOURNAL: Final = "/run/systemd/journal/socket"

# Least level of each priority of syslog(3)
_PRIORITIES: Final = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
_DEBUG: Final = 7


def priority_of(level: int) -> int:
    return next((priority for least, priority in _PRIORITIES if level >= least), _DEBUG)


class JournalHandler(logging.Handler):
    """Sends entries; `fallback` gets the lines that the journal does not take.

    `interface` is the one that lines without another interface belong to.
    """

    def __init__(self, interface: str, fallback: logging.Handler) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(message)s"))  # `basicConfig` would set another one
        self._interface = interface
        self._fallback = fallback
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            entry = b"".join(_field(name, value) for name, value in self._fields(record))
            self._socket.sendto(entry, JOURNAL)
        except OSError:
            self._fallback.handle(record)
        except Exception as error:
            if not EXHAUSTION.is_one(error):
                self.handleError(record)

    def close(self) -> None:
        self._socket.close()
        super().close()

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, str]]:
        text = self.format(record)
        yield "MESSAGE", text
        yield "PRIORITY", str(priority_of(record.levelno))
        yield "SYSLOG_IDENTIFIER", "ipoibu"
        yield "CODE_FILE", record.pathname
        yield "CODE_LINE", str(record.lineno)
        yield "IPOIBU_INTERFACE", self._interface_of(text)
        peer = getattr(record, "peer", None)
        if peer is not None:
            yield "IPOIBU_PEER", str(peer)

    def _interface_of(self, text: str) -> str:
        """A line of a child begins with the child's name."""
        name = text.partition(": ")[0]
        return name if name.startswith(f"{self._interface}.") else self._interface


def _field(name: str, value: str) -> bytes:
    raw = value.encode(errors="surrogateescape")
    if b"\n" in raw:
        return name.encode() + b"\n" + struct.pack("<Q", len(raw)) + raw + b"\n"
    return name.encode() + b"=" + raw + b"\n"
