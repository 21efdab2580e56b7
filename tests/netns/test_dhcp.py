# SPDX-License-Identifier: BSD-2-Clause
"""Our DHCP client before Debian's servers: dnsmasq on the link, Kea and ISC behind a relay agent."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.doubles.page_blocks import blocks
from tests.netns.conftest import Cli, Until
from tests.netns.test_dhcp_clients import SERVER_V4, declines, dnsmasq, running, shown_lease

pytestmark = pytest.mark.netns

Link = dict[str, Any]


@pytest.fixture
def link(tmp_path: Path) -> Iterator[NamespaceLab]:
    """Two hosts with addresses, and one that gets its IPv4 address by DHCP and has not started."""
    with NamespaceLab(3, start=False) as lab:
        first, second, client = lab.hosts
        first.start()
        second.start()
        client.addresses = []
        client.options += ["--address", "dhcp", "--lease-dir", str(tmp_path / "leases")]
        client.options += ["--log-level", "info"]
        yield lab


def server(*more: str, leases: str = "120") -> list[str]:
    return dnsmasq(
        f"--dhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,{leases}",
        "--dhcp-leasefile=/run/leases",
        "--dhcp-authoritative",
        "--no-ping",
        "--log-facility=-",
        *more,
    )


def lease(client: Host) -> Link:
    return shown_lease(client, "dhcp")


def kernel(client: Host, what: str) -> str:
    return client.run(["ip", "-4", *what.split(), "dev", "ib0"]).stdout


def test_dnsmasq_gives_renews_and_confirms_a_lease_with_all_that_belongs_to_it(
    link: NamespaceLab, tmp_path: Path, until: Until, runtime: Path
) -> None:
    first, _, client = link.hosts
    routes = "10.9.0.0/16,10.77.0.2,0.0.0.0/0,10.77.0.1"
    options = (
        "--dhcp-option=option:T1,3",
        "--dhcp-option=option:T2,100",
        "--dhcp-option=option:mtu,1500",
        "--dhcp-option=option:dns-server,10.77.0.1",
        "--dhcp-option=option:domain-name,ib.example",
        f"--dhcp-option=option:classless-static-route,{routes}",
    )
    with running(first, tmp_path, server(*options)) as served:
        until(lambda: "DHCP, IP range" in served.log)
        client.start()
        given = lease(client)
        address = given["address"]
        until(lambda: address in kernel(client, "address show"))
        assert "default via 10.77.0.1 proto dhcp metric 1024" in kernel(client, "route show")
        assert "10.9.0.0/16 via 10.77.0.2 proto dhcp" in kernel(client, "route show")
        assert client.ask("show")["mtu"] == 1500
        until(lambda: client.run(["ping", "-c1", "-W5", SERVER_V4]).returncode == 0)
        (resolv,) = runtime.glob("net-*/ib0.resolv.conf")
        assert resolv.read_text().splitlines()[1:] == ["search ib.example", "nameserver 10.77.0.1"]
        until(lambda: served.log.count("DHCPREQUEST") >= 2)  # renewed, to the server alone
        until(lambda: served.log.count("DHCPACK") >= 2)
        until(lambda: lease(client)["state"] == "bound")
        discovers = served.log.count("DHCPDISCOVER")
        client.kill()
        client.start()
        assert lease(client)["address"] == address
        assert served.log.count("DHCPDISCOVER") == discovers
    client.stop()
    assert not list(runtime.glob("net-*/ib0.resolv.conf"))
    assert list((tmp_path / "leases").glob("ib0-*.lease"))


def test_the_program_of_the_page_gets_an_address(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    (program,) = blocks("docs/use/dhcp.md", "python")
    with running(first, tmp_path, server()) as served:
        until(lambda: "DHCP, IP range" in served.log)
        done = client.run([sys.executable, "-c", f"{program.text}\nprint(address)"])
        assert done.returncode == 0, done.stderr
        address = done.stdout.split()[-1]
        assert f"DHCPACK(ib0) {address.partition('/')[0]} " in served.log


def test_a_server_that_forgot_refuses_and_the_client_takes_another_address(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    with running(first, tmp_path, server("--dhcp-option=option:T1,15")) as served:
        until(lambda: "DHCP, IP range" in served.log)
        client.start()
        before = lease(client)["address"]
    elsewhere = dnsmasq(
        "--dhcp-range=10.77.0.210,10.77.0.220,255.255.255.0,120",
        "--dhcp-leasefile=/run/leases",
        "--dhcp-authoritative",
        "--no-ping",
    )
    with running(first, tmp_path, elsewhere) as served:
        # A renewal that asks before this server runs is repeated after DHCP_RENEW_RETRY_S.
        until(lambda: lease(client)["address"] not in (None, before), 150)
        after = lease(client)["address"]
        assert "DHCPNAK" in served.log
        until(lambda: after in kernel(client, "address show"))
        assert before not in kernel(client, "address show")
    client.stop()


def test_an_address_of_another_host_is_declined(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """A host has the address that the server wants to give."""
    first, second, client = link.hosts
    second.run(["ip", "address", "add", "10.77.0.150/24", "dev", "ib0"])
    until(lambda: "10.77.0.150" in str(second.ask("show")["addresses"]))
    fixed = "--dhcp-host=id:ff:00:00:ff:ff:00:03:00:20:00:00:00:ff:fe:00:00:03,10.77.0.150"
    with running(first, tmp_path, server(fixed)) as served:
        until(lambda: declines(client, served), 120)
        until(lambda: "DHCP: another host has 10.77.0.150/24" in client.log())
        assert "10.77.0.150" not in kernel(client, "address show")
    client.stop()


def test_an_address_is_given_back_if_the_configuration_says_so(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    client.options += ["--dhcp-release", "on"]
    with running(first, tmp_path, server()) as served:
        until(lambda: "DHCP, IP range" in served.log)

        def releases() -> bool:
            """The message goes to the server alone, if its hardware address is known within half a second."""
            client.start()
            lease(client)
            until(lambda: client.run(["ping", "-c1", "-W1", SERVER_V4]).returncode == 0)
            client.stop()
            return "DHCPRELEASE" in served.log

        until(releases, 120)
    assert "internal error" not in client.log()
    assert not list((tmp_path / "leases").glob("ib0-*.lease"))


def relay(to: str) -> list[str]:
    return dnsmasq(f"--dhcp-relay={SERVER_V4},{to}")


def test_kea_behind_a_relay_agent_gives_and_renews_a_lease(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, second, client = link.hosts
    logger = {
        "name": "kea-dhcp4",
        "severity": "DEBUG",
        "debuglevel": 50,
        "output_options": [{"output": "stdout"}],
    }
    config = {
        "interfaces-config": {"interfaces": ["ib0"], "dhcp-socket-type": "udp"},
        "lease-database": {"type": "memfile", "persist": False},
        "valid-lifetime": 60,
        "renew-timer": 2,
        "rebind-timer": 30,
        "subnet4": [
            {"id": 1, "subnet": "10.77.0.0/24", "pools": [{"pool": "10.77.0.100 - 10.77.0.200"}]}
        ],
        "loggers": [logger],
    }
    path = tmp_path / "kea.json"
    path.write_text(json.dumps({"Dhcp4": config}))
    with (
        running(second, tmp_path, ["kea-dhcp4", "-c", str(path)]) as served,
        running(first, tmp_path, relay(str(second.ipv4.ip))),
    ):
        until(lambda: "DHCP4_STARTED" in served.log)
        client.start()
        assert lease(client)["server"] == str(second.ipv4.ip)
        acks = served.log.count("DHCPACK")
        until(lambda: served.log.count("DHCPACK") > acks)
        until(lambda: lease(client)["state"] == "bound")
    client.stop()


def test_isc_behind_a_relay_agent_gives_a_lease_and_prolongs_it_by_broadcast(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """ISC's server does not listen on a TUN, so that the renewal at T1 gets no answer."""
    first, second, client = link.hosts
    for host in (first, second):
        host.run(["ip", "address", "add", f"172.31.0.{host.number}/24", "dev", "eth0"])
    config, leases = tmp_path / "dhcpd.conf", tmp_path / "dhcpd.leases"
    leases.touch()
    config.write_text(
        "authoritative; ddns-update-style none; default-lease-time 60; min-lease-time 4;\n"
        "option dhcp-renewal-time 1; option dhcp-rebinding-time 2;\n"
        "subnet 172.31.0.0 netmask 255.255.255.0 {}\n"
        "subnet 10.77.0.0 netmask 255.255.255.0 { range 10.77.0.100 10.77.0.200; }\n"
    )
    command = ["dhcpd", "-4", "-f", "-d", "-cf", str(config), "-lf", str(leases), "eth0"]
    for place in (config, leases, tmp_path):
        subprocess.run(["chmod", "a+rwx", str(place)], check=True)
    with (
        running(second, tmp_path, [*command[:4], "-pf", "/run/dhcpd.pid", *command[4:]]) as served,
        running(first, tmp_path, relay("172.31.0.2")),
    ):
        until(lambda: "Server starting service" in served.log)
        client.start()
        assert lease(client)["server"] == "172.31.0.2"
        acks = served.log.count("DHCPACK")
        until(lambda: served.log.count("DHCPACK") > acks)
        assert lease(client)["address"] is not None
    client.stop()


