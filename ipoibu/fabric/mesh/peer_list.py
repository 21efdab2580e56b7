# SPDX-License-Identifier: BSD-2-Clause
"""The peers of a mesh as the operator lists them: HOST[:PORT], on the command line or in a file.

A thread checks the file every two seconds, reads it again when it has changed, and resolves the names
again every 30 s, or after 5 s when one had no address or a peer has gone. A name stands for all its
addresses.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.base.limits import MESH_FILE_S, MESH_PORT, MESH_RESOLVE_S, MESH_RESOLVE_SOON_S
from ipoibu.fabric.base import MeshOptions
from ipoibu.proto.machine.ratelimit import should_log
from ipoibu.wire.mesh import Locator

_log = logging.getLogger(__name__)

_FORM: Final = re.compile(
    r"(?:\[(?P<v6>[^]]+)\]|(?P<host>[^:\[\]\s\0]+))(?::(?P<port>[0-9]{1,5}))?"
)

Deliver = Callable[[set[Locator]], None]


def parse_peer(text: str) -> tuple[str, int]:
    """Read HOST[:PORT], an IPv6 address with a port in brackets; `UsageError` for anything else."""
    bare = _bare_ipv6(text)
    if bare is not None:
        return bare, MESH_PORT
    match = _FORM.fullmatch(text)
    if match is not None:
        host, port = match["v6"] or match["host"], int(match["port"] or MESH_PORT)
        is_host = _is_name(host) if match["host"] else _bare_ipv6(host) is not None
        if is_host and 0 < port < 1 << 16:
            return host, port
    raise UsageError(f"{text!r} is no peer: expected HOST, HOST:PORT or [IPV6]:PORT")


def _bare_ipv6(text: str) -> str | None:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        return None


def _is_name(text: str) -> bool:
    """Return whether the resolver accepts the name: for "a..b" it raises no `OSError` but another error."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def read_peers(path: Path) -> list[tuple[str, int]]:
    """Read one peer from each line; `#` begins a comment. `UsageError` names the line."""
    peers = []
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if text:
            try:
                peers.append(parse_peer(text))
            except UsageError as error:
                raise UsageError(f"{path}:{number}: {error}") from error
    return peers


def resolve(peers: Iterable[tuple[str, int]], failures: Counter[str]) -> set[Locator]:
    """Return all addresses of all names. `failures` counts how often a name had none in a row, for the
    log."""
    locators: set[Locator] = set()
    for host, port in peers:
        try:
            locators |= locators_of(host, port)
        except OSError as error:
            failures[host] += 1
            if should_log(failures[host]):
                _log.warning("peer %s: %s", host, error.strerror or error)
            continue
        failures.pop(host, None)
    return locators


def locators_of(host: str, port: int) -> set[Locator]:
    """Look a name up; `OSError`. Blocks."""
    return {
        Locator(ipaddress.ip_address(str(address[0]).partition("%")[0]), port)
        for family, _, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        if family in (socket.AF_INET, socket.AF_INET6)
    }


class PeerSource:
    """Calls `deliver` with the peers' addresses, on a thread of its own: soon, and after every change."""

    def __init__(self, options: MeshOptions, deliver: Deliver) -> None:
        """Read the peers and the file; `UsageError` names the fault."""
        self._given = [parse_peer(text) for text in options.peers]
        self._file = options.file
        self._deliver = deliver
        self._in_file: list[tuple[str, int]] = [] if self._file is None else read_peers(self._file)
        self._stamp = self._file_stamp()
        self._delivered: set[Locator] | None = None
        self._failures: Counter[str] = Counter()
        self._has_lost = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ipoibu-peers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop the thread, without waiting for a look-up to end."""
        self._stop.set()

    def replace(self, peers: Iterable[str]) -> None:
        """Take these peers in place of those that were given first; the thread looks soon."""
        self._given = [parse_peer(text) for text in peers]

    def note_lost(self) -> None:
        """Look the names up again soon: a peer has gone, and may be back at another address."""
        self._has_lost = True

    def _run(self) -> None:
        resolved_at, resolved = -MESH_RESOLVE_S, self._given
        while not self._stop.is_set():
            given = self._given  # a new list in every call of `replace`
            changed = self._read_again() or given is not resolved
            is_soon = self._failures or self._has_lost
            wait_s = MESH_RESOLVE_SOON_S if is_soon else MESH_RESOLVE_S
            if changed or time.monotonic() >= resolved_at + wait_s:
                self._has_lost = False
                locators = resolve([*given, *self._in_file], self._failures)
                resolved_at, resolved = time.monotonic(), given
                if locators != self._delivered and not self._stop.is_set():
                    self._delivered = locators
                    self._deliver(locators)
            self._stop.wait(MESH_FILE_S)

    def _file_stamp(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            seen = self._file.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size

    def _read_again(self) -> bool:
        """Read a changed file; keep the peers of the old one if the new file is wrong or missing."""
        stamp = self._file_stamp()
        if self._file is None or stamp in (None, self._stamp):
            return False
        self._stamp = stamp
        try:
            self._in_file = read_peers(self._file)
        except UsageError as error:
            _log.warning("%s; the peers stay as they were", error)
            return False
        return True
