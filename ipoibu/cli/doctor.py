# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu doctor`: check the machine, and name the command that repairs each problem."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ipoibu.base.errors import IpoibuError, UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser
    from ipoibu.doctor.daemons import Shown
    from ipoibu.doctor.finding import Finding


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check this machine, a device, proxies, and guests behind a TAP",
        description="Check that this machine has what ipoibu needs, and explain running interfaces that are"
        " limited members of their partition, or have hosts (--proxy) or guests (--ethernet) behind them;"
        " exit code 1 if something is missing.",
    )
    parser.add_argument(
        "--device", metavar="DEV[/PORT]", help="also check this device, such as soft:eth0"
    )
    parser.add_argument(
        "--partitions", metavar="FILE", help="also check the link of --pkey in this partitions.conf"
    )
    parser.add_argument(
        "--pkey", metavar="P_KEY", help="the partition whose link to check; 0xffff by default"
    )
    parser.add_argument(
        "--peer",
        metavar="HOST[:PORT]",
        action="append",
        default=[],
        help="also check this peer of a link without multicast: TCP, UDP and the MTU on the way; may be"
        " repeated",
    )
    parser.add_argument("--peer-key-file", metavar="FILE", help="the key of the peers")
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.base.addr import DEFAULT_PKEY, PKey
    from ipoibu.doctor.daemons import daemons
    from ipoibu.doctor.machine import checkup, link_partition
    from ipoibu.doctor.membership import memberships
    from ipoibu.doctor.proxies import proxies
    from ipoibu.doctor.rails import rails

    if options.pkey is not None and options.partitions is None and options.device is None:
        raise UsageError(
            "--pkey needs a link to check: give --device DEV or --partitions FILE, too"
        )
    pkey = PKey.parse(options.pkey or str(DEFAULT_PKEY))
    findings = [_own_port(finding, options.device) for finding in checkup(options.device, pkey)]
    if options.partitions is not None:
        findings.append(link_partition(options.partitions, pkey))
    shown, silent = daemons()
    here = {name: each for name, each in shown.items() if "@" not in name}
    findings += [*proxies(here), *rails(here), *memberships(here)]
    findings += _peers(options)
    findings += silent
    findings += _taps(shown)
    return report(findings, as_json=options.json)


def report(findings: Sequence[Finding], *, as_json: bool) -> int:
    """Print findings and their remedies; return the exit code, 1 if one of them is a failure."""
    if as_json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            print(f"{finding.status:4}  {finding.check:{width}}  {finding.detail}")
            if finding.remedy:
                print(f"{'':{width + 8}}mend: {finding.remedy}")
    return 1 if any(finding.status == "fail" for finding in findings) else 0


def _peers(options: argparse.Namespace) -> Iterator[Finding]:
    if not options.peer:
        if options.peer_key_file is not None:
            raise UsageError("--peer-key-file needs a peer to check: give --peer HOST, too")
        return
    from ipoibu.base.device_name import DeviceKind, parse_device, parse_soft
    from ipoibu.daemon.config.parsers import parse_peer_key
    from ipoibu.doctor.peer import peer

    key = parse_peer_key(options.peer_key_file) if options.peer_key_file is not None else None
    device = parse_device(options.device)[0] if options.device is not None else ""
    is_soft = DeviceKind.of(device) is DeviceKind.SOFT
    netdev = parse_soft(device).netdev if is_soft else None
    for text in options.peer:
        yield from peer(text, key, netdev)


def _taps(shown: Shown) -> Iterator[Finding]:
    """Explain the interfaces with guests behind a TAP, as far as they still answer."""
    from ipoibu.daemon.control.client import Client
    from ipoibu.doctor.guests import tap
    from ipoibu.host.netlink import Netlink

    for name, each in shown.items():
        ethernet = each["ethernet"]
        if ethernet is None:
            continue
        with suppress(IpoibuError, OSError), Client(name) as client, Netlink() as netlink:
            link = netlink.link(name)
            master = link.master if link is not None else None
            yield from tap(
                name,
                client.request("guests"),
                client.request("stats"),
                link=link,
                bridge=netlink.link(master) if master is not None else None,
                own_addresses=netlink.addresses(link.index) if link is not None else (),
                vlan=ethernet["vlan"],
            )


def _own_port(finding: Finding, device: str | None) -> Finding:
    """A UDP port that an interface of ours holds is no failure."""
    if finding.check != "udp_port" or finding.status != "fail" or device is None:
        return finding
    for name in _interfaces_on(device):
        detail = f"{name} runs on {device} and holds its UDP port"
        return replace(finding, status="ok", detail=detail, remedy=f"ipoibu child add {name} P_KEY")
    return finding


def _interfaces_on(device: str) -> Iterator[str]:
    from ipoibu.daemon.control.client import Client
    from ipoibu.daemon.control.socket_paths import names

    with suppress(IpoibuError, OSError):
        for name in names():
            with suppress(IpoibuError, OSError), Client(name) as client:
                if client.request("show")["device"] == device:
                    yield name
