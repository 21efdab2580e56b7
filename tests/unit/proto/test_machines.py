# SPDX-License-Identifier: BSD-2-Clause
"""All tables over the full product of their states and inputs."""

from __future__ import annotations

import enum
import importlib
import itertools
import pkgutil
from typing import Any, Final

import pytest

from ipoibu import proto
from ipoibu.proto.cm import rdma_cm_state
from ipoibu.proto.cm import state as cm_state
from ipoibu.proto.dhcp import state as dhcp_state
from ipoibu.proto.dhcp import state6 as dhcp6_state
from ipoibu.proto.ethernet import binding
from ipoibu.proto.groups import groups as group
from ipoibu.proto.groups import link
from ipoibu.proto.machine.table import Impossible, Table
from ipoibu.proto.mesh import state as mesh_state
from ipoibu.proto.neigh import dad, nud, routers
from ipoibu.proto.paths import State as SaPathState
from ipoibu.proto.rc import connection as rc_connection
from ipoibu.proto.rc import peer as rc_peer
from ipoibu.proto.sa import path as sa_path
from ipoibu.proto.sa import requests as sa_requests
from ipoibu.proto.sa import transaction

AnyTable = Table[Any, Any, Any]

MACHINES: dict[str, tuple[AnyTable, type[enum.Enum], type[enum.Enum], type[enum.Enum]]] = {
    "link": (link.MACHINE, link.State, link.Input, link.Action),
    "address": (dad.MACHINE, dad.State, dad.Input, dad.Action),
    "DHCP": (dhcp_state.MACHINE, dhcp_state.State, dhcp_state.Input, dhcp_state.Action),
    "DHCPv6": (dhcp6_state.MACHINE, dhcp6_state.State, dhcp6_state.Input, dhcp6_state.Action),
    "address of a guest": (binding.MACHINE, binding.State, binding.Input, binding.Action),
    "neighbour": (nud.MACHINE, nud.State, nud.Input, nud.Action),
    "router": (routers.MACHINE, routers.State, routers.Input, routers.Action),
    "membership": (group.MEMBERSHIP, group.Member, group.MemberInput, group.MemberAction),
    "SA path": (sa_path.MACHINE, SaPathState, sa_path.Input, sa_path.Action),
    "sending": (group.SENDING, group.Sender, group.SenderInput, group.SenderAction),
    "mesh": (mesh_state.MACHINE, mesh_state.State, mesh_state.Input, mesh_state.Action),
    "RDMA CM": (
        rdma_cm_state.MACHINE,
        rdma_cm_state.State,
        rdma_cm_state.Input,
        rdma_cm_state.Action,
    ),
    "CM": (cm_state.MACHINE, cm_state.State, cm_state.Input, cm_state.Action),
    "RC connection": (
        rc_connection.MACHINE,
        rc_connection.State,
        rc_connection.Input,
        rc_connection.Action,
    ),
    "RC peer": (rc_peer.MACHINE, rc_peer.State, rc_peer.Input, rc_peer.Action),
    "SA request": (
        transaction.MACHINE,
        transaction.State,
        transaction.Input,
        transaction.Action,
    ),
    "SA": (
        sa_requests.SERVICE,
        sa_requests.Service,
        sa_requests.ServiceInput,
        sa_requests.ServiceAction,
    ),
}
every_machine = pytest.mark.parametrize("name", MACHINES)

# The inputs that a peer, the pump or the fabric can cause at any time; the engine feeds the others.
UNASKED: dict[str, set[enum.Enum]] = {
    "link": {
        link.Input.STOP,
        link.Input.PORT_UP,
        link.Input.PORT_DOWN,
        link.Input.PORT_GID,
        link.Input.BROADCAST_JOINED,
    },
    "DHCP": {
        dhcp_state.Input.OFFER,
        dhcp_state.Input.ACK,
        dhcp_state.Input.NAK,
        dhcp_state.Input.LINK_DOWN,
        dhcp_state.Input.STOP,
    },
    "DHCPv6": {dhcp6_state.Input.LINK_DOWN, dhcp6_state.Input.STOP},
    "neighbour": {nud.Input.MISS, nud.Input.USED},
    "membership": {group.MemberInput.ATTACHED, group.MemberInput.REFUSED},
    "sending": {group.SenderInput.USED, group.SenderInput.MISS},
    "router": {routers.Input.ADVERTISED},  # makes a router that others can be about
    "SA path": {sa_path.Input.WANTED, sa_path.Input.RESOLVED},
    "address": {dad.Input.LINK_DOWN},
    "address of a guest": {binding.Input.PROBED, binding.Input.SOURCE, binding.Input.CLAIM},
    "mesh": set(),  # CLOSED has no connection that could get an input: see below
    "RDMA CM": set(),
    "CM": {cm_state.Input.REJ},  # `test_cm_tables` says which others can come in which states
    "RC connection": set(),
    "RC peer": set(),
    "SA request": set(),  # `test_sa_machine` says which can come in which states
    "SA": {sa_requests.ServiceInput.ANSWERED, sa_requests.ServiceInput.UNANSWERED},
}
# The end of what goes only one way
LAST: dict[str, enum.Enum] = {"SA request": transaction.State.DONE}


