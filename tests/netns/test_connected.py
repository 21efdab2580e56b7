# SPDX-License-Identifier: BSD-2-Clause
"""Connected mode on the built-in HCA: RFC 4755 between real network stacks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ipoibu.base.limits import CONNECTIONS_PER_PORT_MAX
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.kernel_counters import reassembled, udp_arrived

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

MTU = 65520
LARGE = 60000
IPOIBU = f"{sys.executable} -m ipoibu.cli"


@pytest.fixture(scope="module")
def connected() -> Iterator[NamespaceLab]:
    with NamespaceLab(options=["--mode", "connected"]) as lab:
        yield lab


@contextmanager
def _iperf_server(host: Host) -> Iterator[None]:
    command = ["iperf3", "-s", "-1", "--forceflush"]
    with host.namespace.popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        for line in server.stdout:
            if b"listening" in line:
                break
        try:
            yield
        finally:
            server.kill()


def _live(host: Host, role: str = "active") -> list[dict[str, Any]]:
    return [c for c in host.ask("conn") if c["role"] == role and c["state"] == "live"]


def _states(host: Host) -> list[str]:
    return [c["state"] for c in host.ask("conn")]


def _ip(host: Host, version: int = 4) -> str:
    return str(next(address.ip for address in host.addresses if address.version == version))


def _meet(until: Until, one: Host, other: Host) -> None:
    until(lambda: one.run(["ping", "-c", "1", "-W", "1", _ip(other)]).returncode == 0)


def _connect(until: Until, one: Host, other: Host) -> None:
    """Ping until each host has a connection to the other: nothing but a packet begins another attempt."""
    ends = [(host, role) for host in (one, other) for role in ("active", "passive")]

    def are_connected() -> bool:
        one.run(["ping", "-c", "1", "-W", "1", _ip(other)])
        return all(_live(host, role) for host, role in ends)

    until(are_connected, 120)


def _exchange(until: Until, one: Host, other: Host, size: int = LARGE, version: int = 4) -> None:
    """Ping without fragments, until three answers come to three packets.

    On a busy machine a connection may break for want of acknowledgements. A packet that is sent then
    teaches the kernel the datagrams' MTU for ten minutes.
    """
    words = [f"-{version}", "-c", "3", "-i", "0.2", "-W", "3", "-M", "do", "-s", str(size)]

    def passes() -> bool:
        for host in (one, other):
            host.run(["ip", f"-{version}", "route", "flush", "cache"])
        return ", 3 received" in one.run(["ping", *words, _ip(other, version)]).stdout

    until(passes, 120)


def test_the_interface_has_the_large_mtu_and_says_so(connected: NamespaceLab) -> None:
    shown = connected.hosts[0].ask("show")
    assert (shown["mtu"], shown["mode"], shown["ib_mtu"]) == (MTU, "connected", 2048)
    assert shown["hwaddr"].startswith("80:")  # RFC 4755 §3.1: we accept connections


def test_the_first_packet_goes_by_datagram_and_makes_a_connection_each_way(
    connected: NamespaceLab, sh: Sh, until: Until
) -> None:
    """C1, C8: the host takes the answer to a datagram, too."""
    one, other = connected.hosts[:2]
    _connect(until, one, other)
    (mine,), (theirs,) = _live(one), _live(other, "passive")
    assert mine["mtu"] == MTU
    assert mine["path_mtu"] == theirs["path_mtu"] == 8192  # the wire would take 8928
    assert (mine["qpn"], mine["remote_qpn"]) == (theirs["remote_qpn"], theirs["qpn"])
    assert len(_live(one, "passive")) == 1  # profile `linux`: a connection for each direction


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("size", [56, 2017, LARGE])
def test_pings_of_every_size_come_back_unfragmented(
    connected: NamespaceLab, sh: Sh, until: Until, version: int, size: int
) -> None:
    one, other = connected.hosts[:2]
    _connect(until, one, other)

    def grown() -> bool:
        before = one.ask("stats")["tx_connected_packets"]
        _exchange(until, one, other, size, version)
        return bool(one.ask("stats")["tx_connected_packets"] >= before + 3)

    until(grown)


def test_streams_cross_whole(connected: NamespaceLab, sh: Sh, until: Until) -> None:
    one, other = connected.hosts[:2]
    _connect(until, one, other)
    before = other.ask("stats")
    with _iperf_server(other):
        done = one.run(["iperf3", "-t", "1", "-c", _ip(other)])
    assert done.returncode == 0, done.stdout
    after = other.ask("stats")
    assert after["rx_superframes"] > before["rx_superframes"]
    assert after["rx_bad_superframe"] == before["rx_bad_superframe"]


def test_the_mode_changes_under_a_living_interface(sh: Sh, until: Until) -> None:
    """The kernel's interface stays and gets the MTU of the mode; peers learn the new hardware address."""
    with NamespaceLab() as lab:
        one, other = lab.hosts[:2]
        _meet(until, one, other)
        index = sh(one, "ip -o link show ib0").split(":")[0]
        mtu = one.ask("show")["mtu"]
        for host in (one, other):
            assert "datagram" in sh(host, f"{IPOIBU} set ib0 mode connected")
        until(lambda: all(host.ask("show")["state"] == "up" for host in (one, other)))
        for host in (one, other):
            until(lambda host=host: f"mtu {MTU} " in sh(host, "ip link show ib0"))
        _connect(until, one, other)
        _exchange(until, one, other)
        assert one.ask("show")["mode"] == "connected"
        sh(one, f"{IPOIBU} set ib0 mode datagram")
        until(lambda: f"mtu {mtu} " in sh(one, "ip link show ib0"))
        for version in (4, 6):
            ping = ["ping", f"-{version}", "-c", "1", "-W", "1", _ip(other, version)]
            until(lambda ping=ping: one.run(ping).returncode == 0)
        assert one.ask("conn") == []
        assert sh(one, "ip -o link show ib0").split(":")[0] == index


