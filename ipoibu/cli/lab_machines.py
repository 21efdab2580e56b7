# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --guests N`: virtual machines with InfiniBand, which run scripts."""

from __future__ import annotations

import json
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, BinaryIO, Final

from ipoibu.base.errors import UsageError
from ipoibu.cli.interrupts import Interrupts
from ipoibu.cli.options import given

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from ipoibu.lab import Lab, LabError, Machine
    from ipoibu.lab.machines.check import Outcome
    from ipoibu.lab.machines.live import Live
    from ipoibu.lab.machines.roles import Script
    from ipoibu.lab.machines.runner import Result

_OF_NAMESPACES: Final = ("hosts", "underlay")
# These need --guests.
_OF_MACHINES: Final = (
    "kernel",
    "flavour",
    "init",
    "userland",
    "ipoib",
    "sm",
    "run_scripts",
    "share",
    "capture",
    "impair",
    "junit",
    "tap",
    "shell",
    "timeout",
    "memory",
    "output",
    "tolerate_warnings",
)
FLAVOURS: Final = ("lean", "full")
INITS: Final = ("lab", "systemd")
_TIMEOUT_S: Final = 600.0  # of scripts; a shell has all the time


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options of machines."""
    group = parser.add_argument_group("virtual machines")
    group.add_argument(
        "--guests",
        nargs="?",
        const="2",
        metavar="N",
        help="boot N virtual machines, 1 to 8, called a to h; two without N. The first run may build their"
        " kernel, in minutes",
    )
    group.add_argument("--kernel", metavar="V", help="the release of Linux, such as 6.1, or newest")
    group.add_argument(
        "--flavour",
        choices=FLAVOURS,
        help="the kernel's: lean (the default) has what the lab needs, full what other people's tests need",
    )
    group.add_argument(
        "--init",
        choices=INITS,
        help="process 1: systemd, with D-Bus, NetworkManager and networkd as on a host, and a kernel of the"
        " flavour full; or lab (the default), which runs scripts and nothing else",
    )
    group.add_argument(
        "--userland",
        metavar="USERLAND",
        help="the machines' programs and libraries: host; the directory, archive or URL of a userland; or"
        " auto, the default: host where it has what the lab needs",
    )
    group.add_argument(
        "--ipoib",
        metavar="KIND",
        help="kernel (the default): the unmodified ib_ipoib; ipoibu; ipoibu:soft, on the built-in HCA; none;"
        " mixed; or a list with one for each machine",
    )
    group.add_argument(
        "--sm",
        metavar="M",
        help="let OpenSM in the first M machines manage the subnet: LIDs, P_Keys, tables, traps, hand-over",
    )
    group.add_argument(
        "--run",
        dest="run_scripts",
        action="append",
        metavar="ROLE=SCRIPT",
        help="run a file, or a text for bash, in the machine ROLE, or in `all` at once; may be repeated."
        " Scripts of a role run in their order, those of different roles side by side",
    )
    group.add_argument(
        "--share",
        metavar="DIR[:ro]",
        help="show DIR at /src, where scripts run, as a copy that they may change; :ro: read-only",
    )
    group.add_argument(
        "--output",
        metavar="DIR",
        help="keep each machine's output and kernel log, and /run/lab, in DIR; `userland build` leaves its"
        " file there",
    )
    group.add_argument("--capture", metavar="FILE", help="write the frames on the wire as pcapng")
    group.add_argument(
        "--impair",
        action="append",
        metavar="[ROLE:]WORDS",
        help='what a machine does to frames that it sends, as netem has it: "loss 1%% delay 5ms"',
    )
    group.add_argument("--junit", metavar="FILE", help="write the results as JUnit XML")
    group.add_argument(
        "--tap", action="store_true", help="print the results as TAP, and nothing else, on stdout"
    )
    group.add_argument(
        "--shell",
        metavar="ROLE",
        help="then open a shell in the machine ROLE; its end ends the lab",
    )
    group.add_argument(
        "--timeout", metavar="S", help=f"end the scripts after so many seconds; {_TIMEOUT_S:.0f}"
    )
    group.add_argument("--memory", metavar="MIB", help="the memory of each machine; 512")
    group.add_argument(
        "--tolerate-warnings",
        action="store_true",
        default=None,
        help="let only a panic or an Oops of a kernel fail the lab, and no warning",
    )


def refuse_without_guests(options: argparse.Namespace) -> None:
    """`UsageError` for an option of machines."""
    for name in _OF_MACHINES:
        if vars(options)[name]:
            raise UsageError(f"--{_option(name)} needs --guests")


def run(options: argparse.Namespace) -> int:
    """Boot machines, and run what the options ask for; return the exit code."""
    refused = [name for name in _OF_NAMESPACES if vars(options)[name] is not None]
    refused += [name for name in given(options, "lab") if name != "mode"]
    if refused:
        raise UsageError(f"--{refused[0]} is not for --guests")
    return _run_lab(options)


def _option(name: str) -> str:
    return {"run_scripts": "run"}.get(name, name.replace("_", "-"))


def _run_lab(options: argparse.Namespace) -> int:
    from ipoibu.lab import LabError
    from ipoibu.lab.machines.live import Live
    from ipoibu.lab.machines.plan import NAMES
    from ipoibu.lab.machines.roles import Roles
    from ipoibu.lab.machines.terminal import check_terminal, interact

    if options.tap and options.json:
        raise UsageError("--tap and --json are two reports: stdout has room for one")
    guests = _number("guests", options.guests, len(NAMES))
    scripts = _scripts(options, NAMES[:guests])
    if options.shell is not None:
        check_terminal()
    timeout_s: float | None = _TIMEOUT_S if options.timeout is None else _seconds(options.timeout)
    live = Live(sys.stdout.buffer, with_names=bool(options.run_scripts))
    live.pause()
    roles = Roles(scripts)
    checks: list[Outcome] = []
    failure: LabError | None = None
    code = 0
    with _junit_file(options) as junit_file, Interrupts() as interrupts:
        lab = _lab(options, guests, live)
        try:
            with lab:
                interrupts.check()
                _look(lab, options, checks, has_scripts=bool(scripts))
                if not (options.tap or options.json):
                    live.resume()
                if roles.run(lab, timeout_s) and options.shell is not None:
                    live.pause()
                    code = interact(lab[options.shell])
        except LabError as error:
            print(f"ipoibu lab: {error}", file=sys.stderr)
            failure = error
            code = 1
        finally:
            live.finish()
            if lab.capture is not None:
                print(f"ipoibu lab: {lab.capture}", file=sys.stderr)
        interrupts.check()
        results = roles.results(lab)
        code = roles.status(lab) or code
        if options.json:
            _print_json(lab, results, code, failure, checks if options.check else None)
        _report(options, junit_file, results, failure)
    for failed in (it for it in results if it.failure is not None and it.culprit is None):
        print(f"ipoibu lab: machine {failed.name}: {failed.failure}", file=sys.stderr)
    return code


def _scripts(options: argparse.Namespace, names: str) -> list[Script]:
    """Return the scripts of --run, and COMMAND."""
    from ipoibu.lab.machines.roles import Script

    scripts = [Script.parse(text, names) for text in options.run_scripts or ()]
    if options.rest:
        scripts.append(Script("a", words=tuple(options.rest)))
    if options.shell is not None and options.shell not in tuple(names):
        raise UsageError(f"--shell {options.shell!r}: the roles are {', '.join(names)}")
    return scripts


def _lab(options: argparse.Namespace, guests: int, live: Live) -> Lab:
    from ipoibu.lab import Lab
    from ipoibu.lab.machines.runner import MEMORY_MIB

    lab = Lab(
        guests,
        kernel=options.kernel,
        flavour=options.flavour,
        init=options.init or "lab",
        ipoib=options.ipoib,
        fabric=options.fabric,
        device=options.device,
        mode=options.mode or "datagram",
        partitions=options.partitions,
        sm=0 if options.sm is None else _number("sm", options.sm, guests),
        share=options.share,
        output=options.output,
        memory=MEMORY_MIB if options.memory is None else _number("memory", options.memory),
        userland=options.userland,
        capture=options.capture,
        impair=options.impair or (),
        tolerate_warnings=bool(options.tolerate_warnings),
        print_output=live,
    )
    if options.check and sum(it.interface == "ib0" for it in lab.plans) < 2:
        raise UsageError("--check needs two machines with IP over InfiniBand")
    return lab


def _look(
    lab: Lab, options: argparse.Namespace, checks: list[Outcome], *, has_scripts: bool
) -> None:
    """Check the machines of a lab, or show them where nothing else is asked for."""
    is_quiet = options.tap or options.json
    if options.check:
        _check(lab, checks, quiet=is_quiet)
    elif not has_scripts and options.shell is None:
        _introduce(lab, quiet=is_quiet)


def _print_json(
    lab: Lab,
    results: Sequence[Result],
    status: int,
    failure: LabError | None,
    checks: Sequence[Outcome] | None,
) -> None:
    from ipoibu.lab.machines.json_report import as_json

    report = as_json(lab.plans, results, status, failure)
    if checks is not None:
        report["checks"] = [outcome.as_dict() for outcome in checks]
    print(json.dumps(report, indent=2), flush=True)


def _junit_file(options: argparse.Namespace) -> AbstractContextManager[BinaryIO | None]:
    """Return the file for the report: one that cannot be written is refused before anything boots."""
    return nullcontext() if options.junit is None else open(options.junit, "wb")


def _report(
    options: argparse.Namespace,
    junit_file: BinaryIO | None,
    results: Sequence[Result],
    failure: LabError | None,
) -> None:
    """Write the reports; a failure that is no machine's own is a result called `lab`."""
    if failure is not None and all(it.succeeded for it in results):
        from ipoibu.lab.machines.runner import Result

        results = [*results, Result("lab", None, "", "", str(failure), 0.0)]
    if junit_file is not None:
        from ipoibu.lab.machines.junit import junit

        junit_file.write(junit("ipoibu lab", results))
    if options.tap:
        from ipoibu.lab.machines.tap import tap

        sys.stdout.write(tap(results))


