# SPDX-License-Identifier: BSD-2-Clause
"""DHCP clients and servers of Debian on interfaces of ipoibu; each with directories of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.conftest import Until

pytestmark = pytest.mark.netns

SERVER_V4 = "10.77.0.1"
POOL = ("10.77.0.100", "10.77.0.200")

_PRIVATE = """
mount --make-rprivate / &&
for at in /run /var/lib; do mount -t tmpfs none $at || exit; done &&
touch /run/resolv.conf && mount --bind /run/resolv.conf /etc/resolv.conf &&
mkdir -p /run/kea /run/lock/kea /var/lib/kea /var/lib/dhcpcd && exec "$@"
"""

# udhcpc calls this with the lease.
_SCRIPT = """#!/bin/sh
case $1 in bound) ip address add $ip/$mask dev $interface;; esac
env > {work}/{name}.new
mv {work}/{name}.new {work}/{name}.$1
"""


@pytest.fixture(scope="module")
def three() -> Iterator[NamespaceLab]:
    """A server's host, and two hosts without IPv4 addresses."""
    with NamespaceLab(3) as lab:
        for client in lab.hosts[1:]:
            client.run(["ip", "address", "del", str(client.ipv4), "dev", "ib0"])
        yield lab


@dataclass
class Program:
    """A program that runs, and everything that it has printed."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")


@contextmanager
def running(place: Host | LabNamespace, work: Path, command: list[str]) -> Iterator[Program]:
    """Run a program with /run, /var/lib and a resolv.conf of its own."""
    path = work / f"{place.name}.{command[0]}"
    namespace = place if isinstance(place, LabNamespace) else place.namespace
    with path.open("wb") as out:
        process = namespace.popen(
            ["unshare", "-m", "sh", "-c", _PRIVATE, "sh", *command],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Program(process, path)
    finally:
        process.terminate()
        process.wait(60)


def shown_lease(client: Host, kind: str) -> dict[str, Any]:
    """Return what our client shows of "dhcp" or "dhcp6". It may have no address yet when it is up, as it
    waits 10 s for a lease."""
    end = time.monotonic() + 60
    while True:
        shown: dict[str, Any] = client.ask("show")[kind]
        if shown["address"] is not None or time.monotonic() > end:
            return shown
        time.sleep(0.1)


def declines(client: Host, server: Program) -> bool:
    """Start our client; return whether it declines what the server gives. It keeps an address whose owner is
    too busy to answer its probes; then end it, so that it may try again."""
    client.start()
    is_declined = "DHCPDECLINE" in server.log
    if not is_declined:
        client.stop()
    return is_declined


def dnsmasq(*more: str) -> list[str]:
    command = ["dnsmasq", "--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=ib0"]
    return [*command, "--user=root", "--log-dhcp", *more]


DNSMASQ_SERVER = dnsmasq(
    f"--dhcp-range={','.join(POOL)},255.255.255.0,120",
    "--dhcp-leasefile=/run/leases",
    "--dhcp-authoritative",
    "--no-ping",
)


def udhcpc(work: Path, host: Host) -> list[str]:
    """Stay in the foreground, and keep the lease."""
    script = work / f"{host.name}.sh"
    script.write_text(_SCRIPT.format(work=work, name=host.name))
    script.chmod(0o755)
    return ["udhcpc", "-i", "ib0", "-f", "-T", "1", "-A", "1", "-s", str(script)]


def lease(work: Path, host: Host) -> dict[str, str]:
    """The variables of the script's last call; empty without a lease."""
    path = work / f"{host.name}.bound"
    text = path.read_text() if path.exists() else ""
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def identifier(host: Host) -> str:
    """The interface's client identifier: type, P_Key, DUID of the port's GUID."""
    guid = host.ask("show")["guid"]
    digits = f"ff0000ffff00030020{int(guid, 16):016x}"
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def test_udhcpc_has_a_lease_of_its_own_on_each_host(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """dnsmasq names each client by its port's GUID; a renewal goes to the server alone."""
    server, one, two = three.hosts
    with (
        running(server, tmp_path, DNSMASQ_SERVER) as served,
        running(one, tmp_path, udhcpc(tmp_path, one)) as client,
        running(two, tmp_path, udhcpc(tmp_path, two)),
    ):
        until(lambda: lease(tmp_path, one) and lease(tmp_path, two))
        assert lease(tmp_path, one)["ip"] != lease(tmp_path, two)["ip"]
        for host in (one, two):
            assert identifier(host) in served.log
            ping = ["ping", "-c1", "-W1", SERVER_V4]
            until(lambda host=host, ping=ping: host.run(ping).returncode == 0)
        assert "broadcast response" in served.log
        before = served.log.count("DHCPACK")
        client.process.send_signal(signal.SIGUSR1)
        until(lambda: client.log.count("obtained") == 2)
        assert "sending renew to server" in client.log
        until(lambda: served.log.count("DHCPACK") > before)
        assert "DHCPNAK" not in served.log
    for host in (one, two):
        assert host.ask("stats")["engine.dhcp_restored"] >= 2
        host.run(["ip", "address", "flush", "dev", "ib0", "scope", "global"])


def test_dhcpcd_takes_a_lease_if_it_is_told_to(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """Without `--dhcp` it leaves point-to-point interfaces to others."""
    server, client, _ = three.hosts
    dhcpcd = ["dhcpcd", "-B", "-4", "--dhcp", "-t", "0", "-c", "/bin/true", "ib0"]
    with running(server, tmp_path, DNSMASQ_SERVER), running(client, tmp_path, dhcpcd) as program:
        until(lambda: "leased 10.77.0." in program.log)
        until(lambda: client.run(["ping", "-c1", "-W1", SERVER_V4]).returncode == 0)


def kea(work: Path) -> list[str]:
    """Kea on an interface that cannot broadcast hears relay agents only."""
    logger = {
        "name": "kea-dhcp4",
        "severity": "DEBUG",
        "debuglevel": 50,
        "output_options": [{"output": "stdout"}],
    }
    config = {
        "interfaces-config": {"interfaces": ["ib0"], "dhcp-socket-type": "udp"},
        "lease-database": {"type": "memfile", "persist": False},
        "subnet4": [{"id": 1, "subnet": "10.77.0.0/24", "pools": [{"pool": " - ".join(POOL)}]}],
        "loggers": [logger],
    }
    path = work / "kea.json"
    path.write_text(json.dumps({"Dhcp4": config}))
    return ["kea-dhcp4", "-c", str(path)]


def test_kea_serves_the_link_behind_a_relay_agent(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    relay, server, client = three.hosts
    server.run(["ip", "address", "replace", str(server.ipv4), "dev", "ib0"])
    with (
        running(server, tmp_path, kea(tmp_path)) as served,
        running(relay, tmp_path, dnsmasq(f"--dhcp-relay={SERVER_V4},{server.ipv4.ip}")),
    ):
        until(lambda: "DHCP4_STARTED" in served.log)
        with running(client, tmp_path, udhcpc(tmp_path, client)):
            until(lambda: lease(tmp_path, client))
        assert identifier(client) in served.log


def test_isc_dhcp_server_on_ethernet_serves_the_link_behind_a_relay_agent(
    three: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], tmp_path: Path, until: Until
) -> None:
    """It refuses the type of an interface of ipoibu, and that of ib_ipoib."""
    relay, _, client = three.hosts
    ethernet, _ = pods
    config, leases = tmp_path / "dhcpd.conf", tmp_path / "dhcpd.leases"
    subnet = "subnet {} netmask 255.255.255.0 {{ {} }}\n".format
    config.write_text(subnet("192.0.2.0", "") + subnet("10.77.0.0", f"range {' '.join(POOL)};"))
    leases.touch()
    dhcpd = ["dhcpd", "-4", "-f", "-d", "-cf", str(config), "-lf", str(leases), "--no-pid", "v1"]
    make = f"ip link add v0 type veth peer name v1 netns {ethernet.name}"
    relay.run(["sh", "-c", f"{make}; ip address add 192.0.2.1/24 dev v0; ip link set v0 up"])
    up = "ip address add 192.0.2.2/24 dev v1; ip link set v1 up; ip route add default via 192.0.2.1"
    try:
        assert ethernet.popen(["sh", "-c", up]).wait(60) == 0
        agent = dnsmasq("--interface=v0", f"--dhcp-relay={SERVER_V4},192.0.2.2")
        with running(ethernet, tmp_path, dhcpd) as served, running(relay, tmp_path, agent):
            until(lambda: "Server starting service" in served.log)
            with running(client, tmp_path, udhcpc(tmp_path, client)):
                until(lambda: lease(tmp_path, client))
            assert f"DHCPACK on {lease(tmp_path, client)['ip']}" in served.log
            assert f"via {SERVER_V4}" in served.log
            # The start of the client identifier, as dhcpd writes it: RFC 4361, P_Key 0xffff
            assert 'uid "\\377\\000\\000\\377\\377\\000\\003' in leases.read_text()
    finally:
        relay.run(["ip", "link", "del", "v0"])
