# SPDX-License-Identifier: BSD-2-Clause
"""Links whose wire drops multicast: hosts that `--peer` has told of each other (docs/use/unicast.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.errors import LabError
from ipoibu.lab.host import Host
from tests.netns.path_mtu import reaches_whole

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

# What the wire of such a network does to RoCE datagrams to groups.
NO_MULTICAST: Final = """nft -f - << END
table inet wire {
    chain out {
        type filter hook output priority 0
        oifname eth0 udp dport 4791 ip6 daddr ff00::/8 counter drop
    }
}
END"""


REFUSED: Final = """nft -f - << END
table inet door {
    chain in {
        type filter hook input priority 0
        udp dport 4791 reject
    }
}
END"""


def _underlay(host: Host) -> str:
    return f"192.0.2.{host.number}"


def _peers(host: Host) -> set[str]:
    return {row["peer"] for row in host.ask("peers") if row["state"] == "live"}


def _hwaddr(host: Host) -> str:
    """The hardware address without its flags, which tell of connected mode."""
    return "00" + str(host.ask("show")["hwaddr"])[2:]


def _hwaddrs(hosts: list[Host], but: Host) -> set[str]:
    return {_hwaddr(host) for host in hosts if host is not but}


def _met(hosts: list[Host]) -> bool:
    return all(_peers(host) == _hwaddrs(hosts, host) for host in hosts)


def _reaches(host: Host, target: str, *options: str) -> bool:
    return host.run(["ping", "-c", "1", "-W", "2", *options, target]).returncode == 0


def _addresses(host: Host, peer: Host) -> set[str]:
    (found,) = (it for it in host.ask("peers") if it["underlay"] == _underlay(peer))
    return set(found["addresses"])


@pytest.fixture
def three(sh: Sh) -> Iterator[NamespaceLab]:
    """Three hosts without interfaces; the second and the third know the first."""
    with NamespaceLab(3, start=False) as lab:
        for host in lab.hosts:
            sh(host, f"ip address add {_underlay(host)}/24 dev eth0")
            sh(host, NO_MULTICAST)
            host.options += ["--peer", _underlay(lab.hosts[0])]
        yield lab


def test_without_peers_such_a_wire_carries_nothing(sh: Sh) -> None:
    with NamespaceLab(start=False) as lab:
        for host in lab.hosts:
            sh(host, NO_MULTICAST)
        lab.start()
        first, second = lab.hosts
        assert not _reaches(first, str(second.ipv4.ip))


def test_every_host_reaches_every_other_in_both_families(three: NamespaceLab, until: Until) -> None:
    three.start()
    until(lambda: _met(three.hosts))
    for host in three.hosts:
        for other in three.hosts:
            if other is not host:
                for ip in (other.ipv4.ip, other.ipv6.ip):
                    until(lambda host=host, ip=ip: _reaches(host, str(ip)))
                    assert _reaches(host, str(ip), "-s", "1900", "-M", "do", "-W", "10")
    assert all(host.ask("stats")["fabric.unicast_rx_stranger"] == 0 for host in three.hosts)


def test_multicast_reaches_the_members_of_a_group_only(
    three: NamespaceLab, sh: Sh, until: Until
) -> None:
    three.start()
    until(lambda: _met(three.hosts))
    first, second, third = three.hosts
    group = "239.7.7.7"
    listen = f"exec socat -u UDP4-RECV:7777,ip-add-membership={group}:ib0 STDOUT"
    listener = second.namespace.popen(["sh", "-c", listen + " > /dev/null"])
    try:
        until(lambda: group in sh(second, "ip maddress show dev ib0"))
        sh(first, f"ip route add {group}/32 dev ib0")

        def copies() -> int:
            before = int(first.ask("stats")["fabric.unicast_tx_copies"])
            sh(first, f"echo hello | socat -u STDIN UDP4-SENDTO:{group}:7777")
            return int(first.ask("stats")["fabric.unicast_tx_copies"]) - before

        # Other messages to groups may fall into the time between; one member is one copy.
        until(lambda: copies() == 1)
        until(lambda: second.ask("stats")["rx_packets"] > 0)
    finally:
        listener.kill()
        listener.wait()
    assert third.ask("stats")["fabric.unicast_rx_stranger"] == 0


def test_connected_mode_meets_by_peers_too(three: NamespaceLab, until: Until) -> None:
    for host in three.hosts:
        host.options += ["--mode", "connected"]
    three.start()
    first, second, _ = three.hosts
    target = str(second.ipv4.ip)
    # The kernel remembers the datagram MTU of a packet that was too big, so a small one goes first.
    until(lambda: _reaches(first, target) and first.ask("conn"))
    until(
        lambda: _reaches(first, target) and all(row["state"] == "live" for row in first.ask("conn"))
    )
    until(lambda: reaches_whole(first, target))
    until(lambda: _met(three.hosts))
    until(lambda: all(row["groups"] for row in first.ask("peers")))
    gone = _hwaddr(second)
    second.kill()
    until(lambda: gone not in _peers(first))
    until(lambda: not [row for row in first.ask("conn") if row["peer"] == gone])


def test_a_host_that_was_killed_comes_back(three: NamespaceLab, until: Until) -> None:
    three.start()
    until(lambda: _met(three.hosts))
    first, second, third = three.hosts
    second.kill()
    until(lambda: len(_peers(first)) == len(_peers(third)) == 1)
    second.start()
    until(lambda: _met(three.hosts))
    until(lambda: _reaches(third, str(second.ipv4.ip)))


def test_neighbours_and_peers_show_where_they_are_below(
    three: NamespaceLab, cli: Cli, sh: Sh, until: Until
) -> None:
    three.start()
    until(lambda: _met(three.hosts))
    first, second, _ = three.hosts
    until(lambda: _reaches(first, str(second.ipv4.ip)))
    link_local = sh(second, "ip -6 -o address show dev eth0 scope link").split()[3].split("/")[0]
    (neighbour,) = (it for it in first.ask("neigh") if it["ip"] == str(second.ipv4.ip))
    assert neighbour["underlay"] == link_local
    assert f"{second.ipv4.ip} dev ib0" in (shown := cli(first, "neigh").stdout)
    assert f" underlay {link_local} " in shown
    until(lambda: _addresses(first, second) >= {str(second.ipv4.ip), str(second.ipv6.ip)})
    assert f"at {_underlay(second)}:4792" in cli(first, "peers").stdout


def test_children_meet_at_their_parents_port_and_capture_shows_their_packets(
    three: NamespaceLab, cli: Cli, until: Until, tmp_path: Path
) -> None:
    three.start()
    first, second, _ = three.hosts
    for host in (first, second):
        address = f"10.78.0.{host.number}/24"
        assert cli(host, "child", "add", "ib0", "0x8001", "--address", address).returncode == 0
    until(lambda: _met(three.hosts))
    until(lambda: _reaches(first, "10.78.0.2"))
    (row,) = json.loads(cli(first, "peers", "-j", "ib0.8001").stdout)
    assert (row["state"], row["locator"]) == ("live", f"{_underlay(second)}:4792")
    file = tmp_path / "child.pcap"
    capture = ["capture", "ib0.8001", "-w", str(file), "-c", "2"]
    sniffer = first.namespace.popen([sys.executable, "-m", "ipoibu.cli", *capture])
    try:
        until(lambda: _reaches(first, "10.78.0.2") and sniffer.poll() is not None)
    finally:
        sniffer.kill()
        sniffer.wait()
    assert file.stat().st_size > 24 + 2 * 16  # the header of the file, and of two packets


def test_only_hosts_that_know_the_key_are_peers(
    three: NamespaceLab, sh: Sh, until: Until, tmp_path: Path
) -> None:
    for host in three.hosts:
        file = tmp_path / f"key{host.number}"
        file.write_text(64 * ("b" if host.number == 3 else "a"))
        file.chmod(0o600)
        host.options += ["--peer-key-file", str(file)]
    three.start()
    first, second, third = three.hosts
    until(lambda: _peers(first) == _hwaddrs([second], first))
    until(lambda: _reaches(second, str(first.ipv4.ip)))
    until(lambda: first.ask("stats").get("fabric.mesh_key_wrong", 0) > 0)
    assert _peers(third) == set()
    assert not _reaches(third, str(first.ipv4.ip))


def test_a_key_that_everybody_may_read_is_one_line(three: NamespaceLab, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(64 * "a")
    file.chmod(0o644)
    first = three.hosts[0]
    first.options += ["--peer-key-file", str(file)]
    with pytest.raises(LabError, match=rf"{file}: every user may read or change the key: chmod o="):
        first.start()


def test_doctor_checks_the_way_to_a_peer(
    three: NamespaceLab, cli: Cli, sh: Sh, until: Until
) -> None:
    first, second, _ = three.hosts

    def check(*words: str) -> dict[str, dict[str, str]]:
        done = cli(first, "doctor", "-j", "--peer", _underlay(second), *words, timeout_s=60)
        findings = {it["check"]: it for it in json.loads(done.stdout)}
        return {name: it for name, it in findings.items() if name.startswith("peer")}

    nobody = check()["peer_tcp"]
    assert nobody["status"] == "fail"
    assert "192.0.2.2:4792: nothing listens there" in nobody["detail"]
    three.start()

    def all_ok() -> dict[str, Any]:
        found = check("--device", "soft:eth0")
        return found if all(it["status"] == "ok" for it in found.values()) else {}

    found = until(all_ok, 90)
    assert set(found) == {"peer_tcp", "peer", "peer_udp", "peer_mtu"}
    assert f"{_hwaddr(second)}, P_Key 0xffff, MTU 2044" in found["peer"]["detail"]
    assert "MTU 9000 on the way" in found["peer_mtu"]["detail"]
    sh(first, "ip -6 route change fe80::/64 dev eth0 proto kernel metric 256 mtu 1400")
    short = check("--device", "soft:eth0")["peer_mtu"]
    assert (short["status"], short["remedy"]) == ("fail", "use --mtu 1324 on every host")
    sh(second, REFUSED)
    assert check("--device", "soft:eth0")["peer_udp"]["status"] == "fail"


def test_a_port_that_is_taken_is_one_line(three: NamespaceLab, sh: Sh) -> None:
    first = three.hosts[0]
    taken = first.namespace.popen(["socat", "-u", "TCP6-LISTEN:4792,ipv6only=0", "STDOUT"])
    try:
        done = first.run(
            ["sh", "-c", "until ss -ltn | grep -q :4792; do sleep 0.05; done"], timeout_s=10
        )
        assert done.returncode == 0
        with pytest.raises(Exception, match=r"TCP port 4792 for the peers: .*--mesh-port"):
            first.start()
    finally:
        taken.kill()
        taken.wait()


def test_a_reload_takes_over_peers_routes_and_a_smaller_mtu(
    cli: Cli, sh: Sh, until: Until, tmp_path: Path
) -> None:
    with NamespaceLab(start=False) as lab:
        first, second = lab.hosts
        for host in lab.hosts:
            sh(host, f"ip address add {_underlay(host)}/24 dev eth0")
            sh(host, NO_MULTICAST)
        file = tmp_path / "ib0.toml"
        file.write_text('peer = ["192.0.2.9"]\n')  # a host that is not there
        first.options += ["--config", str(file)]
        second.options += ["--peer", "192.0.2.9"]
        lab.start()
        assert _peers(first) == set()
        gateway = second.ipv4.ip
        file.write_text(
            f'peer = ["{_underlay(second)}"]\nroute = ["10.9.0.0/16,via={gateway}"]\nmtu = 1300\n'
        )
        done = cli(first, "reload", "ib0", "-j")
        assert done.returncode == 0, done.stdout + done.stderr
        assert set(json.loads(done.stdout)["changed"]) == {"peer", "route", "mtu"}
        until(lambda: _met(lab.hosts))
        until(lambda: _reaches(first, str(gateway)))
        assert f"via {gateway}" in sh(first, "ip route show 10.9.0.0/16 dev ib0")
        assert "mtu 1300 " in sh(first, "ip link show ib0")
        file.write_text(f'peer = ["{_underlay(second)}"]\n')
        done = cli(first, "reload", "ib0", "-j")
        assert set(json.loads(done.stdout)["changed"]) == {"route", "mtu"}
        assert sh(first, "ip route show 10.9.0.0/16 dev ib0") == ""
        assert "mtu 1300 " not in sh(first, "ip link show ib0")


def _change_mode(cli: Cli, host: Host, mode: str, until: Until) -> None:
    before = _hwaddr(host)
    done = cli(host, "set", "ib0", "mode", mode)
    assert done.returncode == 0, done.stdout + done.stderr
    until(lambda: _hwaddr(host) != before and host.ask("show")["state"] == "up")
    assert host.ask("show")["mode"] == mode


def test_the_mode_of_a_link_of_peers_changes_while_it_runs(
    cli: Cli, three: NamespaceLab, until: Until
) -> None:
    three.start()
    until(lambda: _met(three.hosts))
    first, second, third = three.hosts
    target = str(second.ipv4.ip)
    for host in (first, second):
        _change_mode(cli, host, "connected", until)
    until(lambda: _met(three.hosts))
    until(lambda: _reaches(first, target))
    # A long packet by datagram would lower the kernel's path MTU for ten minutes (C13).
    until(lambda: _reaches(first, target) and "live" in {it["state"] for it in first.ask("conn")})
    until(lambda: reaches_whole(first, target))
    until(lambda: _reaches(third, target))  # by datagram
    _change_mode(cli, first, "datagram", until)
    until(lambda: _met(three.hosts))
    for other in (second, third):
        until(lambda other=other: _reaches(first, str(other.ipv4.ip)))
        until(lambda other=other: _reaches(first, str(other.ipv6.ip)))
    assert not _reaches(first, target, "-s", "60000", "-M", "do")
