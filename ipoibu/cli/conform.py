# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conform`: grade a host on the link by the clauses of the RFCs."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ipoibu.base.bounds import Range
from ipoibu.base.device_name import parse_device
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.options import BY_NAME

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser
    from ipoibu.conform.link import Link
    from ipoibu.conform.report import Run
    from ipoibu.conform.verdict import Verdict

# Options of `ipoibu up` that describe the link
LINK_OPTIONS: Final = {
    "pkey": "the link's partition; 0xffff by default",
    "mtu": "the link's IP MTU, where it is not the default",
    "partitions": "OpenSM's partitions.conf, for a link without a subnet administrator",
}
PREFIX: Final = Range(8, 30, "bits")


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "conform",
        help="grade a host on the link by the RFCs",
        description="Send to a host what the RFCs of IPoIB demand answers to, and what they forbid, and judge"
        " what comes back. The tester has a device of its own on the same link, without an interface on it.",
        epilog="Exit code 1: a test failed. The host needs nothing but an address; with --helper the tests"
        " that need an act of the host run, too.",
    )
    parser.add_argument("--device", metavar="DEV", help="the tester's device, as for ipoibu up")
    parser.add_argument(
        "--peer",
        metavar="ADDRESS",
        action="append",
        default=[],
        help="an IP address of the host; again for a further one of the same host",
    )
    parser.add_argument(
        "--list", action="store_true", help="show every clause, and which tests grade it"
    )
    parser.add_argument(
        "--only", metavar="ID,...", help="run these tests, or the tests of these clauses"
    )
    parser.add_argument(
        "--mode",
        choices=("datagram", "connected", "both"),
        default="both",
        help="run the tests of datagram mode, those that need connections, or both (default)",
    )
    parser.add_argument(
        "--destructive",
        action="store_true",
        help="run tests, too, that disturb the host for a while: they claim its address, or lower its MTU",
    )
    parser.add_argument(
        "--helper",
        metavar="COMMAND",
        help="run a script at the host: COMMAND with the script as its last word, such as 'ssh root@host'",
    )
    parser.add_argument(
        "--helper-device",
        metavar="NAME",
        default="ib0",
        help="the host's net device, for --helper; ib0 by default",
    )
    parser.add_argument(
        "--prefix",
        metavar="BITS",
        type=PREFIX.read,
        default=24,
        help="the length of the prefix of the host's IPv4 network; 24 by default. The tester uses free"
        " addresses at its end",
    )
    for name, text in LINK_OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=BY_NAME[name].metavar, help=text)
    parser.add_argument(
        "--link-peer",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="on a link without multicast, a host of it, as --peer of ipoibu up; again for a further one",
    )
    parser.add_argument(
        "--peer-key-file", metavar="FILE", help="the key of the hosts of such a link"
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, help="choose the tester's addresses by this number"
    )
    parser.add_argument(
        "--json",
        metavar="FILE",
        nargs="?",
        const="-",
        help="write the verdicts as JSON with every byte sent and heard; with --list: print JSON",
    )
    parser.add_argument("--junit", metavar="FILE", help="write the verdicts as JUnit")
    parser.add_argument("--markdown", metavar="FILE", help="write the verdicts as a page")
    parser.add_argument("--html", metavar="FILE", help="write the verdicts as one HTML file")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print what was sent and heard for each failure",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.list:
        return _list(options.json is not None)
    if not options.device or not options.peer:
        raise UsageError("conform needs --device and --peer, or --list")
    from ipoibu.conform.port_link import PortLink

    link = PortLink(*parse_device(options.device), **_link(options))
    try:
        return grade(link, options)
    finally:
        link.close()


