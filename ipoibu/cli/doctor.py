# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu doctor`: check the machine, and name the command that repairs each problem."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from ipoibu.errors import UsageError

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check this machine, or a device",
        description="Check that this machine has what ipoibu needs; exit code 1 if not.",
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
    parser.add_argument("-j", "--json", action="store_true", help="print JSON with stable keys")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ipoibu.addr import DEFAULT_PKEY, PKey
    from ipoibu.host.checkup import checkup, link_partition

    if options.pkey is not None and options.partitions is None and options.device is None:
        raise UsageError(
            "--pkey needs a place to look for it: give --device DEV or --partitions FILE too"
        )
    pkey = PKey.parse(options.pkey or str(DEFAULT_PKEY))
    findings = checkup(options.device, pkey)
    if options.partitions is not None:
        findings.append(link_partition(options.partitions, pkey))
    if options.json:
        print(json.dumps([finding.as_dict() for finding in findings], indent=2))
    else:
        width = max(len(finding.check) for finding in findings)
        for finding in findings:
            print(f"{finding.status:4}  {finding.check:{width}}  {finding.detail}")
            if finding.remedy:
                print(f"{'':{width + 8}}mend: {finding.remedy}")
    return 1 if any(finding.status == "fail" for finding in findings) else 0
