# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up --ethernet`: containers on a Linux bridge reach the hosts of the link, and those reach them."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from ipoibu.wire.ip import Ipv4
from tests.netns.behind import inside, reaches
from tests.netns.conftest import Cli, Until

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
GUESTS = (("10.77.0.11", "fd77::11"), ("10.77.0.12", "fd77::12"))
MACS = ("52:54:00:00:00:01", "52:54:00:00:00:02")


@dataclass
class Bridged:
    """The first host has a TAP in a bridge with two guests, the second an ordinary interface."""

    lab: NamespaceLab
    guests: tuple[LabNamespace, LabNamespace]

    @property
    def host(self) -> Host:
        return self.lab.hosts[0]

    @property
    def far(self) -> Host:
        return self.lab.hosts[1]

    def counter(self, name: str) -> int:
        return int(self.host.ask("stats")[name])


def plug(host: Host, guest: LabNamespace, number: int) -> None:
    """Give the guest a veth in the bridge, with its MAC and addresses."""
    mtu = host.ask("show")["mtu"]
    port, (ipv4, ipv6) = f"v{number}", GUESTS[number]
    for command in (
        f"ip link add {port} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {guest.name}",
        f"ip link set {port} master br0 up",
    ):
        done = host.run(command.split())
        assert done.returncode == 0, done.stderr
    inside(
        guest,
        "ip link set lo up",
        f"ip link set eth0 address {MACS[number]} up",
        f"ip address add {ipv4}/24 dev eth0",
        f"ip address add {ipv6}/64 dev eth0 nodad",
    )


@pytest.fixture(scope="module", params=["datagram", "connected", "datagram of nobody"])
def bridged(request: pytest.FixtureRequest) -> Iterator[Bridged]:
    mode, _, user = request.param.partition(" of ")
    with ExitStack() as stack:
        lab = stack.enter_context(
            NamespaceLab(
                start=False, options=["--mode", mode, *(["--user", "nobody"] if user else [])]
            )
        )
        host = lab.hosts[0]
        host.addresses = []
        host.options.append("--ethernet")
        for each in lab.hosts:
            each.start()
        guests = tuple(
            LabNamespace.create(f"ipoibu-{os.getpid()}-guest-{mode}-{number}") for number in (1, 2)
        )
        for number, guest in enumerate(guests):
            stack.callback(guest.remove)
            if number == 0:
                for command in ("add br0 type bridge", "set br0 up", "set ib0 master br0"):
                    assert host.run(["ip", "link", *command.split()]).returncode == 0
            plug(host, guest, number)
        yield Bridged(lab, (guests[0], guests[1]))


def test_guests_and_hosts_reach_each_other(bridged: Bridged, until: Until) -> None:
    for guest, addresses in zip(bridged.guests, GUESTS, strict=True):
        fars = (str(bridged.far.ipv4.ip), str(bridged.far.ipv6.ip))
        for own, far in zip(addresses, fars, strict=True):
            until(lambda place=guest, to=far: reaches(place, to))
            until(lambda to=own: reaches(bridged.far, to))
    assert bridged.host.ask("show")["addresses"] == []


def test_each_guest_is_listed_with_its_mac_and_the_host_with_one_of_its_own(
    bridged: Bridged, until: Until
) -> None:
    for guest in bridged.guests:
        until(lambda place=guest: reaches(place, str(bridged.far.ipv4.ip)))
    listed = bridged.host.ask("guests")
    known = {it["ip"]: it["mac"] for it in listed if it["kind"] == "guest"}
    assert {known[ipv4] for ipv4, _ in GUESTS} == set(MACS)
    (mac,) = {
        it["mac"]
        for it in listed
        if it["kind"] == "host" and it["hwaddr"] == bridged.far.ask("show")["hwaddr"]
    }
    until(lambda: reaches(bridged.guests[0], str(bridged.far.ipv4.ip)))
    shown = bridged.guests[0].run(["ip", "-j", "neigh", "show", str(bridged.far.ipv4.ip)])
    assert json.loads(shown.stdout)[0]["lladdr"] == mac
    assert bridged.host.ask("show")["ethernet"]["guests"] >= 2


