#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Draw docs/reference/state-machines.md from the tables that the engine runs on.

docs/make/draw_state_machines.py            write the file
docs/make/draw_state_machines.py --check    exit 1 if the file is not what would be written
"""

from __future__ import annotations

import enum
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from generated_page import write_or_check

from ipoibu.proto.cm import rdma_cm_state
from ipoibu.proto.cm import state as cm_state
from ipoibu.proto.dhcp import state as dhcp_state
from ipoibu.proto.dhcp import state6 as dhcp6_state
from ipoibu.proto.ethernet import binding
from ipoibu.proto.groups import groups as group
from ipoibu.proto.groups import link
from ipoibu.proto.machine.table import Table
from ipoibu.proto.mesh import state as mesh_state
from ipoibu.proto.neigh import dad, nud, routers
from ipoibu.proto.rc import connection as rc_connection
from ipoibu.proto.rc import peer as rc_peer
from ipoibu.proto.sa import path as sa_path
from ipoibu.proto.sa import requests as sa_requests
from ipoibu.proto.sa import transaction as sa_transaction

PAGE: Final = Path(__file__).parents[1] / "reference/state-machines.md"

WIDTH: Final = 100  # columns of a line, as on every page

INTRODUCTION: Final = """\
# State machines

`docs/make/draw_state_machines.py` draws this page from the literal tables in `ipoibu/proto`; a test
fails when the page is not what the script draws. In the pictures an arrow says `INPUT / ACTIONS`,
and inputs that change nothing are left out. The tables have every pair of state and input. In a
table with a column for each state, `→ STATE` has the actions under it, `·` means that the machine
ignores the input, and an empty field that the input cannot happen there: feeding it is an error in
this program, and raises. A machine whose table would be too wide has a row for each input and its
effect. Such a row lists the states; `stays` means that the machine keeps its state, and `·` that it
ignores the input. An input cannot happen in the states that its rows do not list.
"""

MACHINES: Final[tuple[tuple[Table[Any, Any, Any], str, str], ...]] = (
    (link.MACHINE, "ipoibu/proto/groups/link.py", "RFC 4391 §5: the broadcast group comes first."),
    (dad.MACHINE, "ipoibu/proto/neigh/dad.py", "RFC 5227 for IPv4, RFC 4862 §5.4 for IPv6."),
    (
        dhcp_state.MACHINE,
        "ipoibu/proto/dhcp/state.py",
        "RFC 2131 §4.4: one per interface that gets an address by DHCP.",
    ),
    (
        dhcp6_state.MACHINE,
        "ipoibu/proto/dhcp/state6.py",
        "RFC 8415 §18.2: one per interface that gets an address by DHCPv6.",
    ),
    (
        nud.MACHINE,
        "ipoibu/proto/neigh/nud.py",
        "RFC 4861 §7.3 and Appendix C, for ARP and ND alike; FAILED is the negative cache.",
    ),
    (
        binding.MACHINE,
        "ipoibu/proto/ethernet/binding.py",
        "One per address of a guest behind a TAP.",
    ),
    (
        routers.MACHINE,
        "ipoibu/proto/neigh/routers.py",
        "One per router that advertises itself: whether the local stack may use it.",
    ),
    (
        group.MEMBERSHIP,
        "ipoibu/proto/groups/groups.py",
        "One per MGID: whether the interface receives its datagrams.",
    ),
    (
        group.SENDING,
        "ipoibu/proto/groups/groups.py",
        "One per IP group: whether the pump can send to it.",
    ),
    (
        sa_path.MACHINE,
        "ipoibu/proto/sa/path.py",
        "Under a subnet administrator, one per port and per group that the interface sends to.",
    ),
    (
        sa_transaction.MACHINE,
        "ipoibu/proto/sa/transaction.py",
        "One per request to the subnet administrator.",
    ),
    (
        sa_requests.SERVICE,
        "ipoibu/proto/sa/requests.py",
        "One per client: whether the subnet administrator answers.",
    ),
    (
        cm_state.MACHINE,
        "ipoibu/proto/cm/state.py",
        "InfiniBand volume 1, §12.9: one per connection, on either side.",
    ),
    (
        rc_connection.MACHINE,
        "ipoibu/proto/rc/connection.py",
        "RFC 4755: one per connection. It drives the fabric and the communication manager.",
    ),
    (
        rc_peer.MACHINE,
        "ipoibu/proto/rc/peer.py",
        "RFC 4755: one per peer that accepts connections. It decides how packets go to that peer.",
    ),
    (
        rdma_cm_state.MACHINE,
        "ipoibu/proto/cm/rdma_cm_state.py",
        "One per connection that the kernel's rdma_cm makes.",
    ),
    (
        mesh_state.MACHINE,
        "ipoibu/proto/mesh/state.py",
        "One per connection of an iWARP mesh, on either side.",
    ),
)


def page() -> str:
    """The whole file."""
    parts = [INTRODUCTION]
    for machine, path, about in MACHINES:
        parts.append(f"## {machine.name}\n")
        parts.append(textwrap.fill(f"`{path}`. {about}", WIDTH) + "\n")
        parts.append(_picture(machine))
        matrix = _matrix(machine)
        too_wide = max(map(len, matrix.splitlines())) > WIDTH
        parts.append(_effects(machine) if too_wide else matrix)
        parts.append(_legend("Inputs", {fed for _, fed, _, _ in machine}))
        parts.append(_legend("Actions", {act for *_, actions in machine for act in actions}))
    parts.append(_evidence())
    return "\n".join(parts)


def _picture(machine: Table[Any, Any, Any]) -> str:
    arrows: dict[tuple[str, str], list[str]] = defaultdict(list)
    for state, fed, following, actions in machine:
        if state is not following or actions:
            names = ", ".join(action.name for action in actions)
            label = f"{fed.name} / {names}" if names else fed.name
            arrows[state.name, following.name].append(label)
    lines = [f"    [*] --> {machine.initial.name}"]
    for (state, following), labels in arrows.items():
        lines.append(f"    {state} --> {following}: {'<br>'.join(labels)}")
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```", ""])


def _matrix(machine: Table[Any, Any, Any]) -> str:
    states = _members(machine.initial)
    inputs = list(dict.fromkeys(fed for _, fed, _, _ in machine))
    inputs.sort(key=_members(inputs[0]).index)
    lines = [_row(["", *(state.name for state in states)]), _row(["---"] * (len(states) + 1))]
    for fed in inputs:
        fields = [_field(machine, state, fed) for state in states]
        lines.append(_row([f"**{fed.name}**", *fields]))
    return "\n".join([*lines, ""])


def _effects(machine: Table[Any, Any, Any]) -> str:
    """A row for each input and effect, with the states in which the input has this effect."""
    lines = [_row(["input", "in", "to", "actions"]), _row(["---"] * 4)]
    fed = list(dict.fromkeys(fed for _, fed, _, _ in machine))
    for one in sorted(fed, key=_members(fed[0]).index):
        effects: dict[tuple[str, str], list[str]] = defaultdict(list)
        for state in _members(machine.initial):
            if (state, one) in machine:
                following, actions = machine.step(state, one)
                names = ", ".join(action.name for action in actions)
                stays = "stays" if actions else "·"
                to = stays if following is state else following.name
                effects[to, names].append(state.name)
        for (to, names), states in effects.items():
            empty = _row([f"**{one.name}**", "", to, names])
            # a row whose list of states is too long goes on in the next one
            for part in textwrap.wrap(", ".join(states), WIDTH - len(empty)):
                lines.append(_row([f"**{one.name}**", part.rstrip(","), to, names]))
    return "\n".join([*lines, ""])


def _field(machine: Table[Any, Any, Any], state: enum.Enum, fed: enum.Enum) -> str:
    if (state, fed) not in machine:
        return ""
    following, actions = machine.step(state, fed)
    names = ", ".join(action.name for action in actions)
    if following is state:
        return names or "·"
    return f"→ {following.name}" + (f"<br>{names}" if names else "")


def _row(fields: Iterable[str]) -> str:
    return "| " + " | ".join(fields) + " |"


def _legend(title: str, members: set[enum.Enum]) -> str:
    order = _members(next(iter(members)))
    lines = [f"- `{member.name}`: {member.value}" for member in order if member in members]
    return "\n".join([f"{title}\n", *lines, ""])


def _members(one: enum.Enum) -> list[enum.Enum]:
    """All of an enumeration, in the order of its definition."""
    return list(type(one))


def _evidence() -> str:
    """RFC 4861 §7.2.5 as `nud.EVIDENCE` has it."""
    lines = [
        "## Neighbour advertisement to input\n",
        "`ipoibu/proto/neigh/nud.py`, RFC 4861 §7.2.5; `ipoibu/proto/neigh/arp.py` maps ARP onto it.\n",
        _row(["Solicited", "Override", "cached link-layer address", "input"]),
        _row(["---"] * 4),
    ]
    for (solicited, override, cached), fed in nud.EVIDENCE.items():
        lines.append(_row([str(int(solicited)), str(int(override)), cached.value, fed.name]))
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __doc__ or "", sys.argv[1:]))