def test_a_child_has_a_lease_of_its_own(
    link: NamespaceLab, tmp_path: Path, until: Until, cli: Cli, sh: Callable[[Host, str], str]
) -> None:
    first, _, client = link.hosts
    done = cli(first, "child", "add", "ib0", "0x8001", "--address", "10.78.0.1/24")
    assert done.returncode == 0, done.stderr
    more = "--dhcp-range=10.78.0.100,10.78.0.200,255.255.255.0,120"
    with running(first, tmp_path, server("--interface=ib0.8001", more)) as served:
        until(lambda: served.log.count("DHCP, IP range") == 2)
        client.start()
        done = cli(client, "child", "add", "ib0", "0x8001", "--address", "dhcp")
        assert done.returncode == 0, done.stderr

        def leases() -> list[dict[str, Any]]:
            shown = json.loads(cli(client, "show", "-j").stdout)
            both = [each["dhcp"] for each in sorted(shown, key=lambda each: each["name"])]
            return both if all(it["address"] for it in both) else []

        parent, child = until(leases)
        assert parent["address"].startswith("10.77.0.")
        assert child["address"].startswith("10.78.0.")
        assert parent["client_id"] != child["client_id"]  # the IAID is the P_Key
        assert child["address"] in sh(client, "ip -4 address show dev ib0.8001")
        until(lambda: client.run(["ping", "-c1", "-W1", "10.78.0.1"]).returncode == 0)
    client.stop()
    names = {path.name.partition("-")[0] for path in (tmp_path / "leases").glob("*.lease")}
    assert names == {"ib0", "ib0.8001"}