def test_a_stream_crosses_in_whole_super_frames_without_the_engine(
    bridged: Bridged, until: Until
) -> None:
    guest, far = bridged.guests[0], bridged.far
    until(lambda: reaches(guest, str(far.ipv4.ip)))
    for way in ((), ("-R",)):
        server = far.namespace.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        until(lambda: _listens(far, 5201))
        events = bridged.counter("events")
        done = guest.run(["iperf3", "-c", str(far.ipv4.ip), "-n", "50M", "-J", *way])
        assert done.returncode == 0, done.stdout
        server.wait(timeout=60)
        assert bridged.counter("events") - events < 100
    assert bridged.counter("rx_merged_frames") + bridged.counter("rx_superframes") > 0
    assert bridged.counter("tx_super_frames") > 0


def _listens(host: Host, port: int) -> bool:
    return f":{port} " in host.run(["ss", "-ltn"]).stdout


def test_a_guest_cannot_take_the_address_of_another(bridged: Bridged, until: Until) -> None:
    first, second = bridged.guests
    until(lambda: reaches(first, str(bridged.far.ipv4.ip)))
    spoofed = bridged.counter("tx_spoofed")
    mac = bridged.host.ask("show")["ethernet"]["mac"]
    hosts = [it["mac"] for it in bridged.host.ask("guests") if it["kind"] == "host"]
    datagram = struct.pack(">HHHH", 7, 9, 12, 0) + b"lies"
    packet = Ipv4(IPv4Address(GUESTS[0][0]), bridged.far.ipv4.ip, 17, datagram).pack()
    frame = bytes.fromhex((hosts[0] + MACS[1]).replace(":", "")) + b"\x08\x00" + packet
    assert mac not in hosts
    send = (
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW);"
        f" s.bind(('eth0', 0)); s.send(bytes.fromhex('{frame.hex()}'))"
    )
    inside_python(second, send)
    until(lambda: bridged.counter("tx_spoofed") > spoofed)
    until(lambda: reaches(bridged.far, GUESTS[0][0]))


def inside_python(place: LabNamespace, program: str) -> None:
    done = place.run(["python3", "-c", program])
    assert done.returncode == 0, done.stderr


def test_an_address_that_is_bound_belongs_to_its_guest_alone(until: Until, cli: Cli) -> None:
    """The second guest has the address of the first, which the administrator has bound."""
    with NamespaceLab(start=False) as lab, ExitStack() as stack:
        host, far = lab.hosts
        host.addresses = []
        host.options += ["--ethernet", "--guest", f"{MACS[0]}={GUESTS[0][0]},{GUESTS[0][1]}"]
        host.start()
        far.start()
        for command in ("add br0 type bridge", "set br0 up", "set ib0 master br0"):
            assert host.run(["ip", "link", *command.split()]).returncode == 0
        thief = LabNamespace.create(f"ipoibu-{os.getpid()}-thief")
        stack.callback(thief.remove)
        plug(host, thief, 1)
        inside(thief, f"ip address add {GUESTS[0][0]}/24 dev eth0")
        until(lambda: reaches(thief, str(far.ipv4.ip)))
        asked = f"ping -c1 -W1 -I {GUESTS[0][0]} {far.ipv4.ip}"
        assert thief.run(asked.split()).returncode != 0
        assert not reaches(far, GUESTS[0][0])
        until(lambda: host.ask("stats").get("engine.ethernet_spoofed", 0) > 0)
        listed = {it["ip"]: it for it in host.ask("guests") if it["kind"] == "guest"}
        bound = listed[GUESTS[0][0]]
        assert (bound["mac"], bound["state"]) == (MACS[0], "static")
        refused = (MACS[1], GUESTS[0][0], "bound", MACS[0])
        until(
            lambda: (
                refused
                in {
                    (it["mac"], it["ip"], it["state"], it["holder"])
                    for it in host.ask("guests")
                    if it["kind"] == "refused"
                }
            )
        )
        findings = doctor(host, cli)
        assert MACS[1] in findings["guests"]["detail"]
        assert findings["guest_bridge"]["status"] == "ok"
        assert f"--guest binds it to {MACS[0]}" in findings["guest_refused"]["detail"]
        assert findings["guest_spoofed"]["status"] == "warn"


def doctor(host: Host, cli: Cli) -> dict[str, dict[str, str]]:
    """The doctor's findings on a host, by check."""
    return {it["check"]: it for it in json.loads(cli(host, "doctor", "-j").stdout)}


def test_the_doctor_says_what_keeps_guests_away(until: Until, cli: Cli) -> None:
    with NamespaceLab(start=False) as lab:
        host = lab.hosts[0]
        host.addresses = []
        host.options.append("--ethernet")
        host.start()
        findings = doctor(host, cli)
        assert findings["guests"]["status"] == "info"
        assert findings["guest_bridge"]["remedy"] == "ip link set ib0 master BRIDGE"
        for command in ("add br0 type bridge", "set ib0 master br0", "set br0 mtu 9000 up"):
            assert host.run(["ip", "link", *command.split()]).returncode == 0
        findings = doctor(host, cli)
        assert findings["guest_bridge"]["status"] == "ok"
        assert findings["guest_mtu"]["status"] == "warn"


