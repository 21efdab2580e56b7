# SPDX-License-Identifier: BSD-2-Clause
"""The options of `ipoibu bench --rfc2544` and `--rfc6349`, and the plan that they make."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, Literal

from ipoibu.base.bounds import Range
from ipoibu.base.errors import UsageError

if TYPE_CHECKING:
    from ipoibu.bench.procedures.run import Plan
    from ipoibu.cli.parser import Parser

SIZES: Final = Range(64, 65535, "bytes")
REPEATS: Final = Range(1, 1000)
LOSS_MOST: Final = 50.0  # percent
# Options that only a procedure has, and which one
OWN: Final = {
    "rfc_times": ("rfc2544", "rfc6349"),
    "repeats": ("rfc2544",),
    "sizes": ("rfc2544",),
    "loss": ("rfc2544",),
}


def add_options(parser: Parser) -> None:
    group = parser.add_argument_group("procedures, each beside a control without a forwarder")
    group.add_argument(
        "--rfc2544",
        action="store_true",
        help="measure throughput without loss, latency and its variation, back-to-back frames and frame"
        " loss; --only names contenders (datagram, connected by default), --seconds a trial's length",
    )
    group.add_argument(
        "--rfc6349",
        action="store_true",
        help="measure TCP's transfer time ratio, efficiency and buffer delay, and what they are made of",
    )
    group.add_argument(
        "--rfc-times",
        action="store_true",
        help="measure for as long and as often as the RFCs say: days, unless --sizes and --only say less",
    )
    group.add_argument(
        "--sizes",
        metavar="BYTES[,BYTES]",
        help="sizes of IP packets for --rfc2544; by default the RFC's, and the MTU",
    )
    group.add_argument(
        "--loss",
        metavar="PERCENT",
        help="the loss that a throughput trial of --rfc2544 accepts; 0 by default",
    )
    group.add_argument(
        "--repeats",
        metavar="N",
        help="number of latency streams and of searches for the longest burst, for --rfc2544",
    )


def procedure(options: argparse.Namespace) -> Literal["rfc2544", "rfc6349"] | None:
    """Return the procedure that the options ask for; refuse what does not belong to it."""
    if options.rfc2544 and options.rfc6349:
        raise UsageError("--rfc2544 and --rfc6349 are two commands")
    chosen: Literal["rfc2544", "rfc6349"] | None = None
    if options.rfc2544:
        chosen = "rfc2544"
    elif options.rfc6349:
        chosen = "rfc6349"
    for name, owners in OWN.items():
        if getattr(options, name) and chosen not in owners:
            words = " and ".join(f"--{owner}" for owner in owners)
            raise UsageError(f"--{name.replace('_', '-')} is for {words}")
    if chosen is not None:
        for name in ("lab", "plot"):
            if getattr(options, name):
                raise UsageError(f"--{name} is not for --{chosen}")
    if chosen == "rfc2544" and options.streams is not None:
        raise UsageError("--streams is not for --rfc2544")
    if options.rfc_times and options.quick:
        raise UsageError("--quick and --rfc-times contradict each other")
    return chosen


def plan(
    options: argparse.Namespace,
    chosen: Literal["rfc2544", "rfc6349"],
    *,
    rounds: int,
    seconds: int | None,
    streams: int,
    only: tuple[str, ...],
) -> Plan:
    """Return the plan; `UsageError` for a wrong value."""
    from ipoibu.bench.procedures.run import Plan
    from ipoibu.bench.procedures.times import QUICK, RFC, SHORT
    from ipoibu.lab.underlay import LINK

    times = RFC if options.rfc_times else QUICK if options.quick else SHORT
    if seconds is not None:
        times = times.with_seconds(seconds)
    if options.repeats is not None:
        times = times.with_repeats(REPEATS.read(options.repeats))
    sizes = tuple(SIZES.read(text) for text in (options.sizes or "").split(",") if text)
    return Plan(
        procedure=chosen,
        times=times,
        rounds=rounds,
        only=only,
        underlay=options.underlay or LINK,
        sizes=sizes,
        accepted_percent=_loss(options.loss),
        streams=streams,
        quick=options.quick,
    )


def _loss(text: str | None) -> float:
    if text is None:
        return 0.0
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LOSS_MOST:
        raise UsageError(f"--loss {text!r}: expected a percentage from 0 to {LOSS_MOST:g}")
    return value
