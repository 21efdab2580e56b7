# SPDX-License-Identifier: BSD-2-Clause
"""The control socket against well-behaved, slow and hostile clients; a fake endpoint behind it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import json
import os
import socket
import stat
import struct
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ipoibu.base.errors import IpoibuError, NoSuchDevice
from ipoibu.base.limits import CAPTURES_MAX, CONTROL_CLIENTS_MAX, MONITORS_MAX, STATUS_PAGE
from ipoibu.cli.main import main
from ipoibu.daemon.control import server as control
from ipoibu.daemon.control.client import Client, running
from ipoibu.daemon.control.pcap import record
from ipoibu.daemon.control.server import ControlServer
from ipoibu.daemon.control.socket_paths import make_namespace_dir, socket_path
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.tun import NameTaken
from tests.doubles.control_lines import next_line, without_signs

_Result = TypeVar("_Result")


@contextlib.asynccontextmanager
async def _served(endpoint: Any, name: str = "ib0") -> AsyncIterator[ControlServer]:
    with ThreadPoolExecutor(2) as executor:
        server = ControlServer(name, endpoint, executor)
        await server.start()
        try:
            yield server
        finally:
            endpoint.gate.set()
            await server.close()


def _with_server(endpoint: Any, talk: Callable[[ControlServer], Awaitable[_Result]]) -> _Result:
    async def main() -> _Result:
        async with _served(endpoint) as server, asyncio.timeout(110):
            return await talk(server)

    return asyncio.run(main())


async def _exchange(server: ControlServer, *lines: bytes) -> list[dict[str, Any]]:
    reader, writer = await asyncio.open_unix_connection(str(server.path))
    writer.writelines(lines)
    writer.write_eof()
    answers = without_signs(await reader.read())
    writer.close()
    return answers


def _ask_blocking(command: str) -> Any:
    with Client("ib0") as client:
        return client.request(command)


def test_each_command_is_answered_from_the_endpoint(endpoint: Any, runtime: Path) -> None:
    async def talk(server: ControlServer) -> list[Any]:
        return [
            await asyncio.to_thread(_ask_blocking, command)
            for command in ("show", "neigh", "mcast", "conn", "peers", "stats")
        ]

    show, neigh, mcast, conn, peers, stats = _with_server(endpoint, talk)
    assert show["mtu"] == 2044
    assert neigh[0]["ip"] == "10.0.0.2"
    assert mcast == []
    assert conn == peers == []
    assert stats["tx_packets"] == 7


def test_a_long_list_is_encoded_in_parts_and_is_one_answer(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for length in (0, 1, STATUS_PAGE, 3 * STATUS_PAGE + 1):
        neighbours = [{"ip": f"10.0.{n >> 8}.{n & 255}", "pending": n} for n in range(length)]
        monkeypatch.setattr(endpoint, "neighbours", lambda neighbours=neighbours: neighbours)

        async def talk(server: ControlServer) -> Any:
            return await asyncio.to_thread(_ask_blocking, "neigh")

        assert _with_server(endpoint, talk) == neighbours


def test_ipoibu_neigh_prints_a_hundred_thousand_neighbours(
    endpoint: Any,
    runtime: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = ipaddress.ip_address("10.1.0.0")
    row = {
        "hwaddr": None,
        "underlay": None,
        "state": "stale",
        "age_s": 1.0,
        "pending": 0,
        "router": False,
    }
    neighbours = [{"ip": str(first + n), **row} for n in range(100_000)]
    monkeypatch.setattr(endpoint, "neighbours", lambda: neighbours)

    async def talk(server: ControlServer) -> int:
        return await asyncio.to_thread(main, ["neigh", "ib0"])

    assert _with_server(endpoint, talk) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 100_000
    assert lines[-1] == f"{first + 99_999} dev ib0 STALE age 1.0s"


def test_an_action_gets_the_request_and_its_refusal_is_the_answer(
    endpoint: Any, runtime: Path
) -> None:
    async def grow(request: Any) -> object:
        if request.get("by") == 0:
            raise IpoibuError("by nothing")
        return {"grown": request.get("by")}

    async def main() -> list[dict[str, Any]]:
        with ThreadPoolExecutor(1) as executor:
            server = ControlServer("ib0", endpoint, executor, {"grow": grow})
            await server.start()
            try:
                lines = [b'{"command":"grow","by":%d}\n' % by for by in (2, 0)]
                return await _exchange(server, *lines, b'{"command":"shrink"}\n')
            finally:
                await server.close()

    done, refused, unknown = asyncio.run(main())
    assert done == {"ok": True, "result": {"grown": 2}}
    assert refused == {"ok": False, "error": "by nothing"}
    assert unknown["error"].endswith(
        "(known: show, neigh, mcast, conn, peers, guests, stats, path, metrics, grow)"
    )


def test_a_request_that_takes_time_gets_signs_of_life(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "CONTROL_WORKING_S", 0.001)
    endpoint.gate.clear()

    async def talk(server: ControlServer) -> tuple[list[Any], dict[str, Any]]:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(b'{"command": "show"}\n')
        signs = [json.loads(await reader.readline()) for _ in range(3)]
        endpoint.gate.set()
        answer = await next_line(reader)
        writer.close()
        return signs, answer

    signs, answer = _with_server(endpoint, talk)
    assert signs == [{"working": True}] * 3
    assert answer["ok"]


def test_one_connection_serves_several_requests(endpoint: Any, runtime: Path) -> None:
    request = b'{"command": "stats"}\n'
    answers = _with_server(endpoint, lambda server: _exchange(server, request, request))
    assert [answer["ok"] for answer in answers] == [True, True]


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"show\n",
        b"[]\n",
        b"{}\n",
        b'{"command": 5}\n',
        b'{"command": "reboot"}\n',
        b'{"command": "capture", "snaplen": 0}\n',
        b'{"command": "capture", "snaplen": 43}\n',
        b'{"command": "capture", "snaplen": "x"}\n',
        b"[" * 60_000 + b"\n",
        b"\xff\xfe\n",
        b'{"command": "' + b"x" * 60_000 + b'"}\n',
    ],
)
def test_a_bad_request_is_answered_with_an_error_and_the_next_one_is_served(
    endpoint: Any, runtime: Path, line: bytes
) -> None:
    bad, good = _with_server(
        endpoint, lambda server: _exchange(server, line, b'{"command": "show"}\n')
    )
    assert not bad["ok"]
    assert len(bad["error"]) < 200
    assert good["ok"]


def test_an_endless_request_is_refused_and_its_connection_ended(
    endpoint: Any, runtime: Path
) -> None:
    async def talk(server: ControlServer) -> dict[str, Any]:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(b"x" * (2 * control.REQUEST_MAX_BYTES))
        answer = await next_line(reader)
        writer.close()
        assert isinstance(answer, dict)
        return answer

    answer = _with_server(endpoint, talk)
    assert answer == {"ok": False, "error": "a request has at most 65536 bytes"}


def test_a_half_request_ends_without_a_word(endpoint: Any, runtime: Path) -> None:
    assert _with_server(endpoint, lambda server: _exchange(server, b'{"command": "sh')) == []


def test_the_socket_and_its_directory_are_the_owners_alone_and_go_in_the_end(
    endpoint: Any, runtime: Path
) -> None:
    async def talk(server: ControlServer) -> tuple[int, int]:
        path = server.path
        return stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)

    assert _with_server(endpoint, talk) == (0o600, 0o700)
    assert not runtime.exists()


def test_another_user_is_refused(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = struct.pack("=iII", 4711, os.geteuid() + 1, 0)

    class Stranger:
        def getsockopt(self, level: int, option: int, size: int) -> bytes:
            assert option == socket.SO_PEERCRED
            return credentials

    async def talk(server: ControlServer) -> str | None:
        return server._refusal(asyncio.current_task(), Stranger())  # type: ignore[arg-type]

    assert "only the owner" in str(_with_server(endpoint, talk))


async def _fill(server: ControlServer, request: bytes = b"") -> list[Any]:
    """Take all places; return the streams, the longest idle one first."""
    streams = []
    for _ in range(CONTROL_CLIENTS_MAX):
        streams.append(await asyncio.open_unix_connection(str(server.path)))
        streams[-1][1].write(request)
        while len(server._places) < len(streams):
            await asyncio.sleep(0)
    return streams


@pytest.mark.parametrize("request_", [b"", b'{"command":', b'{"command": "stats"}\n'])
def test_the_client_that_asks_nothing_for_the_longest_makes_room(
    endpoint: Any, runtime: Path, request_: bytes
) -> None:
    async def talk(server: ControlServer) -> tuple[list[Any], list[Any]]:
        idle = await _fill(server, request_)
        if request_.endswith(b"\n"):
            for reader, _ in idle:
                assert (await next_line(reader))["ok"]
        served = await _exchange(server, b'{"command": "stats"}\n')
        farewell = without_signs(await idle[0][0].read())
        idle[-1][1].write(b"\n")  # the newest one is still served
        assert await idle[-1][0].readline()
        for _, writer in idle:
            writer.close()
        return served, farewell

    served, farewell = _with_server(endpoint, talk)
    assert served[0]["ok"]
    assert "more than 32 clients" in farewell[0]["error"]


def test_who_waits_for_us_does_not_make_room(endpoint: Any, runtime: Path) -> None:
    """Subscribers of a quiet interface, and clients whose query runs."""
    endpoint.gate.clear()

    async def talk(server: ControlServer) -> list[dict[str, Any]]:
        monitors = [
            await asyncio.open_unix_connection(str(server.path)) for _ in range(MONITORS_MAX)
        ]
        for reader, writer in monitors:
            writer.write(b'{"command": "monitor"}\n')
            assert (await next_line(reader))["ok"]
        for _ in range(CONTROL_CLIENTS_MAX - MONITORS_MAX):
            asking = await asyncio.open_unix_connection(str(server.path))
            asking[1].write(b'{"command": "show"}\n')
            monitors.append(asking)
        while len(server._places) < CONTROL_CLIENTS_MAX or server._places._waited_for:
            await asyncio.sleep(0)
        refused = await _exchange(server)
        endpoint.gate.set()
        for reader, _ in monitors[MONITORS_MAX:]:
            assert (await next_line(reader))["ok"]
        served = await _exchange(server, b'{"command": "stats"}\n')
        for _, writer in monitors:
            writer.close()
        return refused + served

    refused, served = _with_server(endpoint, talk)
    assert "32 clients" in refused["error"]
    assert served["ok"]


def test_clients_that_read_no_answer_make_room(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "show", lambda: {"blob": "x" * 4_000_000})

    async def talk(server: ControlServer) -> list[dict[str, Any]]:
        server._queries["show"] = endpoint.show
        greedy = await _fill(server, b'{"command": "show"}\n')
        for _, writer in greedy:
            writer.transport.pause_reading()
        while len(server._places._waited_for) < CONTROL_CLIENTS_MAX:
            await asyncio.sleep(0.001)
        served = await _exchange(server, b'{"command": "stats"}\n')
        for _, writer in greedy:
            writer.transport.abort()
        return served

    assert _with_server(endpoint, talk)[0]["ok"]


def test_the_captures_of_one_interface_have_a_cap(endpoint: Any, runtime: Path) -> None:
    async def talk(server: ControlServer) -> dict[str, Any]:
        streams = []
        for _ in range(CAPTURES_MAX):
            reader, writer = await asyncio.open_unix_connection(str(server.path))
            writer.write(b'{"command": "capture"}\n')
            assert (await next_line(reader))["ok"]
            streams.append(writer)
        (refused,) = await _exchange(server, b'{"command": "capture"}\n')
        for writer in streams:
            writer.close()
        return refused

    assert "8 clients capture ib0" in _with_server(endpoint, talk)["error"]


def test_a_query_without_a_free_descriptor_is_an_error_of_its_own(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show() -> dict[str, Any]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(endpoint, "show", show)
    lines = (b'{"command": "show"}\n', b'{"command": "stats"}\n')
    bad, good = _with_server(endpoint, lambda server: _exchange(server, *lines))
    assert bad == {"ok": False, "error": "Too many open files"}
    assert good["ok"]


def test_a_client_that_asks_nothing_is_dropped(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "IDLE_S", 0.01)

    async def talk(server: ControlServer) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    assert _with_server(endpoint, talk) == b""


def test_a_slow_query_does_not_hold_up_another_client(endpoint: Any, runtime: Path) -> None:
    endpoint.gate.clear()

    async def talk(server: ControlServer) -> bool:
        slow = asyncio.ensure_future(_exchange(server, b'{"command": "show"}\n'))
        fast = await _exchange(server, b'{"command": "stats"}\n')
        waiting = not slow.done()
        endpoint.gate.set()
        assert (await slow)[0]["ok"]
        return waiting and bool(fast[0]["ok"])

    assert _with_server(endpoint, talk)


def test_a_client_that_takes_no_answers_is_dropped_and_others_are_served(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "WRITE_S", 0.05)
    monkeypatch.setattr(endpoint, "show", lambda: {"blob": "x" * 4_000_000})

    async def talk(server: ControlServer) -> list[dict[str, Any]]:
        server._queries["show"] = endpoint.show
        with socket.socket(socket.AF_UNIX) as greedy:
            greedy.setblocking(False)
            await asyncio.get_running_loop().sock_connect(greedy, str(server.path))
            await asyncio.get_running_loop().sock_sendall(greedy, b'{"command": "show"}\n')
            while not server._clients:
                await asyncio.sleep(0)
            answers = await _exchange(server, b'{"command": "stats"}\n')
            while server._clients:
                await asyncio.sleep(0.01)
            return answers

    assert _with_server(endpoint, talk)[0]["ok"]


def test_a_defect_behind_a_query_is_its_answer(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def show() -> dict[str, Any]:
        raise KeyError("gid")

    monkeypatch.setattr(endpoint, "show", show)
    bad, good = _with_server(
        endpoint,
        lambda server: _exchange(server, b'{"command": "show"}\n', b'{"command": "stats"}\n'),
    )
    assert bad == {"ok": False, "error": "internal error: KeyError: 'gid'"}
    assert good["ok"]


# Sockets of dead and living daemons


def test_the_socket_of_a_dead_daemon_is_replaced(endpoint: Any, runtime: Path) -> None:
    make_namespace_dir()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path("ib0")))
    assert running() == []
    answers = _with_server(endpoint, lambda s: _exchange(s, b'{"command": "show"}\n'))
    assert answers[0]["ok"]


def test_the_socket_of_a_living_daemon_is_left_to_it(endpoint: Any, runtime: Path) -> None:
    async def talk(server: ControlServer) -> list[dict[str, Any]]:
        with ThreadPoolExecutor(1) as executor, pytest.raises(NameTaken):
            await ControlServer("ib0", endpoint, executor).start()
        return await _exchange(server, b'{"command": "show"}\n')

    assert _with_server(endpoint, talk)[0]["ok"]


# A new name, another network namespace


class _Elsewhere(Namespace):
    is_here = False

    def inode(self) -> int:
        return 42


def test_the_socket_follows_the_interface(endpoint: Any, runtime: Path) -> None:
    async def talk(server: ControlServer) -> None:
        async def name() -> object:
            [answer] = await _exchange(server, b'{"command": "show"}\n')
            return answer["result"]["name"]

        server.move("ib1", HERE)
        assert (server.path, await name()) == (socket_path("ib1"), "ib1")
        server.move("eth1", _Elsewhere())
        assert (server.path, await name()) == (runtime / "net-42/eth1.sock", "eth1")
        link = socket_path(f"ib0@{os.getpid()}")
        assert link.resolve() == server.path.resolve()
        server.move("ib0", HERE)
        assert (server.path, await name()) == (socket_path("ib0"), "ib0")
        assert not link.is_symlink()
        assert not (runtime / "net-42").exists()
        server.move("eth1", _Elsewhere())

    _with_server(endpoint, talk)
    assert not runtime.exists()


def test_a_socket_that_cannot_follow_stays_and_leaves_no_directory(
    endpoint: Any, runtime: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(server: ControlServer) -> None:
        server.path.unlink()
        server.move("eth1", _Elsewhere())
        assert f"eth1: cannot move the control socket from {server.path}" in caplog.text
        assert not (runtime / "net-42").exists()

    _with_server(endpoint, talk)


def test_a_name_nobody_runs_is_no_such_device(runtime: Path) -> None:
    with pytest.raises(NoSuchDevice, match="'ib7'") as caught:
        Client("ib7")
    assert caught.value.exit_code == 3


def test_an_error_of_the_daemon_is_an_error_of_the_client(endpoint: Any, runtime: Path) -> None:
    async def talk(server: ControlServer) -> None:
        with pytest.raises(IpoibuError, match="ib0: unknown command"):
            await asyncio.to_thread(_ask_blocking, "reboot")

    _with_server(endpoint, talk)


# Captures


class _Taken:
    """Runs the blocking capture client on a thread of its own."""

    def __init__(self, snaplen: int = 65535) -> None:
        self.data = b""
        self.dropped = -1
        self.stop = threading.Event()
        self.first = threading.Event()
        self._snaplen = snaplen

    def run(self) -> None:
        with Client("ib0") as client:
            client.begin_capture(self._snaplen)
            for dropped, records in client.captured(self.stop.is_set):
                self.dropped = dropped
                self.data += records
                self.first.set()


def _capture(endpoint: Any, taken: _Taken) -> None:
    async def talk(server: ControlServer) -> None:
        task = asyncio.create_task(asyncio.to_thread(taken.run))
        await asyncio.to_thread(taken.first.wait)
        endpoint.ring_drops += 5
        for sink in list(endpoint.sinks):
            sink(endpoint.frames)
        taken.stop.set()
        await task

    _with_server(endpoint, talk)


def test_a_capture_brings_every_record_and_the_number_of_drops(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HEARTBEAT_S", 0.01)
    endpoint.frames = [_frame(n) for n in (44, 60, 100)]
    taken = _Taken()
    _capture(endpoint, taken)
    assert taken.data == b"".join(record(frame) for frame in endpoint.frames) * 2
    assert taken.dropped == 5
    assert endpoint.sinks == []


def test_a_capture_keeps_as_much_of_a_frame_as_was_asked_for(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HEARTBEAT_S", 0.01)
    endpoint.frames = [_frame(100)]
    taken = _Taken(snaplen=50)
    _capture(endpoint, taken)
    assert taken.data == record(_frame(100), 50) * 2
    assert endpoint.snap_bytes == 50


def test_frames_beyond_the_bound_are_dropped_and_counted(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HEARTBEAT_S", 0.01)
    monkeypatch.setattr(control, "CAPTURE_PENDING_BYTES", 2 * len(record(_frame(60))))
    endpoint.frames = [_frame(60), _frame(60), _frame(60)]
    taken = _Taken()
    _capture(endpoint, taken)
    assert taken.data == record(_frame(60)) * 4
    assert taken.dropped == 5 + 2


def test_a_capture_whose_client_vanishes_is_ended(
    endpoint: Any, runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "HEARTBEAT_S", 0.01)

    async def talk(server: ControlServer) -> None:
        reader, writer = await asyncio.open_unix_connection(str(server.path))
        writer.write(b'{"command": "capture"}\n')
        assert (await next_line(reader))["ok"]
        writer.transport.abort()
        while endpoint.sinks or server._clients:
            await asyncio.sleep(0.01)

    _with_server(endpoint, talk)


def _frame(size: int) -> Any:
    class Frame:
        time_ns = 1_700_000_000_000_000_000
        wire_len = size
        data = bytes(size)

    return Frame()
