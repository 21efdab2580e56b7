# SPDX-License-Identifier: BSD-2-Clause
"""Flows of hosts with two devices each go by both: `--rail-mode balance-xor`.

Two wires join the hosts, eth0 with eth0 and eth1 with eth1; nothing joins the wires.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.errors import LabError
from ipoibu.lab.host import Host
from tests.attack.attacker import Attacker
from tests.attack.attacks import Target, hellos
from tests.netns.conftest import Cli, Until

Sh = Callable[[Host, str], str]

MTU = 4200
SPREAD = ["--device", "soft:eth1", "--rail-mode", "balance-xor"]
FLOWS, EACH = 16, 500

# Sends FLOWS flows from ports of their own, message after message in turn; each has its number.
SENDER = f"""
import socket, sys, time
sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range({FLOWS})]
for one in sockets:
    one.connect((sys.argv[1], 9999))
for number in range({EACH}):
    for one in sockets:
        one.send(number.to_bytes(4, "big"))
    time.sleep(0.001)
"""

# Prints for each flow how many messages came, and how many of them after a later one.
RECEIVER = """
import collections, json, socket
last, come, late = {}, collections.Counter(), 0
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("", 9999))
    print("ready", flush=True)
    one.settimeout(60)
    while True:
        try:
            data, source = one.recvfrom(64)
        except TimeoutError:
            break
        one.settimeout(2)
        number = int.from_bytes(data, "big")
        late += number <= last.get(source, -1)
        last[source] = number
        come[source] += 1