@pytest.mark.root
def test_a_daemon_that_became_another_user_renews_and_keeps_its_lease(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp") as directory,
        running(first, tmp_path, server("--dhcp-option=option:T1,3")) as served,
    ):
        Path(directory).chmod(0o755)
        leases = Path(directory) / "leases"
        client.options += ["--user", "nobody", "--lease-dir", str(leases)]
        until(lambda: "DHCP, IP range" in served.log)
        client.start()
        address = lease(client)["address"]
        acks = served.log.count("DHCPACK")
        until(lambda: served.log.count("DHCPACK") > acks)
        (kept,) = until(lambda: list(leases.glob("ib0-*.lease")))
        assert kept.owner() == "nobody"
        discovers = served.log.count("DHCPDISCOVER")
        client.kill()
        client.start()
        assert lease(client)["address"] == address
        assert served.log.count("DHCPDISCOVER") == discovers
        client.stop()


def test_a_command_with_an_interface_of_its_own_has_a_lease(
    link: NamespaceLab, tmp_path: Path, until: Until, cli: Cli
) -> None:
    """`ipoibu run`: another user namespace, and another network namespace than the device's."""
    first, _, client = link.hosts
    command = f"ip -4 -o address show dev ib0; ip -4 route show default; ping -c10 {SERVER_V4}"
    with running(first, tmp_path, server("--dhcp-option=option:router,10.77.0.1")) as served:
        until(lambda: "DHCP, IP range" in served.log)
        words = ("--device", "soft:eth0", "--address", "dhcp", "--lease-dir", str(tmp_path))
        done = cli(client, "run", *words, "--", "sh", "-c", command)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"inet 10\.77\.0\.[12]\d\d/24", done.stdout)
        assert "default via 10.77.0.1 dev ib0 proto dhcp" in done.stdout
        assert served.log.count("DHCPDISCOVER") >= 1
