# SPDX-License-Identifier: BSD-2-Clause
"""Our DHCPv6 client before Debian's servers: dnsmasq and Kea on the link, ISC behind a relay agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Cli, Until
from tests.netns.test_dhcp_clients import declines, dnsmasq, running, shown_lease

pytestmark = pytest.mark.netns

DUID = "00:03:00:20:00:00:00:ff:fe:00:00:03"  # of the third host's port
READY = "DHCPv6, IP range"


@pytest.fixture
def link(tmp_path: Path) -> Iterator[NamespaceLab]:
    """Two hosts with addresses, and one that gets its IPv6 address by DHCPv6 and has not started."""
    with NamespaceLab(3, start=False) as lab:
        first, second, client = lab.hosts
        first.start()
        second.start()
        client.addresses = []
        client.options += ["--address", "dhcp6", "--lease-dir", str(tmp_path / "leases")]
        client.options += ["--log-level", "info", "--route", "fd77::/64"]
        yield lab


def server(*more: str, pool: str = "fd77::100,fd77::200") -> list[str]:
    options = ["--dhcp-leasefile=/run/leases", "--dhcp-authoritative", "--log-facility=-"]
    return dnsmasq(f"--dhcp-range={pool},64,120", *options, *more)


def lease(client: Host) -> dict[str, Any]:
    return shown_lease(client, "dhcp6")


def addresses(client: Host) -> str:
    return client.run(["ip", "-6", "address", "show", "dev", "ib0"]).stdout


def test_dnsmasq_gives_and_confirms_a_lease_with_all_that_belongs_to_it(
    link: NamespaceLab, tmp_path: Path, until: Until, runtime: Path, cli: Cli
) -> None:
    first, _, client = link.hosts
    options = (
        "--dhcp-option=option6:dns-server,[fd77::1]",
        "--dhcp-option=option6:domain-search,ib.example",
    )
    with running(first, tmp_path, server(*options)) as served:
        until(lambda: READY in served.log)
        client.start()
        given = lease(client)
        address = given["address"]
        assert (given["duid"], given["iaid"]) == (DUID, "00:00:ff:ff")
        until(lambda: f"inet6 {address} scope global dynamic" in addresses(client))
        assert 100 < given["expires_s"] <= 120
        assert given["preferred_s"] <= given["expires_s"]
        until(lambda: client.run(["ping", "-c1", "-W5", "fd77::1"]).returncode == 0)
        (resolv,) = runtime.glob("net-*/ib0.resolv.conf")
        assert resolv.read_text().splitlines()[1:] == ["search ib.example", "nameserver fd77::1"]
        shown = cli(client, "show", "ib0").stdout
        assert f"dhcp6 {address} from {given['server']} expires in" in shown
        assert "dhcp6 dns fd77::1 search ib.example" in shown
        requests = served.log.count("DHCPREQUEST")
        client.kill()
        client.start()
        assert lease(client)["address"] == address
        assert "DHCPCONFIRM" in served.log
        assert served.log.count("DHCPREQUEST") == requests
    client.stop()
    assert not list(runtime.glob("net-*/ib0.resolv.conf"))
    assert list((tmp_path / "leases").glob("ib0-*.lease6"))


def test_an_address_that_does_not_fit_the_link_any_more_is_replaced(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """RFC 8415 §18.2.10.1: NotOnLink answers our Confirm message."""
    first, _, client = link.hosts
    with running(first, tmp_path, server()) as served:
        until(lambda: READY in served.log)
        client.start()
        before = lease(client)["address"]
        until(lambda: list((tmp_path / "leases").glob("ib0-*.lease6")))  # a thread writes it
    client.kill()
    first.run(["ip", "address", "add", "fd88::1/64", "dev", "ib0"])
    first.run(["ip", "address", "del", "fd77::1/64", "dev", "ib0"])
    with running(first, tmp_path, server(pool="fd88::100,fd88::200")) as served:
        until(lambda: READY in served.log)
        client.start(wait=False)
        until(lambda: "fd88::" in addresses(client))
        assert "DHCPCONFIRM" in served.log
        assert before not in addresses(client)
        assert f"a server refuses {before.partition('/')[0]}" in client.log()
    client.stop()


def test_an_address_of_another_host_is_declined(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """A host has the address that the server wants to give."""
    first, second, client = link.hosts
    second.run(["ip", "address", "add", "fd77::150/64", "dev", "ib0"])
    until(lambda: "fd77::150" in str(second.ask("show")["addresses"]))
    fixed = f"--dhcp-host=id:{DUID},[fd77::150]"
    with running(first, tmp_path, server(fixed)) as served:
        until(lambda: READY in served.log)
        until(lambda: declines(client, served), 120)
        until(lambda: "DHCPv6: another host has fd77::150" in client.log())
        assert "fd77::150" not in addresses(client)
    client.stop()


def test_an_address_is_given_back_if_the_configuration_says_so(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    client.options += ["--dhcp-release", "on"]
    with running(first, tmp_path, server()) as served:
        until(lambda: READY in served.log)
        client.start()
        lease(client)
        client.stop()
        until(lambda: "DHCPRELEASE" in served.log)
    assert "internal error" not in client.log()
    assert not list((tmp_path / "leases").glob("ib0-*.lease6"))


def test_both_clients_and_a_static_address_share_an_interface(
    link: NamespaceLab, tmp_path: Path, until: Until, runtime: Path
) -> None:
    first, _, client = link.hosts
    client.options += ["--address", "dhcp", "--address", "10.78.0.3/24"]
    options = (
        "--dhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,120",
        "--dhcp-option=option:dns-server,10.77.0.1",
        "--dhcp-option=option6:dns-server,[fd77::1]",
        "--no-ping",
    )
    with running(first, tmp_path, server(*options)) as served:
        until(lambda: READY in served.log)
        client.start()
        shown_lease(client, "dhcp")
        lease(client)
        shown = client.ask("show")
        given = {shown["dhcp"]["address"].partition("/")[0]}
        given |= {shown["dhcp6"]["address"].partition("/")[0], "10.78.0.3"}
        assert given <= {each["address"].partition("/")[0] for each in shown["addresses"]}
        (resolv,) = runtime.glob("net-*/ib0.resolv.conf")
        assert "nameserver 10.77.0.1\nnameserver fd77::1\n" in resolv.read_text()
        # RFC 4361 §6.1: the client identifier has the same IAID and DUID
        assert shown["dhcp"]["client_id"] == f"ff:{shown['dhcp6']['iaid']}:{DUID}"
    client.stop()
    suffixes = sorted(path.suffix for path in (tmp_path / "leases").iterdir())
    assert suffixes == [".lease", ".lease6"]


def kea(path: Path) -> list[str]:
    logger = {
        "name": "kea-dhcp6",
        "severity": "DEBUG",
        "debuglevel": 50,
        "output_options": [{"output": "stdout"}],
    }
    pools = [{"pool": "fd77::100 - fd77::200"}]
    config = {
        "interfaces-config": {"interfaces": ["ib0"]},
        "server-id": {"type": "LL", "htype": 1, "identifier": "020000000001", "persist": False},
        "lease-database": {"type": "memfile", "persist": False},
        "preferred-lifetime": 50,
        "valid-lifetime": 60,
        "renew-timer": 2,
        "rebind-timer": 30,
        "subnet6": [{"id": 1, "subnet": "fd77::/64", "interface": "ib0", "pools": pools}],
        "loggers": [logger],
    }
    path.write_text(json.dumps({"Dhcp6": config}))
    return ["kea-dhcp6", "-c", str(path)]


def test_kea_gives_and_renews_a_lease_also_one_that_it_has_forgotten(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    with running(first, tmp_path, kea(tmp_path / "kea.json")) as served:
        until(lambda: "DHCP6_STARTED" in served.log)
        client.start()
        given = lease(client)
        assert given["server"] == "00:03:00:01:02:00:00:00:00:01"
        until(lambda: served.log.count("DHCP6_LEASE_RENEW") >= 2)
        until(lambda: lease(client)["state"] == "bound")
        assert lease(client)["expires_s"] > 50
    with running(first, tmp_path, kea(tmp_path / "kea.json")) as served:
        until(lambda: "DHCP6_LEASE_RENEW" in served.log or "DHCP6_LEASE_ALLOC" in served.log)
        until(lambda: lease(client)["state"] == "bound")
        assert lease(client)["address"] == given["address"]
    client.stop()


def test_isc_behind_a_relay_agent_gives_and_renews_a_lease(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """ISC's server refuses the device type of a TUN."""
    first, second, client = link.hosts
    for host in (first, second):
        address = f"fd99::{host.number}/64"
        host.run(["ip", "address", "add", address, "dev", "eth0", "nodad"])
    config, leases = tmp_path / "dhcpd.conf", tmp_path / "dhcpd.leases"
    leases.touch()
    config.write_text(
        "authoritative; ddns-update-style none; default-lease-time 60; preferred-lifetime 50;\n"
        "option dhcp-renewal-time 2; option dhcp-rebinding-time 30;\n"
        "subnet6 fd99::/64 {}\n"
        "subnet6 fd77::/64 { range6 fd77::100 fd77::200; }\n"
    )
    for place in (config, leases, tmp_path):
        place.chmod(0o777)
    command = ["dhcpd", "-6", "-f", "-d", "-pf", "/run/dhcpd.pid", "-cf", str(config)]
    with (
        running(second, tmp_path, [*command, "-lf", str(leases), "eth0"]) as served,
        running(first, tmp_path, dnsmasq("--dhcp-relay=fd77::1,fd99::2")) as relay,
    ):
        until(lambda: "Server starting service" in served.log)
        until(lambda: "DHCP relay" in relay.log)
        client.start()
        assert lease(client)["address"] in addresses(client)
        replies = served.log.count("Reply NA")
        until(lambda: served.log.count("Reply NA") > replies)
        until(lambda: lease(client)["state"] == "bound")
    client.stop()