def test_events_of_guests_are_printed_as_they_happen(
    bridged: Bridged, until: Until, tmp_path: Path
) -> None:
    out = tmp_path / "events"
    address = "10.77.0.77"
    with out.open("w") as file:
        monitor = bridged.host.namespace.popen(
            [sys.executable, "-m", "ipoibu.cli", "monitor", "ib0", "-j", "--topic", "guest"],
            stdout=file,
        )
        try:
            first, second = bridged.guests
            far = str(bridged.far.ipv4.ip)
            until(lambda: reaches(first, far))
            numbers = itertools.count(100)
            until(lambda: _talks_from(first, f"10.77.0.{next(numbers)}", far) and out.read_text())
            inside(first, f"ip address add {address}/24 dev eth0")
            first.run(["ping", "-c1", "-W1", "-I", address, far])
            until(lambda: _event(out, address, "learned"))
            inside(first, f"ip address del {address}/24 dev eth0")
            inside(
                second,
                "sysctl -qw net.ipv4.conf.eth0.arp_notify=1",
                f"ip address add {address}/24 dev eth0",
                f"ip link set eth0 address {MACS[1]}",  # the kernel announces its addresses then
            )
            until(lambda: _event(out, address, "moved"))
            inside(second, f"ip address del {address}/24 dev eth0")
        finally:
            monitor.terminate()
            monitor.wait(60)
    moved = _event(out, address, "moved")
    assert moved is not None
    assert (moved["hwaddr"], moved["former"]) == (MACS[1], MACS[0])


def _talks_from(guest: LabNamespace, address: str, far: str) -> bool:
    """Have the guest use another address for one packet; the monitor may not listen yet."""
    inside(guest, f"ip address add {address}/32 dev eth0")
    guest.run(["ping", "-c1", "-W1", "-I", address, far])
    inside(guest, f"ip address del {address}/32 dev eth0")
    return True


def _event(out: Path, address: str, detail: str) -> dict[str, str] | None:
    events = [json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")]
    return next((it for it in events if (it["subject"], it["detail"]) == (address, detail)), None)


def test_a_killed_daemon_comes_back_and_guests_go_on(bridged: Bridged, until: Until) -> None:
    guest = bridged.guests[0]
    until(lambda: reaches(guest, str(bridged.far.ipv4.ip)))
    until(lambda: reaches(bridged.far, GUESTS[0][1]))
    before = bridged.host.ask("guests")
    bridged.host.kill()
    bridged.host.start()
    assert bridged.host.run(["ip", "link", "set", "ib0", "master", "br0"]).returncode == 0
    until(lambda: reaches(guest, str(bridged.far.ipv4.ip)))
    until(lambda: reaches(bridged.far, GUESTS[0][1]))
    hosts = {it["hwaddr"]: it["mac"] for it in before if it["kind"] == "host"}
    after = {it["hwaddr"]: it["mac"] for it in bridged.host.ask("guests") if it["kind"] == "host"}
    far = bridged.far.ask("show")["hwaddr"]
    assert after[far] == hosts[far], "the guests' ARP caches stay valid"


def test_a_child_is_a_tap_of_its_partition(bridged: Bridged, until: Until, sh: Sh) -> None:
    """A bridge of its own for the partition, as for a VLAN."""
    host, far, guest = bridged.host, bridged.far, bridged.guests[1]
    for each in (host, far):
        each.ask("child-add", pkey="0x8001")
    mtu = host.ask("show")["mtu"]
    sh(far, "ip address add 10.88.0.2/24 dev ib0.8001")
    sh(
        host,
        "ip link add br10 type bridge && ip link set br10 up && ip link set ib0.8001 master br10"
        f" && ip link add w1 mtu {mtu} type veth peer name eth1 mtu {mtu} netns {guest.name}"
        " && ip link set w1 master br10 up",
    )
    inside(guest, "ip link set eth1 up", "ip address add 10.88.0.11/24 dev eth1")
    until(lambda: reaches(guest, "10.88.0.2"))
    until(lambda: reaches(far, "10.88.0.11"))
    # After a crash the far host knows this guest by the old queue pair, until it hears of it again.
    until(lambda: reaches(guest, str(far.ipv4.ip)))
