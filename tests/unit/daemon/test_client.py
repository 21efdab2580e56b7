# SPDX-License-Identifier: BSD-2-Clause
"""The errors about a daemon that ends during a request, or does not answer."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from ipoibu.cli.main import main
from ipoibu.cli.traffic import Sample
from ipoibu.cli.view import Asked, ask
from ipoibu.daemon.control import client as client_module
from ipoibu.daemon.control.client import Client, DaemonEnded, NotAnswering, running
from ipoibu.daemon.control.socket_paths import make_namespace_dir, socket_path

pytestmark = pytest.mark.usefixtures("runtime")


@contextmanager
def ending(name: str, *, reads: bool) -> Iterator[None]:
    """A daemon that ends at the first request, before or after it has read it."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16, 0 if reads else socket.MSG_PEEK)

    make_namespace_dir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path(name)))
        listener.listen(1)
        thread = threading.Thread(target=serve)
        thread.start()
        yield
        thread.join()


@pytest.mark.parametrize("reads", [True, False])
def test_a_daemon_that_ends_is_not_one_that_is_slow(reads: bool) -> None:
    with (
        ending("ib0", reads=reads),
        Client("ib0") as client,
        pytest.raises(DaemonEnded, match=r"^ib0: the daemon ended$"),
    ):
        client.request("show")


@pytest.mark.parametrize("reads", [True, False])
def test_among_all_interfaces_one_that_ends_is_left_out(reads: bool) -> None:
    with ending("ib0", reads=reads):
        assert ask("show", None) == []


def test_asked_for_by_name_it_is_a_failure() -> None:
    with ending("ib0", reads=True):
        assert main(["show", "ib0"]) == 1


@contextmanager
def listening(name: str, serve: Callable[[socket.socket], None] | None = None) -> Iterator[None]:
    """A daemon that answers nobody, or one client by `serve`."""
    make_namespace_dir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(socket_path(name)))
        listener.listen(0)

        def one(answer: Callable[[socket.socket], None]) -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        threads = [threading.Thread(target=one, args=(serve,))] if serve is not None else []
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()


def _answer(connection: socket.socket, *, signs: int = 0) -> None:
    connection.recv(1 << 16)
    connection.sendall(b'{"working": true}\n' * signs + b'{"ok": true, "result": []}\n')


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "CONTROL_SILENCE_S", 0.05)
    monkeypatch.setattr(client_module, "_LEAST_S", 0.05)


@pytest.mark.usefixtures("impatient")
def test_a_daemon_that_does_not_answer_is_named_with_its_process() -> None:
    with (
        listening("ib0"),
        Client("ib0") as client,
        pytest.raises(NotAnswering, match=rf"^ib0 \({os.getpid()}\) does not answer$"),
    ):
        client.request("show")


def test_signs_of_life_are_no_answer() -> None:
    with listening("ib0", lambda it: _answer(it, signs=3)), Client("ib0") as client:
        assert client.request("neigh") == []


@pytest.mark.parametrize("command", ["neigh", "conn", "mcast", "child list"])
def test_the_others_are_shown_and_the_command_fails(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "CONTROL_SILENCE_S", 1.0)
    with listening("ib0"), listening("ib1", _answer):
        assert main([*command.split(), "-j"]) == 1
    output = capsys.readouterr()
    assert output.err == f"ipoibu: ib0 ({os.getpid()}) does not answer\n"
    assert json.loads(output.out) == []


@pytest.mark.usefixtures("impatient")
def test_a_sample_of_top_waits_once_for_what_does_not_answer() -> None:
    with listening("ib0"):
        sample = Sample.take(None)
    assert list(sample.silent) == ["ib0"]
    assert (sample.observations, sample.connections) == ([], [])
    assert isinstance(sample.connections, Asked)
    assert not sample.connections.silent  # it was not asked again


@pytest.mark.usefixtures("impatient")
def test_a_full_queue_of_clients_is_no_missing_interface(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with listening("ib0"), ExitStack() as stack:
        stack.enter_context(Client("ib0"))
        assert running() == ["ib0"]
        assert main(["show"]) == 1
    assert capsys.readouterr().err.startswith("ipoibu: ib0 does not answer")


STOPPED = """
import os, signal, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen(1)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.usefixtures("impatient")
def test_a_stopped_process_is_said_to_be_stopped() -> None:
    make_namespace_dir()
    command = [sys.executable, "-c", STOPPED, str(socket_path("ib0"))]
    with subprocess.Popen(command) as daemon:
        try:
            os.waitpid(daemon.pid, os.WUNTRACED)
            text = rf"^ib0 \({daemon.pid}\) does not answer: the process is stopped$"
            with Client("ib0") as client, pytest.raises(NotAnswering, match=text):
                client.request("show")
        finally:
            daemon.kill()