def _check(lab: Lab, checks: list[Outcome], *, quiet: bool) -> None:
    """Let machines try everything towards each other, and print what they could do; `LabError` if not all."""
    from ipoibu.lab import LabError
    from ipoibu.lab.machines.check import check

    for outcome in check(lab):
        checks.append(outcome)
        if not quiet:
            print(outcome, flush=True)
        if not outcome.ok:
            print(outcome.detail, file=sys.stderr, flush=True)
    failed = sum(not outcome.ok for outcome in checks)
    if failed:
        raise LabError(f"{failed} of {len(checks)} checks failed")
    if not quiet:
        print(f"all {len(checks)} checks passed", flush=True)


def _introduce(lab: Lab, *, quiet: bool) -> None:
    """Print each machine with its interface, as it says itself, and whom the first one reaches."""

    def show(machine: Machine, command: str) -> None:
        said = machine.succeed(command)
        if not quiet:
            print(f"$ {command}\n{said}", flush=True)

    for machine, plan in zip(lab.guests, lab.plans, strict=True):
        if not quiet:
            print(f"{machine.name}  {machine.description}", flush=True)
        own = "ipoibu show" if plan.runs_ipoibu else "ip -details address show dev"
        show(machine, f"{own} {machine.interface}")
    first, *others = lab.guests
    for other in others:
        for address in filter(None, (other.ipv4, other.ipv6)):
            show(first, f"ping -c 3 -i 0.2 -W 5 {address}")
    if first.interface == "ib0":
        show(first, "ipoibu neigh ib0" if lab.plans[0].runs_ipoibu else "ip neigh show dev ib0")


def _number(name: str, text: str, most: int = 1 << 20) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most):
        raise UsageError(f"--{name} {text!r}: expected a number from 1 to {most}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise UsageError(f"--timeout {text!r}: expected a number of seconds")
    return seconds
