# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu show`: interfaces with properties that `ip link` does not show of a TUN."""

from __future__ import annotations

import argparse
import ipaddress
from typing import TYPE_CHECKING, Any

from ipoibu.cli.view import Answers, add_view, viewer

if TYPE_CHECKING:
    from ipoibu.cli.parser import Parser


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_view(commands, "show", "show interfaces and their addresses", text, data)
    parser.add_argument(
        "-br",
        "--brief",
        action="store_true",
        help="print name, state and addresses only, as `ip -br address` does",
    )
    parser.add_argument(
        "-o",
        "--oneline",
        action="store_true",
        help="print each interface on one line, with a backslash for each end of a line, as `ip -o` does",
    )
    views = {form: viewer("show", form, data) for form in (text, brief, oneline)}

    def run(options: argparse.Namespace) -> int:
        return views[brief if options.brief else oneline if options.oneline else text](options)

    parser.set_defaults(run=run)


def data(answers: Answers) -> list[dict[str, Any]]:
    return [answer for _, answer in answers]


def text(answers: Answers) -> str:
    return "\n".join(_interface(answer) for _, answer in answers)


def brief(answers: Answers) -> str:
    """A line with the columns of `ip -br address`: name, state, addresses."""
    return "\n".join(
        f"{answer['name']:<16} {answer['state'].upper():<14} "
        + " ".join(entry["address"] for entry in answer["addresses"])
        for _, answer in answers
    )


def oneline(answers: Answers) -> str:
    return "\n".join(_interface(answer).replace("\n", "\\") for _, answer in answers)


def _interface(answer: dict[str, Any]) -> str:
    lines = [
        "{name}: device {device} port {port} {link_layer} state {state} mode {mode}"
        " mtu {mtu}".format_map(answer)
        + (f" of {answer['link_mtu']}" if answer["link_mtu"] != answer["mtu"] else "")
        + (f" queues {answer['queues']}" if answer.get("queues", 1) > 1 else ""),
        "    link/infiniband {hwaddr} brd {broadcast}".format_map(answer),
        "    pkey {pkey}".format_map(answer)
        + (" membership limited" if answer["membership"] == "limited" else "")
        + " qkey {qkey} qpn {qpn} gid {gid} guid {guid}".format_map(answer),
    ]
    if answer.get("gid_by") is not None:
        lines.append("    underlay {gid} by {gid_by}".format_map(answer))
    for rail in answer.get("rails") or ():
        lines.append("    rail {device} port {port} {state} for {since_s:.0f}s".format_map(rail))
        if rail.get("tx_packets") is not None:
            traffic = " packets out {tx_packets} in {rx_packets} peers {peers}".format_map(rail)
            lines[-1] += traffic
    if answer.get("ethernet") is not None:
        lines.append("    link/ether {mac} guests {guests}".format_map(answer["ethernet"]))
        if answer["ethernet"]["vlan"] is not None:
            lines[-1] += f" vlan {answer['ethernet']['vlan']}"
    for entry in answer["addresses"]:
        address = ipaddress.ip_interface(entry["address"])
        family = "inet" if address.version == 4 else "inet6"
        lines.append(f"    {family} {entry['address']} {entry['state']}")
    if answer.get("dhcp") is not None:
        lines += _dhcp(answer["dhcp"])
    if answer.get("dhcp6") is not None:
        lines += _dhcp6(answer["dhcp6"])
    return "\n".join(lines)


def _dhcp(dhcp: dict[str, Any]) -> list[str]:
    """The DHCP client's state, and what the server says."""
    first = f"    dhcp {dhcp['state']} client-id {dhcp['client_id']}"
    if dhcp["address"] is None:
        return [first]
    lines = [first, f"    dhcp {dhcp['address']} from {dhcp['server']} expires {_end(dhcp)}"]
    for route in dhcp["routes"]:
        lines.append(
            f"    dhcp route {route['to']}" + (f" via {route['via']}" if route["via"] else "")
        )
    names = [f"dns {ip}" for ip in dhcp["dns"]]
    names += [f"domain {dhcp['domain']}"] if dhcp["domain"] else []
    names += [f"search {name}" for name in dhcp["search"]]
    return [*lines, *([f"    dhcp {' '.join(names)}"] if names else [])]


def _dhcp6(dhcp6: dict[str, Any]) -> list[str]:
    """The DHCPv6 client's state, and what the server says."""
    first = f"    dhcp6 {dhcp6['state']} duid {dhcp6['duid']} iaid {dhcp6['iaid']}"
    if dhcp6["address"] is None:
        return [first]
    place = f"{dhcp6['address']} from {dhcp6['server']}"
    names = [f"dns {ip}" for ip in dhcp6["dns"]]
    names += [f"search {name}" for name in dhcp6["search"]]
    lines = [first, f"    dhcp6 {place} expires {_end(dhcp6)}"]
    return [*lines, *([f"    dhcp6 {' '.join(names)}"] if names else [])]


def _end(dhcp: dict[str, Any]) -> str:
    return "never" if dhcp["expires_s"] is None else f"in {dhcp['expires_s']:.0f}s"
