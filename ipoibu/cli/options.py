# SPDX-License-Identifier: BSD-2-Clause
"""The options that say what an interface is to be: all of them for `up`, some for `lab`.

Their texts are checked by `daemon.config`, which knows them by the same keys.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Option:
    """What `--help` says; `several`: it may be given again and again."""

    metavar: str
    help: str
    several: bool = False


OPTIONS: Final[dict[str, Option]] = {
    "device": Option("DEV[/PORT]", "soft:NETDEV or an RDMA device such as mlx5_0/1"),
    "pkey": Option("P_KEY", "partition, 0x0001 to 0xffff"),
    "partitions": Option(
        "FILE", "OpenSM's partitions.conf, for a fabric without a subnet administrator"
    ),
    "mode": Option("MODE", "datagram, the default, or connected"),
    "cm-profile": Option(
        "PROFILE",
        "connected mode with a connection for each direction (linux) or one for both (rfc)",
    ),
    "connection-idle": Option(
        "S",
        "connected mode: end a connection that carries nothing for so long; 512 s by default",
    ),
    "mtu": Option("N", "IP MTU in bytes; 2044 where the port allows"),
    "address": Option("CIDR", "an address with its prefix length", several=True),
    "route": Option("DST[,via=GW]", "a network or `default`", several=True),
    "faults": Option(
        "SPEC", "for tests: loss=P,dup=P,reorder=P,corrupt=P,delay=P,seed=N on what is sent"
    ),
    "offload": Option("on|off", "TCP and UDP in frames of up to 64 KiB; on by default"),
    "busy-poll": Option(
        "US|auto",
        "look so long for the next packet before sleeping: latency for CPU time; auto, by"
        " default: up to 300 where answers come that soon",
    ),
    "cpu-latency": Option(
        "US",
        "idle CPUs of the machine wake up within US: latency for power; 0: they do not sleep",
    ),
    "queues": Option(
        "N", "N threads send, each from a queue of the TUN that flows stick to; 1 by default"
    ),
    "allmulticast": Option(
        "on|off",
        "receive every group of the link, for multicast routers; needs a subnet administrator",
    ),
    "peer": Option(
        "HOST[:PORT]",
        "on iWARP: a station to find the others by, or a name of several",
        several=True,
    ),
    "peers-file": Option("FILE", "on iWARP: one peer a line, read again when it changes"),
    "mesh-port": Option("PORT", "on iWARP: where to listen; 4792"),
    "log-level": Option("LEVEL", "debug, info, warning or error"),
}


def add_options(parser: argparse.ArgumentParser, keys: Iterable[str] = OPTIONS) -> None:
    for key in keys:
        option = OPTIONS[key]
        parser.add_argument(
            f"--{key}",
            metavar=option.metavar,
            help=option.help,
            action="append" if option.several else "store",
        )


def given(options: argparse.Namespace, keys: Iterable[str] = OPTIONS) -> dict[str, str | list[str]]:
    """The texts of those that were given, by key."""
    words = vars(options)
    texts = {key: words[key.replace("-", "_")] for key in keys}
    return {key: text for key, text in texts.items() if text is not None}
