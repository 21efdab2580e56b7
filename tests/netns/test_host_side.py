# SPDX-License-Identifier: BSD-2-Clause
"""Changes that a user makes to a running interface with `ip`: addresses, routes, up, down and MTU."""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.detection import gives_up

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]


def _addresses(host: Host) -> set[str]:
    return {entry["address"] for entry in host.ask("show")["addresses"]}


def _reaches(host: Host, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", target]).returncode == 0


@pytest.mark.parametrize(
    ("address", "target"), [("10.78.0.{}/24", "10.78.0.2"), ("fd78::{}/64", "fd78::2")]
)
def test_addresses_added_by_hand_work_and_vanish_again(
    lab: NamespaceLab, sh: Sh, until: Until, address: str, target: str
) -> None:
    for host in lab.hosts:
        sh(host, f"ip address add {address.format(host.number)} dev ib0")
    until(lambda: _reaches(lab.hosts[0], target))
    assert target in _addresses(lab.hosts[1])
    for host in lab.hosts:
        sh(host, f"ip address del {address.format(host.number)} dev ib0")
    until(lambda: target not in _addresses(lab.hosts[1]))
    assert not _reaches(lab.hosts[0], target)


def test_the_broadcast_address_of_a_subnet_added_by_hand_is_one(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = lab.hosts
    for host in lab.hosts:  # without `brd +`: the kernel's route is what counts
        sh(host, f"ip address add 10.79.0.{host.number}/24 dev ib0")
    sh(second, "sysctl -qw net.ipv4.icmp_echo_ignore_broadcasts=0")
    until(lambda: "10.79.0.2" in _addresses(second))
    broadcast = ["ping", "-b", "-c2", "-i0.3", "-W2", "10.79.0.255"]
    until(lambda: "from 10.79.0.2" in first.run(broadcast).stdout)
    for host in lab.hosts:
        sh(host, f"ip address del 10.79.0.{host.number}/24 dev ib0")


@pytest.mark.parametrize(
    "path",
    [
        ("10.99.0.0/16", "10.77.0.2", "10.99.0.1"),
        ("10.99.0.0/16", "inet6 fe80::200:ff:fe00:2", "10.99.0.1"),
        ("fd99::/48", "fd77::2", "fd99::1"),
        ("fd99::/48", "fe80::200:ff:fe00:2", "fd99::1"),
        ("default", "10.77.0.2", "10.99.0.1"),
    ],
)
def test_packets_go_to_the_gateway_of_their_route(
    lab: NamespaceLab, sh: Sh, until: Until, path: tuple[str, str, str]
) -> None:
    network, gateway, target = path
    first, second = lab.hosts
    others = (f"{target[:-1]}{number}" for number in itertools.count(2))

    def leaves_by_the_gateway() -> bool:
        """A packet that leaves before the route is followed would ask for its destination on the link."""
        other = next(others)
        _reaches(first, other)
        return other not in {entry["ip"] for entry in first.ask("neigh")}

    family = "-6" if ":" in target else "-4"
    bits = "128" if ":" in target else "32"
    sh(second, f"ip {family} address add {target}/{bits} dev lo")
    try:
        assert not _reaches(first, target)
        sh(first, f"ip {family} route add {network} via {gateway} dev ib0")
        until(leaves_by_the_gateway)
        until(lambda: _reaches(first, "10.77.0.2"))  # else the answer asks in the target's name
        until(lambda: _reaches(first, target))
        # The packet went by the gateway: no host resolved the target itself.
        assert target not in {entry["ip"] for entry in first.ask("neigh") if entry["hwaddr"]}
        sh(first, f"ip {family} route del {network}")
        until(lambda: not _reaches(first, target))
    finally:
        first.run(["ip", family, "route", "del", network])  # still there after a failure
        sh(second, f"ip {family} address del {target}/{bits} dev lo")


def test_a_host_that_forwards_is_a_router_to_its_neighbours(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    """RFC 4861 §7.2.5: a host that learns that its default router is none any more uses another one."""
    first, second = lab.hosts
    fresh = [f"fd81::{number:x}" for number in range(1, 17)]
    for address in fresh:
        sh(first, f"ip address add {address}/64 dev ib0 nodad")
    sh(second, "ip address add fd81::ffff/64 dev ib0 nodad")
    until(lambda: set(fresh) <= _addresses(first))

    def is_router() -> bool:
        """Return the Router flag of the answer to a first solicitation."""
        time.sleep(0.5)  # there are sixteen
        address = fresh.pop()
        until(lambda: _reaches(second, address))
        [said] = [entry["router"] for entry in second.ask("neigh") if entry["ip"] == address]
        return bool(said)

    for forwards in (True, False):
        assert is_router() == (not forwards)
        sh(first, f"sysctl -qw net.ipv6.conf.ib0.forwarding={forwards:d}")
        until(lambda forwards=forwards: is_router() == forwards)


def test_a_route_whose_gateway_changes_follows_it(lab: NamespaceLab, sh: Sh, until: Until) -> None:
    first, second = lab.hosts
    sh(second, "ip address add 10.99.0.1/32 dev lo")
    sh(first, "ip route add 10.99.0.0/16 via 10.77.0.50")
    until(lambda: not _reaches(first, "10.99.0.1"))  # until it has followed the route
    sh(first, "ip route change 10.99.0.0/16 via 10.77.0.2")
    until(lambda: _reaches(first, "10.99.0.1"))
    sh(first, "ip route del 10.99.0.0/16")
    sh(second, "ip address del 10.99.0.1/32 dev lo")


def test_flows_spread_over_the_live_next_hops_of_a_multipath_route(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    """A next hop that does not answer loses nothing: the flows go by those that do."""
    first, second = lab.hosts
    sh(second, "ip address add 10.99.0.1/32 dev lo")
    sh(second, "ip address add 10.77.0.3/24 dev ib0")
    until(lambda: _reaches(first, "10.77.0.3"))
    hops = [f"nexthop via 10.77.0.{n} dev ib0" for n in (2, 3, 50)]
    sh(first, f"ip route add 10.99.0.0/16 {' '.join(hops)}")
    until(lambda: _reaches(first, "10.99.0.1"))
    patient = ["ping", "-c1", "-W10", "10.99.0.1"]
    assert all(first.run(patient).returncode == 0 for _ in range(8))
    with (
        second.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        first.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("10.99.0.1", 4000))
        receiver.settimeout(30)
        wanted: set[str] = set()
        for _ in range(2):  # the first round makes the pump want every hop
            for port in range(5000, 5040):
                with first.socket(socket.AF_INET, socket.SOCK_DGRAM) as flow:
                    flow.bind(("10.77.0.1", port))
                    flow.sendto(b"x", ("10.99.0.1", 4000))
                assert receiver.recvfrom(10)[1][1] == port
                wanted |= {it["ip"] for it in first.ask("neigh")}
        sender.close()
    known = {entry["ip"]: entry["state"] for entry in first.ask("neigh")}
    assert known["10.77.0.2"] != "failed"
    assert "10.77.0.50" in wanted  # its entry fails and goes
    sh(first, "ip route del 10.99.0.0/16")
    sh(second, "ip address del 10.77.0.3/24 dev ib0")
    sh(second, "ip address del 10.99.0.1/32 dev lo")


@pytest.mark.parametrize("selector", ["to 10.99.0.0/16", "from 10.77.0.1", "fwmark 7"])
def test_a_rule_that_chooses_another_table_chooses_its_gateway(
    lab: NamespaceLab, sh: Sh, until: Until, selector: str
) -> None:
    """A frame does not name the rule: the endpoint asks the kernel about each flow."""
    first, second = lab.hosts
    sh(second, "ip address add 10.99.0.1/32 dev lo")
    if "fwmark" not in selector:  # without a mark both routes would fit, and the first counts
        sh(first, "ip route add default via 10.77.0.50 dev ib0")
    sh(first, "ip route add 10.99.0.0/16 via 10.77.0.2 dev ib0 table 100")
    sh(first, f"ip rule add {selector} table 100")
    words = ["ping", "-c1", "-W1", *(["-m", "7"] if "fwmark" in selector else []), "10.99.0.1"]
    until(lambda: first.run(words).returncode == 0)
    until(lambda: _reaches(first, "10.77.0.2"))

    def is_kept() -> bool:
        """Return whether the pump keeps the answer; a late notice of the kernel makes it ask again."""
        before = first.ask("stats")["tx_missed"]
        done = first.run([*words[:1], "-c5", "-i0.01", *words[2:]])
        return bool(done.returncode == 0 and first.ask("stats")["tx_missed"] - before <= 1)

    until(is_kept)
    sh(first, "ip route replace 10.99.0.0/16 via 10.77.0.51 dev ib0 table 100")
    until(lambda: first.run(words).returncode != 0)
    sh(first, f"ip rule del {selector} table 100")
    sh(first, "ip route add 10.99.0.0/16 via 10.77.0.2 dev ib0")
    until(lambda: _reaches(first, "10.99.0.1"))
    sh(first, "ip route flush table 100; ip route del 10.99.0.0/16; ip route del default || true")
    sh(second, "ip address del 10.99.0.1/32 dev lo")


def _resident_mb(host: Host) -> int:
    status = Path(f"/proc/{host.pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) >> 10


@pytest.mark.timeout(900)
def test_a_change_among_a_hundred_thousand_routes_is_followed(
    lab: NamespaceLab, sh: Sh, until: Until, tmp_path: Path
) -> None:
    """The route sync applies the notice: it does not list the routes again."""
    first, second = lab.hosts
    networks = [f"{11 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24" for n in range(100_000)]
    networks.append("10.150.0.0/16")  # once the last route is there, all earlier ones are
    file = tmp_path / "batch"
    sh(second, "ip address add 10.150.7.1/32 dev lo")
    file.write_text("".join(f"route add {network} via 10.77.0.2\n" for network in networks))
    batch = ["ip", "-batch", str(file)]
    assert first.run(batch, timeout_s=250).returncode == 0
    until(lambda: _reaches(first, "10.150.7.1"))
    assert _resident_mb(first) < 200
    sh(second, "ip address add 11.5.5.1/32 dev lo")
    until(lambda: _reaches(first, "11.5.5.1"))
    sh(first, "ip route change 11.5.5.0/24 via 10.77.0.50")
    until(lambda: not _reaches(first, "11.5.5.1"), 250)  # all before it are followed, too
    with (
        second.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        first.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("11.5.5.1", 4000))
        receiver.settimeout(0.001)
        sh(first, "ip route change 11.5.5.0/24 via 10.77.0.2")
        began = time.monotonic()
        until(lambda: _passes(sender, receiver))
        print(f"followed after {1000 * (time.monotonic() - began):.0f} ms")
    file.write_text("".join(f"route del {network}\n" for network in networks))
    assert first.run(batch, timeout_s=250).returncode == 0
    sh(first, "ip route add 10.150.7.1/32 via 10.77.0.50")  # the last one that it follows
    until(lambda: not _reaches(first, "10.150.7.1"), 250)
    sh(first, "ip route del 10.150.7.1/32")
    for address in ("10.150.7.1/32", "11.5.5.1/32"):
        sh(second, f"ip address del {address} dev lo")


def _passes(sender: socket.socket, receiver: socket.socket) -> bool:
    sender.sendto(b"x", ("11.5.5.1", 4000))
    try:
        return receiver.recv(10) == b"x"
    except TimeoutError:
        return False


def test_a_duplicate_ipv6_address_is_removed_and_logged(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = lab.hosts
    until(lambda: _reaches(first, str(second.ipv6.ip)))
    until(lambda: gives_up(sh, first, f"{second.ipv6.ip}/64"))
    until(lambda: "another host has the address" in first.log())
    assert "fd77::2" in first.log()
    until(lambda: "fd77::2" not in _addresses(first))
    until(lambda: _reaches(first, str(second.ipv6.ip)))


def test_a_duplicate_ipv4_address_stays_and_is_logged(
    lab: NamespaceLab, sh: Sh, until: Until
) -> None:
    """The kernel's users expect that; --dad-ipv4 on gives the address up."""
    first, second = lab.hosts
    address = str(second.ipv4.ip)
    sh(first, f"ip address add {address}/24 dev ib0")
    try:
        until(lambda: f"address {address} is also used by" in first.log())
        assert address in _addresses(first)
        assert first.ask("stats")["engine.address_conflict"] > 0
    finally:
        sh(first, f"ip address del {address}/24 dev ib0")
    until(lambda: _reaches(first, address))


# Up, down, MTU


def test_an_interface_set_down_and_up_again_works_again(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    bare.hosts[0].options = ["--route", "10.99.0.0/16,via=10.77.0.2"]
    bare.start()
    first, second = bare.hosts
    sh(second, "ip address add 10.99.0.1/32 dev lo")
    targets = ["10.77.0.2", "fd77::2", "10.99.0.1", "fe80::200:ff:fe00:2%ib0"]
    for target in targets:
        until(lambda target=target: _reaches(first, target))
    sh(first, "ip link set ib0 down")
    until(lambda: "another program set the interface down" in first.log())
    assert not _reaches(first, "10.77.0.2")
    sh(first, "ip link set ib0 up")
    for target in targets:
        until(lambda target=target: _reaches(first, target))
    assert first.stop() == 0


def test_an_mtu_above_the_links_is_set_back_and_a_smaller_one_is_respected(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    bare.start()
    first, second = bare.hosts
    sh(first, "ip link set ib0 mtu 9000")
    until(lambda: "mtu 2044" in sh(first, "ip link show ib0"))
    assert "setting it back to 2044" in first.log()
    sh(first, "ip link set ib0 mtu 1000")
    until(lambda: _reaches(first, str(second.ipv4.ip)))
    until(lambda: first.ask("show")["mtu"] == 1000)  # it takes one notice of two changes for none
    sh(first, "ip link set ib0 mtu 2044")
    until(lambda: _reaches(first, str(second.ipv6.ip)))
    # Ours of RFC 4391 §8 alone, as before: the kernel's own choice is taken off again.
    until(lambda: sh(first, "ip address show ib0").count("inet6 fe80:") == 1)
    assert "inet6 fe80::200:ff:fe00:1/64" in sh(first, "ip address show ib0")


def test_a_link_too_small_for_ipv6_carries_ipv4_alone(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    for host in bare.hosts:
        sh(host, "ip link set eth0 mtu 1350")
        host.addresses.remove(host.ipv6)
    bare.start()
    first = bare.hosts[0]
    assert first.ask("show")["mtu"] == 1272
    assert "IPv6 is off" in first.log()
    assert "inet6" not in sh(first, "ip address show ib0")
    until(lambda: _reaches(first, "10.77.0.2"))


def test_the_queue_is_as_long_as_that_of_a_real_device(lab: NamespaceLab, sh: Sh) -> None:
    assert "qlen 1000" in sh(lab.hosts[0], "ip link show ib0")
    assert "10.77.0.1/24 brd 10.77.0.255" in sh(lab.hosts[0], "ip -4 address show ib0")
    assert "mtu 2044" in sh(lab.hosts[0], "ip link show ib0")