def test_a_datagram_host_is_reached_with_its_smaller_mtu(sh: Sh, until: Until) -> None:
    """C12"""
    with NamespaceLab(hosts=3, options=["--mode", "connected"], start=False) as lab:
        lab.hosts[2].options = []
        lab.start()
        one, other, small = lab.hosts
        _connect(until, one, other)
        _meet(until, one, small)
        large = ["ping", "-c", "1", "-W", "2", "-s", str(LARGE), _ip(small)]

        def refused() -> bool:
            done = one.run([*large, "-M", "do"])
            assert done.returncode != 0
            return "mtu" in (done.stdout + done.stderr).lower()  # learned from our ICMP error

        until(refused)
        assert f"mtu {2044}" in sh(one, f"ip route get {_ip(small)}")
        until(lambda: one.run(large).returncode == 0)  # in fragments
        _exchange(until, one, other)
        assert all(c["mtu"] == MTU for c in _live(one))


def test_one_connection_serves_both_directions_in_the_rfcs_profile(sh: Sh, until: Until) -> None:
    """C6: of requests that cross, the host with the larger address refuses the other's."""
    with NamespaceLab(options=["--mode", "connected", "--cm-profile", "rfc"]) as lab:
        one, other = lab.hosts

        def both_ways() -> bool:
            _exchange(until, one, other)
            _exchange(until, other, one)
            if not all(_states(host) == ["live"] for host in (one, other)):
                return False
            mine, theirs = one.ask("conn")[0], other.ask("conn")[0]
            assert {mine["role"], theirs["role"]} == {"active", "passive"}
            return bool(min(mine["tx_messages"], mine["rx_messages"]) >= 6)

        until(both_ways, 120)


def test_a_host_that_restarts_is_connected_to_again(sh: Sh, until: Until) -> None:
    with NamespaceLab(options=["--mode", "connected"]) as lab:
        one, other = lab.hosts
        _connect(until, one, other)
        (before,) = _live(one)
        other.kill()
        other.start()

        def is_another() -> bool:
            one.run(["ping", "-c", "1", "-W", "1", _ip(other)])
            return any(c["peer"] != before["peer"] for c in _live(one))

        until(is_another, 120)
        _exchange(until, one, other)


def test_new_addresses_are_resolved_by_datagram_beside_connections(
    connected: NamespaceLab, sh: Sh, until: Until
) -> None:
    """N6: the requests and the answers go by datagram; ARP by a connection would count as `rx_type`."""
    one, other = connected.hosts[:2]
    _connect(until, one, other)
    before = one.ask("stats"), other.ask("stats")
    for version, address in ((4, "10.77.0.99/24"), (6, "fd77::99/64")):
        sh(other, f"ip address add {address} dev ib0")
        ip = address.partition("/")[0]
        assigned = {"address": ip, "state": "preferred"}
        until(lambda it=assigned: it in other.ask("show")["addresses"])
        ask = ["ping", f"-{version}", "-c1", "-W1", ip]
        until(lambda ask=ask: one.run(ask).returncode == 0)
        sh(other, f"ip address del {address} dev ib0")
    for host, stats in zip((one, other), before, strict=True):
        after = host.ask("stats")
        assert after["rx_control"] >= stats["rx_control"] + 2
        assert after["rx_type"] == stats["rx_type"]


def test_groups_are_sent_to_by_datagram_whatever_connections_there_are(
    connected: NamespaceLab, sh: Sh, until: Until
) -> None:
    """C2."""
    one, other = connected.hosts[:2]
    _connect(until, one, other)
    before = one.ask("stats")
    # The kernel of `one` answers, too, so ping may end before the pump has read the packets.
    sh(one, "ping -6 -c 3 -i 0.2 -W 3 ff02::1%ib0")
    sent = before["tx_multicast_packets"] + 3
    until(lambda: one.ask("stats")["tx_multicast_packets"] >= sent)


