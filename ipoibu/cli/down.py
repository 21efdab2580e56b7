# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu down`: end running interfaces."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import DOWN_WAIT_S
from ipoibu.cli.child import find

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "down",
        help="end a running interface",
        description="End running interfaces, with their children, and wait for the end; a child ends alone."
        " A service that ended so starts again with `systemctl start`.",
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="the interface, such as ib0")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    for name in options.names:
        _end(name)
    return 0


def _end(name: str) -> None:
    from ipoibu.daemon.control.client import Client, DaemonEnded
    from ipoibu.daemon.control.socket_paths import outside_links

    links = outside_links(name)  # `--netns`: the interface is in another namespace
    with Client(links[0] if len(links) == 1 else name) as client:
        if client.request("show")["parent"] is None:
            with _process(client.pid) as pidfd:
                with contextlib.suppress(DaemonEnded):  # before we read its answer
                    client.request("down")
                if pidfd is not None and not select.select([pidfd], [], [], DOWN_WAIT_S)[0]:
                    raise IpoibuError(f"{name} ({client.pid}) has not ended in {DOWN_WAIT_S:g} s")
            return
    parent, pkey = find(name)
    with Client(parent) as client:
        client.request("child-del", pkey=pkey)


@contextlib.contextmanager
def _process(pid: int) -> Iterator[int | None]:
    """A descriptor that is readable once the process has ended; None if it has, or is not to be seen."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        yield None
        return
    try:
        yield pidfd
    finally:
        os.close(pidfd)
