# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up --ethernet`: virtual machines of QEMU are hosts of the link, also after they have migrated.

Two hosts have a TAP in a bridge, the third an ordinary interface.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.behind import reaches
from tests.netns.captures import TCPDUMP
from tests.netns.conftest import Until
from tests.netns.programs import running
from tests.netns.streams import lengths, moved
from tests.netns.virtual.machine import NETDEV, Machine, find_files, machine

pytestmark = [pytest.mark.netns, pytest.mark.beside]

MAC = "52:54:00:00:00:01"
IPV6 = "fd77::11"
PORT = 5000
MIB = 1 << 20
SERVER = [
    *["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--user=root", "--no-ping"],
    *["--interface=ib0", "--dhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,3600"],
    *["--dhcp-leasefile=/run/leases", "--dhcp-authoritative", "--log-dhcp"],
]


@dataclass
class World:
    """A machine behind `host`, with a lease of a DHCP server on `far`."""

    hosts: list[Host]
    far: Host
    files: Path
    work: Path
    stack: ExitStack
    host: Host = field(init=False)
    machine: Machine = field(init=False)
    ipv4: str = field(init=False)

    def boot(self, until: Until) -> None:
        self.host = self.hosts[0]
        self.machine = self._run(self.host)
        self.machine.booted()
        self.machine.sh("ip link set eth0 up")
        self.machine.sh(f"ip address add {IPV6}/64 dev eth0")
        with running(self.far, self.work, *SERVER):
            until(lambda: "DHCP, IP range" in self._server_log())
            self.machine.sh("udhcpc -i eth0 -n -q -t 20 -T 1 -s /lease")
        self.ipv4 = self.machine.sh("cat /tmp/ip").strip()

    def print_membership(self) -> None:
        """Print who is known as a member of which group, from the machine to the far host."""
        print(self.machine.run("ip address; ip maddress; cat /proc/net/igmp6 /proc/net/snmp6")[1])
        for command in ("bridge -s -d mdb show", "ip -s -d link", "ip maddress"):
            print(self.host.run(command.split()).stdout)
        for host in (self.host, self.far):
            print(host.ask("mcast"), host.ask("stats"))
        print(self.host.ask("guests"))

    def _server_log(self) -> str:
        return (self.work / f"{self.far.name}.log").read_text()

    def _run(self, host: Host, incoming: Path | None = None) -> Machine:
        log = self.work / f"{host.name}.machine.log"
        return self.stack.enter_context(machine(host, self.files, log, MAC, incoming))

    def migrate(self, until: Until) -> None:
        """Move the machine, as it runs, to the other host with a bridge."""
        former, leaving = self.machine, self.stack.pop_all()
        [self.host] = [it for it in self.hosts if it is not self.host]
        with leaving, tempfile.TemporaryDirectory(prefix="ipoibu-vm-") as place:
            path = Path(place) / "migration"
            arrived = self._run(self.host, path)
            until(path.exists)
            former.qmp("migrate-set-parameters", **{"max-bandwidth": 1 << 30})
            former.qmp("migrate", uri=f"unix:{path}")
            until(lambda: former.qmp("query-migrate")["status"] == "completed")
        self.machine = arrived


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, until: Until) -> Iterator[World]:
    files = find_files()
    with NamespaceLab(3, start=False) as lab, ExitStack() as stack:
        for host in lab.hosts[:2]:
            host.addresses = []
            host.options.append("--ethernet")
        for host in lab.hosts:
            host.start()
        for host in lab.hosts[:2]:
            mtu = host.ask("show")["mtu"]
            for command in (
                "add br0 type bridge",
                f"set br0 mtu {mtu} up",
                "set ib0 master br0",
            ):
                done = host.run(["ip", "link", *command.split()])
                assert done.returncode == 0, done.stderr
        work = tmp_path_factory.mktemp("machine")
        made = World(lab.hosts[:2], lab.hosts[2], files, work, stack)
        made.boot(until)
        yield made


def test_a_machine_has_a_lease_and_reaches_hosts_which_reach_it(world: World, until: Until) -> None:
    far = world.far
    for target in (str(far.ipv4.ip), str(far.ipv6.ip)):
        until(lambda to=target: world.machine.reaches(to))
    for target in (world.ipv4, IPV6):
        until(lambda to=target: reaches(far, to))
    assert world.ipv4.startswith("10.77.0.1")
    listed = {it["ip"]: it["mac"] for it in world.host.ask("guests") if it["kind"] == "guest"}
    assert (listed[world.ipv4], listed[IPV6]) == (MAC, MAC)
    mtu = world.host.ask("show")["mtu"]
    assert f"mtu {mtu} " in world.machine.sh("ip link show eth0"), "host_mtu"
    assert far.run(["ping", "-c1", "-W20", "-Mdo", f"-s{mtu - 28}", world.ipv4]).returncode == 0