def _link(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `PortLink` that describe the link."""
    texts = {name: getattr(options, name) for name in LINK_OPTIONS}
    values = {name: BY_NAME[name].read(text) for name, text in texts.items() if text is not None}
    if "mtu" in values:
        values["mtu_bytes"] = values.pop("mtu")
    if options.link_peer:
        from ipoibu.daemon.config.parsers import parse_peer, parse_peer_key
        from ipoibu.fabric.base import MeshOptions

        key = None if options.peer_key_file is None else parse_peer_key(options.peer_key_file)
        values["peers"] = MeshOptions(tuple(map(parse_peer, options.link_peer)), key=key)
    elif options.peer_key_file is not None:
        raise UsageError(
            "--peer-key-file needs a link without multicast: give --link-peer HOST, too"
        )
    return values


def grade(link: Link, options: argparse.Namespace) -> int:
    """Run the chosen tests over the link, print and write the verdicts; return the exit code."""
    from ipoibu.conform.catalogue import chosen
    from ipoibu.conform.discovery import discover
    from ipoibu.conform.helper import Helper
    from ipoibu.conform.report import Run, details, line, summary
    from ipoibu.conform.suite import Suite
    from ipoibu.conform.test import Need
    from ipoibu.conform.verdict import Outcome

    connected = frozenset({Need.CONNECTED, Need.GSI})
    wanted = [
        test
        for test in chosen(options.only)
        if options.mode == "both" or bool(test.needs & connected) == (options.mode == "connected")
    ]
    out = sys.stderr if options.json == "-" else sys.stdout
    began_s = link.now()
    peer, around = discover(link, options.peer, options.prefix, options.seed)
    helper = None if options.helper is None else Helper.of(options.helper, options.helper_device)
    suite = Suite(link, peer, around, helper, is_destructive=options.destructive)
    verdicts: list[Verdict] = []

    def note(verdict: Verdict) -> None:
        verdicts.append(verdict)
        print(line(verdict), file=out, flush=True)

    try:
        suite.run(wanted, note)
    except KeyboardInterrupt:
        print("interrupted; the report has the tests so far", file=sys.stderr)
    result = Run(
        ", ".join(it for it in (peer.ipv4, peer.ipv6, peer.ipv6_global) if it is not None),
        peer.hwaddr.hex(":"),
        link.description,
        options.mode,
        verdicts,
        link.now() - began_s,
        _repeat(options),
    )
    for it in verdicts:
        if options.verbose and it.outcome in (Outcome.FAIL, Outcome.WARN):
            print(f"\n{line(it)}\n{details(result, it)}", file=out)
    print(summary(result), file=out)
    _write(result, options)
    return 1 if result.failed or len(verdicts) < len(wanted) else 0


def _repeat(options: argparse.Namespace) -> str:
    words = ["ipoibu", "conform", "--device", options.device]
    for ip in options.peer:
        words += ["--peer", ip]
    for name in ("helper", "pkey"):
        value = getattr(options, name)
        if value is not None and value != "0xffff":
            words += [f"--{name}", value]
    return shlex.join([*words, *(["--destructive"] if options.destructive else [])])


def _write(result: Run, options: argparse.Namespace) -> None:
    from ipoibu.conform.report import as_json, junit, page

    if options.json is not None:
        text = json.dumps(as_json(result), indent=1) + "\n"
        if options.json == "-":
            print(text, end="")
        else:
            Path(options.json).write_text(text, encoding="utf-8")
    if options.junit:
        Path(options.junit).write_text(junit(result), encoding="utf-8")
    if options.markdown:
        text = page(f"Conformance of {result.peer}", as_json(result), {})
        Path(options.markdown).write_text(text, encoding="utf-8")
    if options.html:
        _write_html(result, Path(options.html))


def _write_html(result: Run, path: Path) -> None:
    from ipoibu.bench.environment import environment
    from ipoibu.bench.html_report import Page, Part, Pre, Section, Table, write
    from ipoibu.conform.report import as_json, clause_outcomes, details, summary

    clauses = Table(
        ("clause", "source", "level", "verdict", "demand"),
        [
            (it["id"], it["source"], it["level"], it["outcome"], it["demand"])
            for it in clause_outcomes(result.verdicts)
        ],
    )
    tests: list[Part] = [
        Table(
            ("test", "verdict", "what a host does", "reason"),
            [(it.test.id, it.outcome.value, it.test.title, it.reason) for it in result.verdicts],
        )
    ]
    bad: list[Part] = []
    for it in result.verdicts:
        if it.outcome.value in ("fail", "warn"):
            bad += [f"{it.test.id}: {it.test.title}. {it.reason}", Pre(details(result, it))]
    facts = {**environment(), "peer": result.peer, "tester": result.link}
    sections = [
        Section("Verdicts", [summary(result), *tests]),
        Section("Clauses", [clauses]),
        *([Section("What was sent and heard", bad)] if bad else []),
    ]
    write(path, Page(f"Conformance of {result.peer}", facts, sections, as_json(result)))


def _list(as_json: bool) -> int:
    from ipoibu.conform.clauses import listed

    clauses: list[dict[str, Any]] = listed()
    if as_json:
        print(json.dumps(clauses, indent=1))
        return 0
    for it in clauses:
        seen = ", ".join(it["tests"]) or f"cannot be seen from outside: {it['unseen']}"
        print(f"{it['id']:14s} {it['level']:7s} {it['source']}: {it['demand']}\n{'':22s} {seen}")
    return 0