print(json.dumps({"flows": list(come.values()), "late": late}))
"""


def _second_wire(first: Host, second: Host, sh: Sh) -> None:
    name = second.namespace.path.name
    sh(first, f"ip link add eth1 mtu {MTU} type veth peer name eth1 netns {name} mtu {MTU}")
    for host in (first, second):
        sh(host, "ip link set eth1 up")


def _prepare(host: Host, sh: Sh) -> None:
    """Have IPv6 addresses of the wires be usable at once."""
    sh(host, "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad")
    sh(host, f"ip link set eth0 mtu {MTU}")


@pytest.fixture
def pair(sh: Sh) -> Iterator[NamespaceLab]:
    with NamespaceLab(start=False) as lab:
        for host in lab.hosts:
            _prepare(host, sh)
            host.options = list(SPREAD)
        first, second = lab.hosts
        _second_wire(first, second, sh)
        yield lab


def _rails(host: Host) -> list[dict[str, Any]]:
    rails: list[dict[str, Any]] = host.ask("show")["rails"]
    return rails


def _states(host: Host) -> list[str]:
    return [rail["state"] for rail in _rails(host)]


def _peers(host: Host) -> list[int]:
    return [rail["peers"] for rail in _rails(host)]


def _sent(host: Host) -> list[int]:
    return [rail["tx_packets"] for rail in _rails(host)]


def _reaches(source: Host, target: Host) -> bool:
    return source.run(["ping", "-q", "-c1", "-W1", str(target.ipv4.ip)]).returncode == 0


class Streams:
    """16 streams from `source` to `target`: on one rail alone by chance once in 32768 times."""

    def __init__(self, source: Host, target: Host, sh: Sh, until: Until, seconds: int) -> None:
        self._server = target.namespace.popen(["iperf3", "-s", "-1"], stdout=subprocess.DEVNULL)
        until(lambda: ":5201" in sh(target, "ss -tlnH"))
        command = ["iperf3", "-c", str(target.ipv4.ip), f"-t{seconds}", "-P16", "-J"]
        self._client = source.namespace.popen(command, stdout=subprocess.PIPE)

    def report(self) -> dict[str, Any]:
        """Wait for the end of all streams."""
        try:
            report: dict[str, Any] = json.loads(self._client.communicate(timeout=120)[0])
            assert self._client.returncode == 0, report
            assert self._server.wait(timeout=60) == 0
        finally:
            for process in (self._client, self._server):
                process.kill()
                process.wait()
        return report


def test_flows_go_by_both_wires_and_keep_their_order(
    pair: NamespaceLab, until: Until, cli: Cli
) -> None:
    first, second = pair.hosts
    pair.start()
    until(lambda: _states(first) == ["active", "sharing"])
    until(lambda: _peers(first) == _peers(second) == [1, 1])
    until(lambda: _reaches(first, second))

    def numbered() -> tuple[list[int], dict[str, Any]]:
        before = _sent(first)
        receiver = second.namespace.popen([sys.executable, "-c", RECEIVER], stdout=subprocess.PIPE)
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        done = first.run([sys.executable, "-c", SENDER, str(second.ipv4.ip)], timeout_s=120)
        assert done.returncode == 0
        found = json.loads(receiver.communicate(timeout=120)[0])
        sent = [after - earlier for after, earlier in zip(_sent(first), before, strict=True)]
        return sent, found

    # Flows move, out of order, from a rail on which a stopped peer was silent for a second: try again.
    # At least one flow goes by each, of which a busy machine may lose messages in the TUN's queue.
    for _ in range(5):
        sent, found = numbered()
        if found["late"] == 0 and min(sent) >= EACH // 2:
            break
    assert found["late"] == 0
    assert len(found["flows"]) == FLOWS
    assert all(count >= EACH // 2 for count in sent), sent
    assert sum(sent) >= sum(found["flows"])
    line = r"^    rail soft:eth1 port 1 sharing for \d+s packets out \d+ in \d+ peers 1$"
    until(lambda: re.search(line, cli(first, "show", "ib0").stdout, re.MULTILINE))
    assert first.ask("stats")["fabric.rails_rx_hellos"] > 0
    text = r"^ok +rails +ib0: soft:eth1 is sharing, and carries flows to 1 peers$"
    until(lambda: re.search(text, cli(first, "doctor").stdout, re.MULTILINE))


def test_the_flows_of_a_pulled_wire_move_to_the_other(
    pair: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = pair.hosts
    pair.start()
    until(lambda: _peers(first) == _peers(second) == [1, 1])
    until(lambda: _reaches(first, second))
    gid = second.ask("show")["gid"]
    streams = Streams(first, second, sh, until, 20)
    until(lambda: min(_sent(first)) > 1000)
    sh(second, "ip link set eth0 down")  # the wire of the active rail
    until(lambda: _states(first) == ["down", "active"])
    report = streams.report()
    late = report["intervals"][-10:]
    assert all(any(it["streams"][n]["bytes"] for it in late) for n in range(16))
    assert first.ask("stats")["engine.rail_changes"] == 1
    assert first.ask("stats").get("engine.renewals", 0) == 0  # no queue pair was made
    until(lambda: _reaches(first, second))
    sh(second, f"ip link set eth0 up && ip address add {gid}/64 dev eth0 nodad")
    until(lambda: _peers(first) == _peers(second) == [1, 1])
    before = _sent(first)
    Streams(first, second, sh, until, 5).report()
    assert all(after > earlier + 100 for after, earlier in zip(_sent(first), before, strict=True))


def test_a_host_with_one_rail_is_reached_by_the_active_rail(sh: Sh, until: Until) -> None:
    with NamespaceLab(3, start=False) as lab:
        first, second, third = lab.hosts
        for host in lab.hosts:
            _prepare(host, sh)
        _second_wire(first, second, sh)
        first.options, second.options = list(SPREAD), list(SPREAD)
        lab.start()
        until(lambda: _peers(first) == _peers(second) == [1, 1])
        for one, other in ((first, third), (third, first), (second, third), (first, second)):
            until(lambda one=one, other=other: _reaches(one, other))
        before = _sent(first)
        Streams(first, third, sh, until, 1).report()
        after = _sent(first)
        assert after[0] > before[0] + 100
        assert after[1] < before[1] + 100
        assert third.ask("stats")["rx_unconcerned"] > 0  # hellos; nothing else of them is counted
        assert third.ask("stats")["rx_type"] == 0


def test_a_host_on_one_wire_only_does_not_move_the_active_rail(sh: Sh, until: Until) -> None:
    """The third host's first rail is on a wire of its own, and its second on that of the first host."""
    with NamespaceLab(3, start=False) as lab:
        first, second, third = lab.hosts
        for host in lab.hosts:
            _prepare(host, sh)
        _second_wire(first, third, sh)
        sh(third, f"ip link add lone mtu {MTU} type veth peer name end && ip link set lone up")
        sh(third, "ip link set end up")
        first.options, third.device = list(SPREAD), "soft:lone"
        third.options = [*SPREAD, "--rail-primary", "soft:eth1"]
        lab.start()
        until(lambda: _reaches(first, second))
        until(lambda: _peers(first) == [0, 1])
        heard = first.ask("stats")["fabric.rails_rx_hellos"]
        until(lambda: first.ask("stats")["fabric.rails_rx_hellos"] > heard + 6)  # in 1.5 s
        assert "engine.rail_changes" not in first.ask("stats")
        assert _states(first) == ["active", "sharing"]
        assert _reaches(first, second)


