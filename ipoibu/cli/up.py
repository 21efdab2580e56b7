# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up`: one interface in the foreground, until SIGINT, SIGTERM or SIGHUP."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser

# Keys of the configuration file, which are the options' names too.
_KEYS: Final = (
    "device",
    "pkey",
    "partitions",
    "mode",
    "cm-profile",
    "connection-idle",
    "mtu",
    "address",
    "route",
    "faults",
    "offload",
    "busy-poll",
    "cpu-latency",
    "queues",
    "allmulticast",
    "peer",
    "peers-file",
    "mesh-port",
    "log-level",
)


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "up",
        help="bring an interface up",
        description="Bring an IPoIB interface up and run it in the foreground.",
    )
    parser.add_argument("name", metavar="NAME", help="the interface to create, such as ib0")
    parser.add_argument(
        "--device", metavar="DEV[/PORT]", help="soft:NETDEV or an RDMA device such as mlx5_0/1"
    )
    parser.add_argument("--pkey", metavar="P_KEY", help="partition, 0x0001 to 0xffff")
    parser.add_argument(
        "--partitions",
        metavar="FILE",
        help="OpenSM's partitions.conf, for a fabric without a subnet administrator",
    )
    parser.add_argument("--mode", metavar="MODE", help="datagram, the default, or connected")
    parser.add_argument(
        "--cm-profile",
        metavar="PROFILE",
        help="connected mode with a connection for each direction (linux) or one for both (rfc)",
    )
    parser.add_argument(
        "--connection-idle",
        metavar="S",
        help="connected mode: end a connection that carries nothing for so long; 512 s by default",
    )
    parser.add_argument("--mtu", metavar="N", help="IP MTU in bytes; 2044 where the port allows")
    parser.add_argument(
        "--address", metavar="CIDR", action="append", help="an address with its prefix length"
    )
    parser.add_argument(
        "--route", metavar="DST[,via=GW]", action="append", help="a network or `default`"
    )
    parser.add_argument(
        "--config", metavar="FILE", type=Path, help="TOML file with the same keys as these options"
    )
    parser.add_argument(
        "--faults",
        metavar="SPEC",
        help="for tests: loss=P,dup=P,reorder=P,corrupt=P,delay=P,seed=N on what is sent",
    )
    parser.add_argument(
        "--offload", metavar="on|off", help="TCP and UDP in frames of up to 64 KiB; on by default"
    )
    parser.add_argument(
        "--busy-poll",
        metavar="US|auto",
        help="look so long for the next packet before sleeping: latency for CPU time; auto, by"
        " default: up to 300 where answers come that soon",
    )
    parser.add_argument(
        "--cpu-latency",
        metavar="US",
        help="idle CPUs of the machine wake up within US: latency for power; 0: they do not sleep",
    )
    parser.add_argument(
        "--queues",
        metavar="N",
        help="N threads send, each from a queue of the TUN that flows stick to; 1 by default",
    )
    parser.add_argument(
        "--allmulticast",
        metavar="on|off",
        help="receive every group of the link, for multicast routers; needs a subnet administrator",
    )
    parser.add_argument(
        "--peer",
        metavar="HOST[:PORT]",
        action="append",
        help="on iWARP: a station to find the others by, or a name of several",
    )
    parser.add_argument(
        "--peers-file", metavar="FILE", help="on iWARP: one peer a line, read again when it changes"
    )
    parser.add_argument("--mesh-port", metavar="PORT", help="on iWARP: where to listen; 4792")
    parser.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.daemon.config import InterfaceConfig
    from ipoibu.daemon.run import Daemon

    words = vars(options)
    given = {key: words[key.replace("-", "_")] for key in _KEYS}
    config = InterfaceConfig.build(
        options.name, {key: text for key, text in given.items() if text is not None}, options.config
    )
    # Before anything imports pyverbs, which would configure the root logger in its own way.
    logging.basicConfig(level=config.logging_level, format="ipoibu: %(levelname)s: %(message)s")
    Daemon(config, announce=_announce).run()
    return 0


def _announce(line: str) -> None:
    print(line, flush=True)