_PROGRAM = """
from ipoibu import Callbacks, Endpoint, EndpointConfig
from ipoibu.endpoint.dhcp_config import DhcpConfig

leases = []
config = EndpointConfig("ib0", "soft:eth0", dhcp6=DhcpConfig(is_released=True))
with Endpoint(config, callbacks=Callbacks(on_lease6=leases.append)) as endpoint:
    endpoint.address_added("fe80::5/64")
    assert endpoint.wait_up(20)
    print(endpoint.show()["dhcp6"]["address"], leases[0].address)
assert leases[-1] is None
"""


def test_an_application_gets_an_address_and_gives_it_back(
    link: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    first, _, client = link.hosts
    with running(first, tmp_path, server()) as served:
        until(lambda: READY in served.log)
        done = client.run([sys.executable, "-c", _PROGRAM])
        assert done.returncode == 0, done.stderr
        shown, told = done.stdout.split()
        assert shown == told
        assert f"DHCPREPLY(ib0) {shown.partition('/')[0]} " in served.log
        until(lambda: "DHCPRELEASE" in served.log)


def test_a_child_has_an_association_of_its_own(
    link: NamespaceLab, tmp_path: Path, until: Until, cli: Cli
) -> None:
    first, _, client = link.hosts
    done = cli(first, "child", "add", "ib0", "0x8001", "--address", "fd78::1/64")
    assert done.returncode == 0, done.stderr
    more = "--dhcp-range=fd78::100,fd78::200,64,120"
    with running(first, tmp_path, server("--interface=ib0.8001", more)) as served:
        until(lambda: served.log.count(READY) == 2)
        client.start()
        done = cli(client, "child", "add", "ib0", "0x8001", "--address", "dhcp6")
        assert done.returncode == 0, done.stderr

        def leases() -> list[dict[str, Any]]:
            shown = json.loads(cli(client, "show", "-j").stdout)
            shown.sort(key=lambda each: each["name"])
            return [each["dhcp6"] for each in shown if each["dhcp6"]["address"]]

        until(lambda: len(leases()) == 2)
        parent, child = leases()
        assert parent["address"].startswith("fd77::")
        assert child["address"].startswith("fd78::")
        assert parent["duid"] == child["duid"]
        assert (parent["iaid"], child["iaid"]) == ("00:00:ff:ff", "00:00:80:01")
    client.stop()
