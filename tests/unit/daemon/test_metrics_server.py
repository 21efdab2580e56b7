# SPDX-License-Identifier: BSD-2-Clause
"""The HTTP server of metrics, for scrapes and for clients that are slow or many."""

from __future__ import annotations

import contextlib
import errno
import socket
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.daemon.metrics import metrics_server
from ipoibu.daemon.metrics.metrics_server import ListenAddress, MetricsServer
from ipoibu.daemon.process.descriptors import Shortage
from tests.doubles.ports import reserved_port

pytest.importorskip("prometheus_client")


@pytest.fixture
def server() -> Iterator[MetricsServer]:
    with reserved_port() as port:
        server = MetricsServer(ListenAddress.parse(f"127.0.0.1:{port}"))
        yield server
        server.close()


def _connect(server: MetricsServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=20)


def _scrape(server: MetricsServer) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=20) as answer:
        return answer.status, answer.headers["Content-Type"]


def test_a_scrape_is_answered_in_the_text_format(server: MetricsServer) -> None:
    server.start(tuple)
    status, kind = _scrape(server)
    assert status == 200
    assert kind.startswith("text/plain; version=")


def test_a_request_before_the_start_waits_for_it(server: MetricsServer) -> None:
    with _connect(server) as early:
        early.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        server.start(tuple)
        assert early.recv(64).startswith(b"HTTP/1.0 200")


def test_a_client_that_sends_nothing_is_dropped(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "METRICS_REQUEST_S", 0.1)
    server.start(tuple)
    with _connect(server) as silent:
        assert silent.recv(64) == b""
    monkeypatch.setattr(metrics_server, "METRICS_REQUEST_S", 60.0)
    assert _scrape(server)[0] == 200


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.0\r\nX-Slow: "])
def test_clients_that_do_not_finish_their_request_make_room(
    server: MetricsServer, sent: bytes
) -> None:
    server.start(tuple)
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(_connect(server)) for _ in range(40)]
        for each in slow:
            with contextlib.suppress(OSError):  # it has made room already
                each.sendall(sent)
        assert _scrape(server)[0] == 200
        assert slow[0].recv(64) == b""  # the oldest one had to go


def test_clients_that_do_not_read_their_answer_make_room(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "registry", lambda observations: observations)
    monkeypatch.setattr("prometheus_client.make_wsgi_app", lambda observations: _long_answer)
    server.start(tuple)
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            each = stack.enter_context(_connect(server))
            each.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert each.recv(1) == b"H"
        assert _scrape(server)[0] == 200


def _long_answer(environment: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", [("Content-Type", "text/plain; version=1")])
    return [bytes(16 << 20)]


def test_no_free_descriptor_is_survived_and_logged_once(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics_server, "DEAF_S", 0.001)
    monkeypatch.setattr(metrics_server, "SHORTAGE", Shortage())
    server.start(tuple)
    failures = iter([errno.EMFILE, errno.ENFILE, errno.EMFILE])
    accept = socket.socket.accept

    def short(listener: socket.socket) -> tuple[socket.socket, Any]:
        number = next(failures, None)
        if number is not None:
            raise OSError(number, "no descriptor")
        return accept(listener)

    monkeypatch.setattr(socket.socket, "accept", short)
    assert _scrape(server)[0] == 200
    (line,) = caplog.messages
    assert line.startswith("new clients have to wait: Too many open files")


def test_rubbish_gets_an_answer_of_http(server: MetricsServer) -> None:
    server.start(tuple)
    with _connect(server) as client:
        client.sendall(b"\xff\x00 rubbish more words\r\n\r\n")
        assert b"400" in client.recv(4096)


def test_a_closed_server_listens_no_more() -> None:
    with reserved_port() as port:
        server = MetricsServer(ListenAddress.parse(f"[::1]:{port}"))
        server.start(tuple)
        server.close()
        server.close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("::1", port))


def test_a_port_that_is_taken_is_an_error_with_its_address(server: MetricsServer) -> None:
    with pytest.raises(IpoibuError) as refused:
        MetricsServer(ListenAddress.parse(f"127.0.0.1:{server.port}"))
    assert str(refused.value) == (
        f"--metrics 127.0.0.1:{server.port}: cannot listen there: Address already in use"
    )


@pytest.mark.parametrize("text", ["127.0.0.1:9838", "[::1]:1", "0.0.0.0:65535"])
def test_an_address_is_printed_as_it_is_read(text: str) -> None:
    assert str(ListenAddress.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "9838", ":9838", "localhost:9838", "::1:9838", "[127.0.0.1]:1", "[::1]", "1.2.3.4"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no address with a port"):
        ListenAddress.parse(text)


@pytest.mark.parametrize("port", ["", "0", "65536", "-1", "x", "²", "9" * 5000])
def test_what_is_no_port_is_refused(port: str) -> None:
    with pytest.raises(UsageError, match="a port is a number from 1 to 65535"):
        ListenAddress.parse(f"127.0.0.1:{port}")
