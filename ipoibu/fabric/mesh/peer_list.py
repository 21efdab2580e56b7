# SPDX-License-Identifier: BSD-2-Clause
"""Where the peers of a mesh are, as an operator says it: HOST[:PORT], on the command line or in a file.

A file is looked at every two seconds and read again when it has changed; a name stands for all its
addresses, and is resolved anew now and then. Resolving takes its time, so there is a thread for it.
"""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ipoibu.errors import UsageError
from ipoibu.fabric.base import MeshOptions
from ipoibu.limits import MESH_FILE_S, MESH_PORT, MESH_RESOLVE_S
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
    found = _FORM.fullmatch(text)
    if found is not None:
        host, port = found["v6"] or found["host"], int(found["port"] or MESH_PORT)
        is_host = _is_name(host) if found["host"] else _bare_ipv6(host) is not None
        if is_host and 0 < port < 1 << 16:
            return host, port
    raise UsageError(f"{text!r} is no peer: expected HOST, HOST:PORT or [IPV6]:PORT")


def _bare_ipv6(text: str) -> str | None:
    try:
        return str(ipaddress.IPv6Address(text))
    except ValueError:
        return None


def _is_name(text: str) -> bool:
    """Whether the resolver can be asked for it: "a..b" it answers with no `OSError`."""
    try:
        text.encode("idna")
    except UnicodeError:
        return False
    return True


def read_peers(path: Path) -> list[tuple[str, int]]:
    """One peer a line; `#` begins a comment. `UsageError` names the line."""
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


def resolve(peers: Iterable[tuple[str, int]]) -> set[Locator]:
    """All addresses of all names; a name that has none now is logged."""
    found = set()
    for host, port in peers:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            _log.warning("peer %s: %s", host, error.strerror or error)
            continue
        for family, _, _, _, address in infos:
            if family in (socket.AF_INET, socket.AF_INET6):
                ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
                found.add(Locator(ip, port))
    return found


class PeerSource:
    """Tells `deliver`, on a thread of its own, where the peers are: first soon, then at every change."""

    def __init__(self, options: MeshOptions, deliver: Deliver) -> None:
        """`UsageError` for a peer or a file that cannot be read."""
        self._given = [parse_peer(text) for text in options.peers]
        self._file = options.file
        self._deliver = deliver
        self._in_file: list[tuple[str, int]] = [] if self._file is None else read_peers(self._file)
        self._stamp = self._look()
        self._told: set[Locator] | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ipoibu-peers", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Returns at once; a look-up that is under way ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        resolved_at = -MESH_RESOLVE_S
        while not self._stop.is_set():
            changed = self._read_again()
            if changed or time.monotonic() >= resolved_at + MESH_RESOLVE_S:
                found = resolve([*self._given, *self._in_file])
                resolved_at = time.monotonic()
                if found != self._told and not self._stop.is_set():
                    self._told = found
                    self._deliver(found)
            self._stop.wait(MESH_FILE_S)

    def _look(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            seen = self._file.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size

    def _read_again(self) -> bool:
        """What was read before stays when the new file is wrong, or gone."""
        stamp = self._look()
        if self._file is None or stamp in (None, self._stamp):
            return False
        self._stamp = stamp
        try:
            self._in_file = read_peers(self._file)
        except UsageError as error:
            _log.warning("%s; the peers stay as they were", error)
            return False
        return True
