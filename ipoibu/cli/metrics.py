# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu metrics`: the counters and the state of interfaces as Prometheus reads them."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.base.errors import IpoibuError, UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "metrics",
        help="print counters for Prometheus",
        description="Print counters and state of interfaces in Prometheus' text format.",
    )
    parser.add_argument(
        "names", metavar="NAME", nargs="*", help="interfaces; all of this namespace by default"
    )
    parser.add_argument(
        "--textfile",
        metavar="FILE",
        type=Path,
        help="write FILE (in one step) for node_exporter's textfile collector, such as"
        " /var/lib/prometheus/node-exporter/ipoibu.prom",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.cli.view import ask
    from ipoibu.daemon.metrics.metrics import Observation, registry

    observations: list[Observation] = []
    made = registry(lambda: observations)  # complains about a missing library first
    file: Path | None = options.textfile
    if file is not None and file.exists() and not file.is_file():
        raise UsageError(f"{file}: no regular file, which --textfile would replace")
    code = 0
    for name in options.names or [None]:
        answers = ask("metrics", name)
        observations += [answer for _, answer in answers]
        code |= answers.report()
    from prometheus_client import generate_latest, write_to_textfile

    if file is None:
        sys.stdout.write(generate_latest(made).decode())
        return code
    try:
        write_to_textfile(str(file), made)
    except OSError as error:
        for draft in file.parent.glob(f"{file.name}.{os.getpid()}.*"):  # the disk is full
            draft.unlink(missing_ok=True)
        raise IpoibuError(f"{file}: {os.strerror(error.errno or 0)}") from error
    return code
