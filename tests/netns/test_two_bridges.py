# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts with `--ethernet`: the guests on their bridges reach each other across the link."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.behind import inside, reaches
from tests.netns.conftest import Until
from tests.netns.detection import long_detection
from tests.netns.test_ethernet import GUESTS, MACS, plug

pytestmark = pytest.mark.netns


@dataclass
class Bridges:
    """Each host has a TAP in a bridge of its own, with one guest."""

    mode: str
    hosts: list[Host]
    guests: list[LabNamespace]

    def neighbour(self, place: int) -> str:
        """The MAC that a guest has in its cache for the other guest's IPv4 address."""
        address = GUESTS[1 - place][0]
        shown = self.guests[place].run(["ip", "-j", "neigh", "show", address])
        return str(json.loads(shown.stdout)[0]["lladdr"])

    def far_mac(self, place: int) -> str:
        """The MAC by which a host's guests see the other guest: it has a queue pair of its own, or in
        connected mode its host's."""
        address = GUESTS[1 - place][0]
        listed = self.hosts[1 - place].ask("guests")
        (own,) = {it["hwaddr"] for it in listed if it["kind"] == "guest" and it["ip"] == address}
        assert (own is None) == (self.mode == "connected")
        far = own or self.hosts[1 - place].ask("show")["hwaddr"]
        (mac,) = {it["mac"] for it in self.hosts[place].ask("guests") if it.get("hwaddr") == far}
        return str(mac)

    def counter(self, place: int, name: str) -> int:
        return int(self.hosts[place].ask("stats")[name])


@pytest.fixture(scope="module", params=["datagram", "connected"])
def bridges(request: pytest.FixtureRequest) -> Iterator[Bridges]:
    with ExitStack() as stack:
        lab = stack.enter_context(
            NamespaceLab(start=False, options=["--mode", request.param, "--ethernet"])
        )
        guests = []
        for number, host in enumerate(lab.hosts[:2]):
            host.addresses = []
            host.start()
            name = f"ipoibu-{os.getpid()}-bridge-{request.param}-{number}"
            guests.append(LabNamespace.create(name))
            stack.callback(guests[-1].remove)
            for command in ("add br0 type bridge", "set br0 up", "set ib0 master br0"):
                done = host.run(["ip", "link", *command.split()])
                assert done.returncode == 0, done.stderr
            plug(host, guests[-1], number)
        yield Bridges(request.param, lab.hosts[:2], guests)


def test_guests_of_two_bridges_reach_each_other(bridges: Bridges, until: Until) -> None:
    for place, guest in enumerate(bridges.guests):
        for address in GUESTS[1 - place]:
            until(lambda at=guest, to=address: reaches(at, to))


def test_a_guest_sees_a_mac_that_stands_for_the_other_guest_and_never_that_one(
    bridges: Bridges, until: Until
) -> None:
    for place, guest in enumerate(bridges.guests):
        until(lambda at=guest, to=GUESTS[1 - place][0]: reaches(at, to))
        assert bridges.neighbour(place) == bridges.far_mac(place)
        assert bridges.neighbour(place) not in MACS


def test_a_stream_between_two_bridges_stays_in_super_frames(bridges: Bridges, until: Until) -> None:
    sender, receiver = bridges.guests
    for address, family in zip(GUESTS[1], ("-4", "-6"), strict=True):
        until(lambda to=address: reaches(sender, to))
        server = receiver.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        until(lambda: ":5201 " in receiver.run(["ss", "-ltn"]).stdout)
        frames = bridges.counter(0, "tx_super_frames")
        connected = bridges.counter(0, "tx_connected_packets")
        events = bridges.counter(0, "events") + bridges.counter(1, "events")
        done = sender.run(["iperf3", family, "-c", address, "-n", "30M", "-J"])
        assert done.returncode == 0, done.stdout
        server.wait(timeout=60)
        by_connection = bridges.counter(0, "tx_connected_packets") - connected
        if bridges.mode == "connected":
            # With its MTU a packet is as long as a super-frame: 16 KB at least on the average.
            assert 0 < by_connection < (30 << 20) / (16 << 10)
        else:
            assert by_connection == 0
            assert bridges.counter(0, "tx_super_frames") > frames
        assert bridges.counter(0, "events") + bridges.counter(1, "events") - events < 200


def test_a_duplicate_address_on_the_other_bridge_is_found(bridges: Bridges, until: Until) -> None:
    """Both ends translate duplicate detection; the guest's kernel refuses the address."""
    first, second = bridges.guests
    until(lambda: reaches(first, GUESTS[1][1]))
    with long_detection(second):
        inside(second, f"ip address add {GUESTS[0][1]}/64 dev eth0")
        try:
            until(lambda: "dadfailed" in second.run(["ip", "-6", "address", "show"]).stdout)
        finally:
            inside(second, f"ip address del {GUESTS[0][1]}/64 dev eth0")
    until(lambda: reaches(second, GUESTS[0][1]))
