# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu monitor`: the events of interfaces as they happen, in the manner of `ip monitor`."""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import IpoibuError, NoSuchDevice

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

LOOK_S: Final = 1.0  # the longest delay until we notice a new interface
TOPICS: Final = ("link", "addr", "lease", "neigh", "mcast", "conn", "path", "sa", "drop", "guest")

Event = dict[str, Any]


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "monitor",
        help="print events as they happen",
        description="Print changes of links, addresses, leases, neighbours, groups, connections and paths"
        " as they happen.",
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the interface; by default all of this namespace, also those that start later",
    )
    parser.add_argument(
        "-j", "--json", action="store_true", help="print a line of JSON for each event"
    )
    parser.add_argument(
        "--topic",
        metavar="TOPIC",
        action="append",
        choices=TOPICS,
        help=f"only events of this topic: {', '.join(TOPICS)}; may be repeated",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    form = json.dumps if options.json else text
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends the command
        for event in events(options.name):
            if options.topic is None or event["topic"] in (*options.topic, "lost"):
                print(form(event), flush=True)
    return 0


def text(event: Event) -> str:
    """Return one line: time, interface, topic, subject, states and cause."""
    stamp = datetime.fromtimestamp(event["time"]).isoformat(" ", "milliseconds")
    if event["topic"] == "lost":
        return f"{stamp} {event['dev']} lost {event['lost']} events: this reader is too slow"
    fields = [stamp, event["dev"], event["topic"], event["subject"], event["detail"]]
    fields += [f"{event['before']} -> {event['state']}" if event["before"] else event["state"]]
    if event["hwaddr"]:
        fields.append(f"lladdr {event['hwaddr']}")
    if event["former"]:
        fields.append(f"before {event['former']}")
    cause = "".join(f": {why}" for why in (event["cause"], event["reason"]) if why)
    return " ".join(filter(None, fields)) + cause


def events(name: str | None) -> Iterator[Event]:
    """Yield the events of one interface until `DaemonEnded`, or of all interfaces for ever."""
    from ipoibu.daemon.control.client import Client

    if name is not None:
        with Client(name) as client:
            yield from client.events()
    readers = _Readers()
    while True:
        readers.start_new()
        yield from readers.take(LOOK_S)


class _Readers:
    """A thread for each interface reads its events."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        # The interfaces whose daemon does not answer; each is printed once.
        self._silent: set[str] = set()
        self._came: queue.SimpleQueue[Event | IpoibuError] = queue.SimpleQueue()

    def start_new(self) -> None:
        """Start to read interfaces that have come up."""
        from ipoibu.daemon.control.socket_paths import names

        for name in set(names()) - self._names:
            self._names.add(name)
            threading.Thread(target=self._read, args=(name,), daemon=True).start()

    def _read(self, name: str) -> None:
        from ipoibu.daemon.control.client import Client, DaemonEnded, NotAnswering

        try:
            with Client(name) as client:
                for event in client.events():
                    self._silent.discard(name)
                    self._came.put(event)
        except NotAnswering as error:
            if name not in self._silent:
                self._silent.add(name)
                self._came.put(error)
        except NoSuchDevice:  # a dead daemon has left its socket
            time.sleep(LOOK_S)
        except DaemonEnded as error:
            self._came.put(error)
        except IpoibuError as error:
            self._came.put(error)
            return
        self._names.discard(name)  # `start_new` finds it again

    def take(self, timeout_s: float) -> Iterator[Event]:
        """Yield the events that have come; wait `timeout_s` at most for the first."""
        with contextlib.suppress(queue.Empty):
            came = self._came.get(timeout=timeout_s)
            while True:
                if isinstance(came, IpoibuError):
                    print(f"ipoibu: {came}", file=sys.stderr)
                else:
                    yield came
                came = self._came.get_nowait()
