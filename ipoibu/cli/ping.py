# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu ping`: ask a host on the link by ARP or neighbour discovery, as arping does on Ethernet."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.bounds import Range
from ipoibu.base.errors import NoSuchDevice, UsageError
from ipoibu.daemon.interface.pings import TIMEOUT_MS, parse_target

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

COUNT: Final = Range(1, 1_000_000, "requests")
PAUSE_S: Final = 1.0  # between two requests


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "ping",
        help="ask a host on the link",
        description="Ask a host on the link by ARP or neighbour discovery, and print the round-trip time"
        " or the reason why there is none.",
        epilog="Exit code 1: no answer came.",
    )
    parser.add_argument(
        "target", metavar="IP|HWADDR", help="the host to ask, by its IP address or hardware address"
    )
    parser.add_argument(
        "-I",
        "--interface",
        metavar="NAME",
        help="the interface; by default the only one of this namespace",
    )
    parser.add_argument(
        "-c", "--count", metavar="N", type=COUNT.read, default=3, help="requests; 3 by default"
    )
    parser.add_argument(
        "-W",
        "--timeout",
        metavar="MS",
        type=TIMEOUT_MS.read,
        default=1000,
        help="wait MS milliseconds for an answer; 1000 by default",
    )
    parser.add_argument(
        "-j", "--json", action="store_true", help="print a line of JSON for each request"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.control.client import Client

    parse_target(options.target)  # for exit code 2
    outcomes: list[dict[str, Any]] = []
    with contextlib.suppress(KeyboardInterrupt), Client(_interface(options.interface)) as client:
        for number in range(1, options.count + 1):
            if outcomes:
                time.sleep(PAUSE_S)
            outcome = client.request("ping", target=options.target, timeout_ms=options.timeout)
            outcomes.append({"seq": number, **outcome})
            print(json.dumps(outcomes[-1]) if options.json else text(outcomes[-1]), flush=True)
    if not options.json:
        print(summary(outcomes))
    return 0 if any(it["rtt_ms"] is not None for it in outcomes) else 1


def _interface(name: str | None) -> str:
    from ipoibu.daemon.control.client import running

    if name is not None:
        return name
    names = running()
    if not names:
        raise NoSuchDevice(
            "no interface of ipoibu in this network namespace; `ipoibu up` starts one"
        )
    if len(names) > 1:
        raise UsageError(f"there are several interfaces, choose one: -I {' or -I '.join(names)}")
    return names[0]


def text(outcome: dict[str, Any]) -> str:
    """Return one line for one request."""
    place = f"{outcome['ip']} dev {outcome['dev']}"
    if outcome["rtt_ms"] is None:
        return f"{outcome['seq']}: {place}: {outcome['reason']}"
    method = outcome["method"].upper()
    return (
        f"{outcome['seq']}: {place} lladdr {outcome['hwaddr']} {method} {outcome['rtt_ms']:.3f} ms"
    )


def summary(outcomes: list[dict[str, Any]]) -> str:
    """Return the counts, and the times of the answers."""
    times = [it["rtt_ms"] for it in outcomes if it["rtt_ms"] is not None]
    counts = f"{len(outcomes)} asked, {len(times)} answered"
    if not times:
        return counts
    mean = sum(times) / len(times)
    return f"{counts}, min/avg/max {min(times):.3f}/{mean:.3f}/{max(times):.3f} ms"
