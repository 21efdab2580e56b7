# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab`: hosts in network namespaces that run IP over InfiniBand, for demonstrations and
tests. `lab_machines` has `ipoibu lab --guests`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ipoibu.base.errors import UsageError
from ipoibu.cli import lab_kernel, lab_machines
from ipoibu.cli.interrupts import Interrupts
from ipoibu.cli.options import add_options, as_arguments, given

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser
    from ipoibu.lab import NamespaceLab
    from ipoibu.lab.subnet import LabSubnet


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "lab",
        help="hosts in network namespaces or in virtual machines, for demonstrations and tests",
        usage="ipoibu lab [options] [doctor | kernel ... | userland ...] [-- COMMAND ...]",
        description="Build hosts in network namespaces, each with an interface ib0; check that"
        " they reach each other (--check), run COMMAND in the first one, or wait for Ctrl-C."
        " With --guests: boot virtual machines, a to h, with the kernel's own ib_ipoib or with ipoibu; check"
        " that they reach each other (--check), run scripts in them (--run), and COMMAND in the first one.",
    )
    lab_machines.add(parser)
    parser.add_argument(
        "--hosts", metavar="N", type=_number, help="the number of hosts; 2 by default"
    )
    parser.add_argument(
        "--device",
        metavar="DEV",
        help="soft: the built-in HCA; with --guests rxe0, soft:vec0 or siw0: ipoibu on that in every other"
        " machine, beginning with a, and ib_ipoib in the others; on siw0 ipoibu in all",
    )
    parser.add_argument(
        "--fabric",
        metavar="FABRIC",
        help="the fabric: roce, the default, or ib: OpenSM manages a fabric that ibsim simulates; with"
        " --guests ib, the default, roce, iwarp, or none: no RDMA device",
    )
    parser.add_argument(
        "--partitions",
        metavar="FILE",
        help="a partitions.conf: with ib for OpenSM to read, with roce as for `up`; with --guests and ib it"
        " fills the ports' P_Key tables, and full members have a child interface",
    )
    parser.add_argument(
        "--underlay",
        metavar="UNDERLAY",
        help="the network below: link, the default, or routed4 or routed6: a network of IPv4 or IPv6"
        " for each host, a router between them, and --peer",
    )
    add_options(parser, "lab")
    parser.add_argument(
        "--check",
        action="store_true",
        help="check ping, multicast and TCP between the hosts, and with --guests restarts, each machine with"
        " the next one; exit code 1 if a check fails",
    )
    parser.add_argument("--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(metavar="ACTION", dest="action", prog="ipoibu lab")
    doctor = actions.add_parser(
        "doctor",
        help="only say what this host lacks for the lab and its machines, and how to mend it",
    )
    doctor.add_argument("--json", action="store_true", help="print JSON with stable keys")
    doctor.set_defaults(run=run_doctor)
    lab_kernel.add(actions)
    userland = actions.add_parser(
        "userland",
        help="build, fetch, list and check the programs of machines, for hosts that lack them",
        usage="ipoibu lab userland [options] build | fetch SOURCE | list | path | verify",
    )
    userland.add_argument("words", nargs="+", metavar="WORD", help="the action, and what it needs")
    userland.add_argument(
        "--sha256", metavar="DIGEST", help="what `fetch` expects, if there is no file SOURCE.sha256"
    )
    userland.add_argument(
        "--add",
        metavar="PACKAGE",
        action="append",
        default=[],
        help="a Debian package that `build` adds; may be repeated",
    )
    userland.add_argument("--suite", metavar="SUITE", help="the release of Debian for `build`")
    userland.add_argument("--output", metavar="DIRECTORY", help="where `build` leaves its file")
    userland.add_argument("--json", action="store_true", help="print JSON with stable keys")
    userland.set_defaults(run=run_userland)


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UsageError(f"--hosts {text!r} is no number")
    return int(text[:9])


def run(options: argparse.Namespace) -> int:
    if options.guests is not None:
        return lab_machines.run(options)
    lab_machines.refuse_without_guests(options)

    from ipoibu.daemon.config.interface_config import InterfaceConfig
    from ipoibu.lab import NamespaceLab
    from ipoibu.lab.underlay import underlay
    from ipoibu.lab.user_namespace import enter_user_namespace

    hosts = 2 if options.hosts is None else options.hosts
    texts = given(options, "lab")
    # This refuses wrong values once, before every host refuses them.
    InterfaceConfig.build("ib0", {"device": "soft:eth0", **texts})
    below = underlay(options.underlay)
    further = as_arguments(texts)
    subnet = _subnet(options, hosts)
    if subnet is None and options.partitions is not None:
        further += ["--partitions", os.path.abspath(options.partitions)]
    is_own = enter_user_namespace()
    began = time.monotonic()
    with (
        Interrupts() as interrupts,
        NamespaceLab(
            hosts,
            device=options.device or "soft",
            options=further,
            subnet=subnet,
            underlay=below,
        ) as lab,
    ):
        interrupts.check()
        report: dict[str, Any] = {"hosts": lab.describe()}
        if not options.json:
            _introduce(lab, time.monotonic() - began)
        code = 0
        if options.check:
            code = _check(lab, report, quiet=options.json)
        if options.json:
            print(json.dumps(report, indent=2), flush=True)
        if code == 0 and options.rest:
            return _command(lab, options.rest)
        if not options.check:
            return _stay(lab, interrupts, quiet=options.json, is_own=is_own)
        return code


def run_doctor(options: argparse.Namespace) -> int:
    from ipoibu.cli import lab_doctor

    return lab_doctor.run(options)


def run_userland(options: argparse.Namespace) -> int:
    from ipoibu.cli import lab_userland

    return lab_userland.run(options)


def _subnet(options: argparse.Namespace, hosts: int) -> LabSubnet | None:
    from ipoibu.lab.subnet import ONE_LINK, LabSubnet

    if options.fabric in (None, "roce"):
        return None
    if options.fabric != "ib":
        raise UsageError(f"--fabric {options.fabric!r} is neither roce nor ib")
    partitions = ONE_LINK
    if options.partitions is not None:
        try:
            partitions = Path(options.partitions).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--partitions {options.partitions}: {error}") from error
    return LabSubnet(hosts, partitions)


def _introduce(lab: NamespaceLab, seconds: float) -> None:
    print(f"{len(lab.hosts)} hosts up in {seconds:.1f} s")
    for host in lab.hosts:
        shown = host.ask("show")
        print(f"{host.name}  namespace {host.namespace.name}  mtu {shown['mtu']}")
        print(f"    hwaddr {shown['hwaddr']}")
        print(f"    {host.ipv4} {host.ipv6}", flush=True)


def _check(lab: NamespaceLab, report: dict[str, Any], *, quiet: bool) -> int:
    from ipoibu.lab.check import check

    outcomes = []
    for outcome in check(lab):
        outcomes.append(outcome)
        if not quiet:
            print(outcome, flush=True)
    ok = all(outcome.ok for outcome in outcomes)
    report["checks"] = [outcome.as_dict() for outcome in outcomes]
    report["ok"] = ok
    if not quiet:
        passed = sum(outcome.ok for outcome in outcomes)
        print(f"{passed} of {len(outcomes)} checks passed", flush=True)
    return 0 if ok else 1


def _command(lab: NamespaceLab, command: list[str]) -> int:
    """Run the command in the first host with our terminal; returns its exit code as a shell does."""
    own = os.path.dirname(sys.executable)
    environment = {"PATH": f"{own}:{os.environ.get('PATH', os.defpath)}", **lab.environment()}
    process = lab.hosts[0].namespace.popen(command, environment=environment)
    # Ctrl-C at the terminal reaches the command, too: let it decide, and wait for its end.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        if process.poll() is None:
            process.kill()
            process.wait()
    return code if code >= 0 else 128 - code


def _stay(lab: NamespaceLab, interrupts: Interrupts, *, quiet: bool, is_own: bool) -> int:
    from ipoibu.lab import LabError

    # `sigtimedwait` needs the signal blocked. Block it only now, since child processes inherit it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        if not quiet:
            enter = f"ip netns exec {lab.hosts[0].namespace.name}"
            if is_own:  # the names are in the lab's mount namespace
                enter = f"nsenter -t {os.getpid()} -U -m --preserve-credentials {enter}"
            print(f"enter a host:  {enter} bash")
            print(f"look at it:    {enter} {_own_command()} show")
            print("end the lab:   Ctrl-C", flush=True)
        while True:
            interrupts.check()
            for host in lab.hosts:
                if (output := host.ended()) is not None:
                    raise LabError(f"{host.name}: ipoibu up ended: {output}")
            # SIGCHLD ends the wait; an interrupt just before it is noticed after a second.
            signal.sigtimedwait({signal.SIGCHLD}, 1.0)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 0
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _own_command() -> str:
    """Return the command for another shell: the name `ipoibu` if the PATH leads to this very script."""
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) != "ipoibu":
        return f"{sys.executable} -m ipoibu.cli"
    return "ipoibu" if shutil.which("ipoibu") == script else script