@pytest.mark.parametrize("group", ["ff02::1", "224.0.0.1", "255.255.255.255", "10.77.0.255"])
def test_what_is_longer_than_a_datagram_arrives_at_groups_in_fragments(
    connected: NamespaceLab, until: Until, group: str
) -> None:
    """For a bound socket, which routing daemons have, the kernel looks up no route, whose MTU it could
    learn."""
    one, other = connected.hosts[:2]
    version = 6 if ":" in group else 4
    before = reassembled(other, version)
    words = ["-b", group] if group.endswith("255") else [group]

    def arrives() -> bool:
        one.run(["ping", "-c", "1", "-W", "1", "-s", "5000", "-I", "ib0", *words])
        return reassembled(other, version) > before

    until(arrives)
    assert one.ask("stats")["tx_fragmented"] > 0


@pytest.mark.serial
def test_large_udp_datagrams_arrive(connected: NamespaceLab, sh: Sh, until: Until) -> None:
    one, other = connected.hosts[:2]
    command = ["iperf3", "-J", "-u", "-b", "100M", "-l", "60000", "-k", "200", "-c", _ip(other)]

    def arrive() -> bool:
        """The pump drops what comes to a full connection, while the other host is late to acknowledge."""
        _connect(until, one, other)
        before = udp_arrived(other)
        with _iperf_server(other):
            done = one.run(command)
        assert done.returncode == 0, done.stdout
        packets = json.loads(done.stdout)["end"]["sum"]["packets"]
        return bool(packets >= 200 and udp_arrived(other) - before > 0.95 * packets)

    until(arrive, 150)


def test_a_peer_that_stops_answering_is_left_and_found_again_under_load(
    sh: Sh, until: Until
) -> None:
    with NamespaceLab(options=["--mode", "connected"]) as lab:
        one, other = lab.hosts
        _connect(until, one, other)
        with _iperf_server(other):
            stream = one.namespace.popen(["iperf3", "-t", "8", "-c", _ip(other)])
            with stream:
                until(lambda: any(c["tx_messages"] > 100 for c in _live(one)))
                assert other.pid is not None
                os.kill(other.pid, signal.SIGSTOP)
                until(lambda: one.ask("stats").get("engine.connection_broken", 0) > 0)
                os.kill(other.pid, signal.SIGCONT)
                assert stream.wait(40) == 0  # TCP did not notice
        _connect(until, one, other)
        _exchange(until, one, other)


def test_a_flood_of_requests_is_refused_at_the_cap(sh: Sh, until: Until) -> None:
    with NamespaceLab(hosts=3, options=["--mode", "connected"]) as lab:
        one, other, flooder = lab.hosts
        _connect(until, one, other)
        hwaddr = one.ask("show")["hwaddr"]
        flooder.stop()
        done = flooder.run([sys.executable, "-m", "tests.doubles.cm_flood", "eth0", hwaddr])
        assert done.returncode == 0, done.stderr
        accepted, refused = map(int, done.stdout.split())
        assert 0 < accepted <= CONNECTIONS_PER_PORT_MAX
        assert accepted + refused == 200
        assert len(one.ask("conn")) <= CONNECTIONS_PER_PORT_MAX + 2
        _exchange(until, one, other)
        assert _live(one)


def test_a_long_packet_before_the_connection_leaves_the_path_mtu_alone(
    connected: NamespaceLab, sh: Sh, until: Until
) -> None:
    """An ICMP error would keep Linux to short packets for ten minutes."""
    first, second = connected.hosts
    target = str(second.ipv4.ip)
    ping = ["ping", "-q", "-c1", "-W1", "-s60000", "-M", "do", target]
    _connect(until, first, second)
    _exchange(until, first, second)
    second.kill()
    second.start()
    hwaddr = second.ask("show")["hwaddr"]
    until(lambda: hwaddr in {n["hwaddr"] for n in first.ask("neigh") if n["ip"] == target})
    until(lambda: first.run(ping).returncode == 0)
    assert "mtu" not in sh(first, f"ip route get {target}")


def test_the_first_long_packet_waits_for_the_connection(sh: Sh, until: Until) -> None:
    """Each new pair of hosts has one try; a busy machine may take too long for the first ping."""

    def comes_back() -> bool:
        with NamespaceLab(options=["--mode", "connected"]) as lab:
            first, second = lab.hosts
            until(lambda: first.ask("show")["state"] == second.ask("show")["state"] == "up")
            answered = first.run(["ping", "-q", "-c1", "-W9", f"-s{LARGE}", _ip(second)])
            dropped = [host.ask("stats")["tx_connecting"] for host in lab.hosts]
            return answered.returncode == 0 and dropped == [0, 0]

    until(comes_back)
