# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --guests`: ipoibu and the kernel's own ib_ipoib in two machines, on one link."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.errors import UsageError
from ipoibu.cli.interrupts import Interrupts
from ipoibu.cli.options import given

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from ipoibu.lab.machines.link import Link

_OF_NAMESPACES: Final = ("hosts", "fabric", "partitions", "underlay")


def run(options: argparse.Namespace) -> int:
    """Show the link, check it or run a command in the first machine; return the exit code."""
    from ipoibu.lab.machines.link import Link
    from ipoibu.lab.machines.runner import find_kernel

    refused = [name for name in _OF_NAMESPACES if vars(options)[name] is not None]
    refused += [name for name in given(options, "lab") if name != "mode"]
    if refused:
        raise UsageError(f"--{refused[0]} is not for --guests")
    if options.json and not options.check:
        raise UsageError("--guests --json needs --check")
    link = Link(options.device or "rxe0", options.mode or "datagram")
    with Interrupts():
        kernel = find_kernel()
        if not options.json:
            for host in link.describe():
                print(f"{host['name']}  {host['host']}  {host['ipv4']} {host['ipv6']}", flush=True)
        code = 0
        if options.check:
            code = _check(link, kernel, as_json=options.json)
        if code == 0 and (options.rest or not options.check):
            return link.show(kernel, sys.stdout.buffer, options.rest)
        return code


def _check(link: Link, kernel: Path, *, as_json: bool) -> int:
    if not as_json:
        print("the check takes about half a minute", file=sys.stderr, flush=True)
    outcomes, failure = link.check(kernel)
    ok = failure is None and all(outcome.ok for outcome in outcomes)
    if as_json:
        report: dict[str, Any] = {
            "hosts": link.describe(),
            "checks": [outcome.as_dict() for outcome in outcomes],
            "ok": ok,
        }
        print(json.dumps(report, indent=2), flush=True)
    else:
        print("\n".join(map(str, outcomes)))
        passed = sum(outcome.ok for outcome in outcomes)
        print(f"{passed} of {len(outcomes)} checks passed", flush=True)
    if failure is not None:
        print(failure, file=sys.stderr)
    return 0 if ok else 1