def test_streams_pass_in_whole_super_frames_both_ways(world: World, until: Until) -> None:
    """virtio-net leaves segmentation and checksums to the devices behind it, and takes super-frames."""
    far, machine = world.far, world.machine
    until(lambda: machine.reaches(str(far.ipv4.ip)))
    mtu, before = world.host.ask("show")["mtu"], world.host.ask("stats")

    def from_the_machine() -> bool:
        """Return whether some frames are long; TCP makes them short where a busy machine is slow."""
        machine.sh(f"head -c {16 * MIB} /dev/urandom >/tmp/data")
        with far.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            server.bind((str(far.ipv4.ip), PORT))
            server.listen()
            server.settimeout(60)
            digest = hashlib.sha256()

            def serve() -> None:
                connection, _ = server.accept()
                connection.settimeout(60)
                with connection:
                    while part := connection.recv(MIB):
                        digest.update(part)

            thread = threading.Thread(target=serve)
            thread.start()
            with lengths(world.host, NETDEV) as found:
                machine.sh(f"nc {far.ipv4.ip} {PORT} </tmp/data")
            thread.join()
        assert machine.sh("sha256sum /tmp/data").split()[0] == digest.hexdigest()
        machine.sh("rm /tmp/data")
        return bool(max(found) > 2 * mtu)

    def to_the_machine() -> bool:
        data = os.urandom(16 * MIB)
        machine.sh(f"(nc -l -p {PORT} | sha256sum >/tmp/sum) >/dev/null 2>&1 &")
        until(lambda: f":{PORT} " in machine.sh("netstat -ltn"))
        with (
            lengths(world.host, NETDEV) as found,
            far.socket(socket.AF_INET, socket.SOCK_STREAM) as client,
        ):
            client.settimeout(60)
            client.connect((world.ipv4, PORT))
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            until(lambda: machine.run("grep -q . /tmp/sum")[0] == 0)
        assert machine.sh("cat /tmp/sum").split()[0] == hashlib.sha256(data).hexdigest()
        return bool(max(found) > 2 * mtu)

    assert any(from_the_machine() for _ in range(3))
    assert any(to_the_machine() for _ in range(3))
    assert min(moved(world.host, before, "tx_super_frames", "tx_packets", "rx_packets")) > 0


@pytest.mark.parametrize("group", ["239.1.2.3", "ff15::123"])
def test_a_machine_answers_in_the_group_that_it_joins(
    world: World, group: str, until: Until
) -> None:
    """Its kernel joins by IGMP and MLD, and answers pings to the group."""
    bits = 128 if ":" in group else 32
    # After its duplicate detection for the group, Linux answers from the group's own address, which no host
    # takes: let that last.
    probes = "sysctl -w net.ipv6.conf.eth0.dad_transmits="
    world.machine.sh(f"sysctl -w net.ipv4.icmp_echo_ignore_broadcasts=0; {probes}200")
    ping = ["ping", "-c1", "-W1", *(["-I", "ib0"] if bits == 128 else []), group]
    world.far.run(["ip", "route", "replace", "239.0.0.0/8", "dev", "ib0"])
    assert world.far.run(ping).returncode != 0
    world.machine.sh(f"ip address add {group}/{bits} dev eth0 autojoin")
    try:
        until(lambda: world.far.run(ping).returncode == 0)
    except AssertionError:
        world.print_membership()
        raise
    finally:
        world.machine.sh(f"ip address del {group}/{bits} dev eth0; {probes}1")


def test_a_machine_migrates_and_its_connection_goes_on(world: World, until: Until) -> None:
    """It goes to the other host, and back."""
    far, machine = world.far, world.machine
    until(lambda: reaches(far, world.ipv4))
    machine.sh(f"nc -l -p {PORT} -e cat >/dev/null 2>&1 &")
    until(lambda: f":{PORT} " in machine.sh("netstat -ltn"))
    with far.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(30)
        stream.connect((world.ipv4, PORT))
        for word in (b"there", b"back"):
            world.migrate(until)
            for target in (world.ipv4, IPV6):
                until(lambda to=target: reaches(far, to))
            for target in (str(far.ipv4.ip), str(far.ipv6.ip)):
                until(lambda to=target: world.machine.reaches(to))
            stream.sendall(word)
            assert stream.recv(100) == word
            listed = {it["ip"]: it["mac"] for it in world.host.ask("guests") if "ip" in it}
            assert (listed[world.ipv4], listed[IPV6]) == (MAC, MAC)


def test_rarp_of_qemu_makes_the_interface_announce_the_machine(
    world: World, tmp_path: Path, until: Until
) -> None:
    """RARP names the MAC alone. The machine's interface is down, so that it announces nothing itself."""
    until(lambda: reaches(world.far, world.ipv4))
    file, far = tmp_path / "far.pcap", world.far
    capture = far.namespace.popen(
        [sys.executable, "-m", "ipoibu.cli", "capture", "ib0", "-w", str(file)],
        stderr=subprocess.DEVNULL,
    )
    announcements = (
        f"ARP, Request who-has {world.ipv4} tell {world.ipv4}",
        f"ARP, Announcement {world.ipv4}",
    )

    def announced() -> bool:
        world.machine.qmp("announce-self", initial=50, max=50, rounds=1, step=0)
        shown = far.run([*TCPDUMP, "-n", "-r", str(file)]).stdout
        return any(it in shown for it in announcements)

    try:
        until(file.exists)
        world.machine.sh("ip link set eth0 down")
        until(announced)
    finally:
        world.machine.sh(f"ip link set eth0 up && ip address add {IPV6}/64 dev eth0")
        capture.terminate()
        capture.wait(60)
    until(lambda: reaches(world.far, world.ipv4))
