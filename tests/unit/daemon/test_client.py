# SPDX-License-Identifier: BSD-2-Clause
"""The errors about a daemon that ends during a request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ipoibu.cli.main import main
from ipoibu.cli.view import ask
from ipoibu.daemon.client import Client, DaemonEnded
from ipoibu.daemon.runtime import make_namespace_dir, socket_path

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
