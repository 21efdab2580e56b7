# SPDX-License-Identifier: BSD-2-Clause
"""The control socket: a Unix stream with one JSON object per line, for each request and answer.

    {"command": "show"}   ->   {"ok": true, "result": {...}}   or   {"ok": false, "error": "..."}

While a request takes time, or a monitor has no event, a line `{"working": true}` every CONTROL_WORKING_S
tells a daemon that works from one that is stopped.

After its answer, `capture` streams: a JSON line `{"frames", "bytes", "dropped"}` and that many
bytes of pcap records, at least every HEARTBEAT_S, until the client shuts its side down; the last
line has `end`.

After its answer, `monitor` streams a JSON line for each event (`daemon/control/event_streams.py`) until the
client shuts its side down.

Only the daemon's user and root may connect. Every request, answer and wait is bounded, so that no
client can delay the daemon or another client; the client that keeps the server waiting the longest makes
room for a new one. The data path does not depend on the control socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.base.exhaustion import EXHAUSTION
from ipoibu.base.limits import (
    CAPTURE_PENDING_BYTES,
    CAPTURES_MAX,
    CONTROL_CLIENTS_MAX,
    CONTROL_WORKING_S,
    STATUS_PAGE,
)
from ipoibu.daemon.control.event_streams import WORKING, Drain, EventStreams
from ipoibu.daemon.control.pcap import SNAPLEN_BYTES, SNAPLEN_MIN_BYTES, record
from ipoibu.daemon.control.socket_paths import (
    make_namespace_dir,
    namespace_dir,
    outside_link,
    remove_empty,
    remove_namespace_dir,
    socket_path,
)
from ipoibu.daemon.metrics.metrics import observe
from ipoibu.daemon.process.client_places import ClientPlaces
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.namespace import Namespace
from ipoibu.host.tun import NameTaken

if TYPE_CHECKING:  # commands that only ask a daemon do not load the core
    from ipoibu._core import CapturedFrame

REQUEST_MAX_BYTES: Final = 64 * 1024
IDLE_S: Final = 60.0  # the server drops a client that sends no request for so long
WRITE_S: Final = 30.0  # the server drops a client that does not read its answer for so long
HEARTBEAT_S: Final = 0.25

_log = logging.getLogger(__name__)


# A command that changes something, on the event loop; it gets the unchecked request.
Action = Callable[[Mapping[str, Any]], Awaitable[object]]


class ControlServer:
    """Serves one endpoint at `path`. Call `start` and `close` on the event loop's thread.

    `executor` runs the queries, which may wait for the engine's thread; `actions` are further
    commands. `mtu` returns the MTU of the kernel's interface, if there is one.
    """

    def __init__(
        self,
        name: str,
        endpoint: EndpointContract,
        executor: Executor,
        actions: Mapping[str, Action] | None = None,
        *,
        mtu: Callable[[], int] | None = None,
    ) -> None:
        self.path = socket_path(name)
        self._name = self._first_name = name
        self.parent: str | None = None  # the parent's new name, if it has one
        self._link: Path | None = None  # in the namespace of the start, once the interface has left
        self._endpoint = endpoint
        self._executor = executor
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.Task[None]] = set()
        self._places = ClientPlaces(CONTROL_CLIENTS_MAX, asyncio.Task[None].cancel)
        self._captures = 0
        self._queries: dict[str, Callable[[], object]] = {
            "show": self._show,
            "neigh": endpoint.neighbours,
            "mcast": endpoint.groups,
            "conn": endpoint.connections,
            "peers": endpoint.peers,
            "guests": endpoint.guests,
            "stats": endpoint.stats,
            "path": endpoint.paths,
            "metrics": lambda: self._with_mtu(observe(endpoint)),
        }
        self._mtu = mtu
        self._actions = dict(actions or {})
        self._streams = EventStreams(name, endpoint, executor, self._drain)

    def _show(self) -> dict[str, Any]:
        own = {"name": self._name, "pid": os.getpid()}
        renamed = {} if self.parent is None else {"parent": self.parent}
        return {**self._with_mtu(self._endpoint.show()), **own, **renamed}

    def _with_mtu(self, shown: dict[str, Any]) -> dict[str, Any]:
        """Give the MTU of the kernel's interface, which an administrator may set below the link's."""
        return shown if self._mtu is None else {**shown, "mtu": self._mtu()}

    async def start(self) -> None:
        """Listen. Replaces the socket of a dead daemon; raises `NameTaken` if the daemon lives."""
        make_namespace_dir()
        if _answers(self.path):
            raise NameTaken(self._name)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()
            listener.bind(str(self.path))
            self.path.chmod(0o600)
            self._server = await asyncio.start_unix_server(
                self._accept, sock=listener, limit=REQUEST_MAX_BYTES
            )
        except OSError as error:
            listener.close()
            raise IpoibuError(f"{self.path}: {os.strerror(error.errno or 0)}") from error

    async def close(self) -> None:
        """Stop listening, end every client, remove the socket. Safe to repeat."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        for client in self._clients:
            client.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        self._remove()
        remove_namespace_dir()

    def move(self, name: str, namespace: Namespace) -> None:
        """Move the socket to the interface's new name and namespace.

        The first namespace keeps a link NAME@PID, with the first name of the interface.
        """
        self._name = name
        try:
            if namespace.is_here:
                path = socket_path(name)
                make_namespace_dir()
            else:
                path = socket_path(name, namespace.inode())
                make_namespace_dir(namespace=namespace.inode())
            if path == self.path:
                return
            self._rename(path)
            before, self.path = self.path, path
            self._remove_link()
            if not namespace.is_here:
                self._link = outside_link(namespace_dir(), self._first_name, os.getpid())
                self._link.symlink_to(path)
        except (OSError, IpoibuError) as error:
            _log.warning("%s: cannot move the control socket from %s: %s", name, self.path, error)
            return
        if before.parent != namespace_dir():
            remove_empty(before.parent)

    def _rename(self, path: Path) -> None:
        try:
            self.path.rename(path)
        except OSError:
            if path.parent != self.path.parent:
                remove_empty(path.parent)
            raise

    def _remove(self) -> None:
        self._remove_link()
        with contextlib.suppress(OSError):
            self.path.unlink()
        remove_empty(self.path.parent)

    def _remove_link(self) -> None:
        if self._link is not None:
            with contextlib.suppress(OSError):
                self._link.unlink()
            self._link = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            refusal = self._refusal(task, writer.get_extra_info("socket"))
            if refusal is None:
                await self._serve(reader, writer)
            else:
                await self._answer(writer, {"ok": False, "error": refusal})
        except asyncio.CancelledError:
            if self._server is not None and writer.transport.get_write_buffer_size() == 0:
                text = f"more than {CONTROL_CLIENTS_MAX} clients at a time, and this one was idle"
                writer.write(_encode({"ok": False, "error": text}))
            else:  # the daemon ends, or the client does not read
                writer.transport.abort()
        except (OSError, TimeoutError):
            # The client went away or keeps us waiting: send nothing more.
            writer.transport.abort()
        finally:
            self._clients.discard(task)
            self._places.leave(task)
            writer.close()

    def _refusal(self, task: asyncio.Task[None], client: socket.socket) -> str | None:
        raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, uid, _ = struct.unpack("=iII", raw)
        if uid not in (0, os.geteuid()):
            _log.warning("the control socket refused user %d", uid)
            return "only the owner of this interface and root may connect"
        if not self._places.enter(task):
            return f"more than {CONTROL_CLIENTS_MAX} clients at a time; try again later"
        return None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                with self._waiting():
                    async with asyncio.timeout(IDLE_S):
                        line = await reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                text = f"a request has at most {REQUEST_MAX_BYTES} bytes"
                await self._answer(writer, {"ok": False, "error": text})
                return
            except asyncio.IncompleteReadError:
                return
            try:
                command, request = _parse_untrusted(line)
                if command == "capture":
                    await self._capture(request, reader, writer)
                    return
                if command == "monitor":
                    begin = partial(writer.write, _encode({"ok": True, "result": None}))
                    await self._streams.serve(reader, writer, begin)
                    return
                answer = await self._working(writer, self._query(command, request))
            except IpoibuError as error:
                answer = _encode({"ok": False, "error": str(error)})
            except (OSError, TimeoutError):
                raise
            except Exception as error:
                if EXHAUSTION.is_one(error):
                    return
                # Report the defect to the client; the interface goes on.
                text = f"internal error: {type(error).__name__}: {error}"
                _log.error("%s: %s", self._name, text)
                answer = _encode({"ok": False, "error": text})
            await self._send(writer, answer)

    async def _working(
        self, writer: asyncio.StreamWriter, query: Coroutine[Any, Any, bytes]
    ) -> bytes:
        """Return what the query returns; tell the client meanwhile that it runs."""
        task = asyncio.create_task(query)
        try:
            while not (await asyncio.wait({task}, timeout=CONTROL_WORKING_S))[0]:
                if not writer.is_closing():
                    writer.write(WORKING)
            return task.result()
        finally:
            if task.cancel():
                await asyncio.wait({task})

    async def _query(self, command: str, request: dict[str, Any]) -> bytes:
        action = self._actions.get(command)
        if action is not None:
            return _encode({"ok": True, "result": await action(request)})
        query = self._queries.get(command)
        if query is None:
            known = ", ".join([*self._queries, *self._actions])
            raise UsageError(f"unknown command {command!r} (known: {known})")
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._executor, lambda: _encode_result(query())
            )
        except OSError as error:  # of the query, as without a free descriptor; not of the client
            raise IpoibuError(error.strerror or str(error)) from error

    async def _answer(self, writer: asyncio.StreamWriter, answer: dict[str, Any]) -> None:
        await self._send(writer, _encode(answer))

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        writer.write(data)
        async with asyncio.timeout(WRITE_S):
            await self._drain(writer)

    def _waiting(self) -> contextlib.AbstractContextManager[None]:
        task = asyncio.current_task()
        assert task is not None
        return self._places.waiting(task)

    async def _drain(self, writer: asyncio.StreamWriter) -> None:
        with self._waiting():
            await writer.drain()

    async def _capture(
        self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        snaplen = request.get("snaplen", SNAPLEN_BYTES)
        if not isinstance(snaplen, int) or not SNAPLEN_MIN_BYTES <= snaplen <= SNAPLEN_BYTES:
            raise UsageError(
                f"snaplen must be a number from {SNAPLEN_MIN_BYTES} to {SNAPLEN_BYTES}"
            )
        if self._captures >= CAPTURES_MAX:
            raise IpoibuError(f"{CAPTURES_MAX} clients capture {self._name}; end one of them")
        self._captures += 1
        try:
            await self._stream_capture(snaplen, reader, writer)
        finally:
            self._captures -= 1

    async def _stream_capture(
        self, snaplen: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        loop = asyncio.get_running_loop()
        pending = _Pending(loop, snaplen, self._drain)
        before = await loop.run_in_executor(self._executor, self._ring_drops)
        end_capture = await loop.run_in_executor(
            self._executor, self._endpoint.capture, pending.take, snaplen
        )
        try:
            await self._answer(writer, {"ok": True, "result": {"snaplen": snaplen}})
            end = asyncio.ensure_future(reader.read())  # EOF from the client ends the capture
            try:
                while not end.done():
                    await pending.wait(HEARTBEAT_S)
                    await pending.flush(writer)
            finally:
                end.cancel()
        finally:
            await loop.run_in_executor(self._executor, end_capture)
        dropped = await loop.run_in_executor(self._executor, self._ring_drops) - before
        await pending.flush(writer, end=True, dropped=dropped)

    def _ring_drops(self) -> int:
        """Return how many frames of all captures did not fit into the ring between the pump and Python."""
        return self._endpoint.stats().get("capture_dropped", 0)


class _Pending:
    """A buffer between the endpoint's thread, which never waits, and a client that may be slow."""

    def __init__(self, loop: asyncio.AbstractEventLoop, snaplen_bytes: int, drain: Drain) -> None:
        self._loop = loop
        self._drain = drain
        self._snaplen_bytes = snaplen_bytes
        self._lock = threading.Lock()
        self._records: list[bytes] = []
        self._bytes = 0
        self._dropped = 0
        self._ready = asyncio.Event()

    def take(self, frames: Sequence[CapturedFrame]) -> None:
        """Encode and queue frames; any thread may call this."""
        with self._lock:
            for frame in frames:
                encoded = record(frame, self._snaplen_bytes)
                if self._bytes + len(encoded) > CAPTURE_PENDING_BYTES:
                    self._dropped += 1
                else:
                    self._records.append(encoded)
                    self._bytes += len(encoded)
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ends
            self._loop.call_soon_threadsafe(self._ready.set)

    async def wait(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        self._ready.clear()

    async def flush(
        self, writer: asyncio.StreamWriter, *, end: bool = False, dropped: int = 0
    ) -> None:
        # No time limit: a capture whose client pauses goes on, and drops and counts frames.
        with self._lock:
            payload = b"".join(self._records)
            head = {
                "frames": len(self._records),
                "bytes": self._bytes,
                "dropped": self._dropped + dropped,
            }
            self._records.clear()
            self._bytes = 0
        if end:
            head["end"] = True
        writer.write(_encode(head) + payload)
        await self._drain(writer)


def _parse_untrusted(line: bytes) -> tuple[str, dict[str, Any]]:
    """Return the command and the whole request; `UsageError` if the line is no request."""
    try:
        request = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError("a request is one JSON object on one line") from error
    if not isinstance(request, dict) or not isinstance(request.get("command"), str):
        raise UsageError('a request has the form {"command": "show"}')
    return request["command"][:64], request


def _encode(answer: dict[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _encode_result(result: object) -> bytes:
    """Encode a list a part at a time, because the encoder lets no other thread run."""
    if not isinstance(result, list):
        return _encode({"ok": True, "result": result})
    parts = (
        json.dumps(result[first : first + STATUS_PAGE])[1:-1]
        for first in range(0, len(result), STATUS_PAGE)
    )
    return f'{{"ok": true, "result": [{", ".join(parts)}]}}\n'.encode()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except BlockingIOError:  # clients queue up at a daemon that is stopped
            return True
        except OSError:
            return False
        return True