def test_hellos_of_hosts_that_do_not_exist_get_one_each_at_most(
    pair: NamespaceLab, until: Until, attacker: Attacker
) -> None:
    """And the peer stays one: the answers to others leave frames and handles to it."""
    first, second = pair.hosts
    pair.start()
    until(lambda: _peers(first) == _peers(second) == [1, 1])
    until(lambda: _reaches(second, first))
    target = Target.of(first.ask("show"), first.ipv4.ip, first.ipv6.ip)

    def counted() -> Counter[str]:
        stats = first.ask("stats")
        names = ("tx_hellos", "rx_hellos", "hello_unproven", "peers_full")
        return Counter({name: stats.get(f"fabric.rails_{name}", 0) for name in names})

    before = counted()
    with attacker.flood(second, first, hellos(target), rate=2000):
        until(lambda: (counted() - before)["hello_unproven"] > 4000)
    grown = counted() - before
    assert grown["tx_hellos"] < 1.5 * grown["rx_hellos"]  # those to the peer are among them
    assert grown["peers_full"] == 0
    until(lambda: _peers(first) == _peers(second) == [1, 1])
    assert "engine.rail_changes" not in first.ask("stats")


def test_a_silent_wire_carries_no_flows(sh: Sh, until: Until) -> None:
    """The second wires end at a bridge that stops to forward: every port stays up."""
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            _prepare(host, sh)
            host.options = list(SPREAD)
        switch = lab.hosts[1].namespace.path.name
        sh(first, f"ip link add eth1 mtu {MTU} type veth peer name port1 netns {switch} mtu {MTU}")
        sh(second, f"ip link add eth1 mtu {MTU} type veth peer name port2 mtu {MTU}")
        sh(second, f"ip link add bridge0 mtu {MTU} type bridge && ip link set bridge0 up")
        sh(second, "for port in port1 port2; do ip link set $port master bridge0 up; done")
        for host in lab.hosts:
            sh(host, "ip link set eth1 up")
        lab.start()
        until(lambda: _peers(first) == _peers(second) == [1, 1])
        until(lambda: _reaches(first, second))
        sh(second, "ip link set port1 nomaster")
        until(lambda: _peers(first) == _peers(second) == [1, 0])
        assert _states(first) == ["active", "sharing"]
        Streams(first, second, sh, until, 5).report()
        sh(second, "ip link set port1 master bridge0")
        until(lambda: _peers(first) == _peers(second) == [1, 1])


def test_a_device_that_goes_and_comes_back_shares_again(
    pair: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = pair.hosts
    pair.start()
    until(lambda: _peers(first) == [1, 1])
    sh(first, "ip link delete eth1")
    until(lambda: _states(first) == _states(second) == ["active", "absent"])
    until(lambda: _reaches(second, first))
    _second_wire(first, second, sh)
    until(lambda: _states(first) == _states(second) == ["active", "sharing"])
    until(lambda: _peers(first) == _peers(second) == [1, 1])
    until(lambda: _reaches(first, second))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--mode", "connected"], "--rail-mode balance-xor needs datagram mode"),
        (["--queues", "2"], "--rail-mode balance-xor: leave --queues out"),
        (["--peer", "192.0.2.1"], "--rail-mode balance-xor is not for links with peers"),
        (["--rail-mode", "802.3ad"], "'802.3ad' is no mode of several devices"),
    ],
)
def test_what_rails_cannot_spread_is_refused_in_words(
    pair: NamespaceLab, options: list[str], words: str
) -> None:
    first = pair.hosts[0]
    first.options += options
    with pytest.raises(LabError, match=re.escape(words)):
        first.start()