def test_no_table_is_missing_here() -> None:
    found = {
        id(value)
        for module in pkgutil.walk_packages(proto.__path__, "ipoibu.proto.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Table)
    }
    assert found == {id(machine) for machine, *_ in MACHINES.values()}


@every_machine
def test_every_pair_gives_a_legal_state_and_legal_actions_or_the_one_error(name: str) -> None:
    machine, states, inputs, actions = MACHINES[name]
    for state, fed in itertools.product(states, inputs):
        if (state, fed) in machine:
            following, doing = machine.step(state, fed)
            assert following in states
            assert all(action in actions for action in doing)
        else:
            with pytest.raises(Impossible, match=f"{fed.name} in {state.name}"):
                machine.step(state, fed)


@every_machine
def test_every_state_is_reached_from_the_first_and_none_is_a_dead_end(name: str) -> None:
    machine, states, _, _ = MACHINES[name]
    after: dict[enum.Enum, set[enum.Enum]] = {state: set() for state in states}
    for state, _, following, _ in machine:
        after[state].add(following)
    for start in states:
        seen, edge = {start}, [start]
        while edge:
            edge = [new for old in edge for new in after[old] if new not in seen]
            seen.update(edge)
        goes_on = start is not machine.initial and name in LAST
        assert LAST[name] in seen if goes_on else seen == set(states), f"from {start.name}"


@every_machine
def test_what_comes_unasked_has_a_row_in_every_state(name: str) -> None:
    machine, states, _, _ = MACHINES[name]
    missing = {
        (state, fed) for state in states for fed in UNASKED[name] if (state, fed) not in machine
    }
    assert missing == set()


@every_machine
def test_every_input_and_every_action_is_used(name: str) -> None:
    machine, _, inputs, actions = MACHINES[name]
    assert {fed for _, fed, _, _ in machine} == set(inputs)
    assert {action for *_, doing in machine for action in doing} == set(actions)


@every_machine
def test_a_state_that_times_out_is_never_entered_without_its_timer(name: str) -> None:
    machine, every, inputs, actions = MACHINES[name]
    states = set(every)
    if "ARM" not in actions.__members__:
        return  # the link has no timer of its own
    timed = {state for state in states if (state, inputs["TIMEOUT"]) in machine}
    if name == "DHCP":  # which waits for the end of a lease, too, where there is one
        timed |= {state for state in states if (state, dhcp_state.Input.DUE) in machine}
        states -= {dhcp_state.State.WAITING}
    if name == "DHCPv6":
        timed |= {state for state in states if (state, dhcp6_state.Input.DUE) in machine}
        states -= {dhcp6_state.State.WAITING}
    for state, fed, following, doing in machine:
        if state is not following and following in states:
            armed = actions["ARM"] in doing
            assert armed == (following in timed), f"{fed.name} in {state.name}"


def test_all_evidence_about_a_neighbour_has_a_row_wherever_it_can_arise() -> None:
    without_address = {nud.State.NONE, nud.State.INCOMPLETE, nud.State.FAILED}
    for (_, _, cached), fed in nud.EVIDENCE.items():
        states = (
            without_address if cached is nud.Cached.NOTHING else set(nud.State) - without_address
        )
        for state in states:
            assert (state, fed) in nud.MACHINE, f"{fed.name} in {state.name}"


def test_the_classification_of_advertisements_is_total() -> None:
    assert len(nud.EVIDENCE) == 2 * 2 * len(nud.Cached)


def test_an_address_is_published_whenever_it_was_recorded() -> None:
    for _, _, _, doing in nud.MACHINE:
        if nud.Action.RECORD in doing:
            published = {nud.Action.SEND, nud.Action.NOTIFY} & set(doing)
            assert len(published) == 1


def test_what_leaves_the_table_is_withdrawn() -> None:
    for state, _, following, doing in nud.MACHINE:
        leaves = following is nud.State.NONE and state is not nud.State.NONE
        assert (nud.Action.FORGET in doing) == leaves


def test_packets_never_wait_outside_incomplete() -> None:
    for state, fed, following, doing in nud.MACHINE:
        if state is nud.State.INCOMPLETE and following is not state:
            assert {nud.Action.RELEASE, nud.Action.REJECT} & set(doing), fed.name
        if nud.Action.QUEUE in doing:
            assert following is nud.State.INCOMPLETE


# A connection of a mesh


@pytest.mark.parametrize(
    "state", [state for state in mesh_state.State if state is not mesh_state.State.CLOSED]
)
def test_a_mesh_connection_can_end_in_every_state(state: mesh_state.State) -> None:
    following, _ = mesh_state.MACHINE.step(state, mesh_state.Input.ENDED)
    assert following is mesh_state.State.CLOSED


def test_a_mesh_connection_that_we_end_is_hung_up_and_one_that_ended_is_not() -> None:
    for state, fed, following, doing in mesh_state.MACHINE:
        closes = state is not following and following is mesh_state.State.CLOSED
        hangs_up = closes and fed is not mesh_state.Input.ENDED
        assert (mesh_state.Action.HANG_UP in doing) == hangs_up, f"{fed.name} in {state.name}"


def test_a_mesh_connection_that_closes_is_removed_and_its_contact_tried_again() -> None:
    for state, fed, following, doing in mesh_state.MACHINE:
        closes = state is not following and following is mesh_state.State.CLOSED
        assert (mesh_state.Action.FORGET in doing) == closes, f"{fed.name} in {state.name}"


def test_a_mesh_connection_is_named_once_and_introduced_when_it_opens() -> None:
    """The passive side names it when it accepts, the active side when it knows the peer."""
    for state, fed, following, doing in mesh_state.MACHINE:
        opens = state is not following and following is mesh_state.State.OPEN
        accepts = following is mesh_state.State.ACCEPTING
        is_ours = state is mesh_state.State.DIALING
        assert (mesh_state.Action.INTRODUCE in doing) == opens, fed.name
        assert (mesh_state.Action.REGISTER in doing) == opens, fed.name
        assert (mesh_state.Action.NAME in doing) == (accepts or (opens and is_ours)), fed.name


# A connection of the kernel's rdma_cm

KERNEL: Final = {
    rdma_cm_state.Input.ADDR_RESOLVED,
    rdma_cm_state.Input.ROUTE_RESOLVED,
    rdma_cm_state.Input.CONNECT_RESPONSE,
    rdma_cm_state.Input.ESTABLISHED,
    rdma_cm_state.Input.REJECTED,
    rdma_cm_state.Input.UNREACHABLE,
    rdma_cm_state.Input.DISCONNECTED,
    rdma_cm_state.Input.TIMEWAIT_EXIT,
    rdma_cm_state.Input.UNEXPECTED,
    rdma_cm_state.Input.BROKEN,
}


@pytest.mark.parametrize(
    "state", [state for state in rdma_cm_state.State if state is not rdma_cm_state.State.CLOSED]
)
def test_the_kernel_may_report_any_event_about_a_connection(state: rdma_cm_state.State) -> None:
    assert {fed for fed in KERNEL if (state, fed) not in rdma_cm_state.MACHINE} == set()


def test_the_policy_can_end_every_connection_that_it_has_not_ended() -> None:
    states = {
        state for state, fed, _, _ in rdma_cm_state.MACHINE if fed is rdma_cm_state.Input.DISCONNECT
    }
    ended = {rdma_cm_state.State.CLOSED, rdma_cm_state.State.LEAVING}
    assert states == set(rdma_cm_state.State) - ended


def test_an_rdma_cm_connection_that_closes_leaves_no_identifier() -> None:
    for state, fed, following, doing in rdma_cm_state.MACHINE:
        closes = following is rdma_cm_state.State.CLOSED
        assert (rdma_cm_state.Action.FORGET in doing) == closes, f"{fed.name} in {state.name}"


def test_the_policy_learns_of_every_end_of_an_rdma_cm_connection_that_it_has_not_made() -> None:
    by_policy = {rdma_cm_state.Input.REJECT, rdma_cm_state.Input.DISCONNECT}
    for state, fed, following, doing in rdma_cm_state.MACHINE:
        is_known = state is not rdma_cm_state.State.LEAVING
        if is_known and following is rdma_cm_state.State.CLOSED:
            reports = fed not in by_policy
            assert (rdma_cm_state.Action.REPORT_ENDED in doing) == reports, fed.name


def test_a_connection_that_may_carry_packets_ends_with_a_farewell() -> None:
    for state, fed, following, doing in rdma_cm_state.MACHINE:
        says = rdma_cm_state.Action.DISCONNECT in doing
        assert says == (following is rdma_cm_state.State.LEAVING and state is not following), fed
        if state is rdma_cm_state.State.ESTABLISHED and fed is rdma_cm_state.Input.DISCONNECT:
            assert says
