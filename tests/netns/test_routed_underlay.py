# SPDX-License-Identifier: BSD-2-Clause
"""Links across a router that carries neither multicast nor link-local addresses (docs/use/unicast.md)."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.addr import HwAddr
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.underlay import ROUTED4, ROUTED6, Underlay, router_addresses
from tests.netns.path_mtu import reaches_whole
from tests.netns.routed import confine, hwaddr, live_peers, met, reaches, route, start

pytestmark = pytest.mark.netns

Cli = Callable[..., Any]
Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

BOTH: Final = Underlay(6, (4, 6))
UNDERLAYS: Final = {"ipv4": ROUTED4, "ipv6": ROUTED6, "both": BOTH}
IDS: Final = list(UNDERLAYS)


@pytest.fixture
def three(request: pytest.FixtureRequest) -> Iterator[NamespaceLab]:
    """Three hosts in three networks, without interfaces. On "both", they meet by IPv4 and send by IPv6."""
    with NamespaceLab(3, start=False, underlay=UNDERLAYS[request.param]) as lab:
        confine(lab)
        if request.param == "both":
            for host in lab.hosts:
                host.peer = str(BOTH.addresses(1)[1].ip)
        yield lab


on_each = pytest.mark.parametrize("three", IDS, indirect=True)
on_ipv4 = pytest.mark.parametrize("three", ["ipv4"], indirect=True)


@on_each
def test_pings_of_all_sizes_and_multicast_cross_the_router(
    three: NamespaceLab, sh: Sh, until: Until
) -> None:
    start(three, until)
    first, second, third = three.hosts
    for host in three.hosts:
        for other in three.hosts:
            if other is not host:
                for ip in (other.ipv4.ip, other.ipv6.ip):
                    until(lambda host=host, ip=ip: reaches(host, ip))
    for size in (0, 1, 2, 3, 511, 1400, 2016):
        assert reaches(first, second.ipv4.ip, "-s", str(size), "-M", "do", "-W", "10")
    for size in (0, 1, 2, 3, 511, 1400, 1996):
        until(lambda s=size: reaches(second, third.ipv6.ip, "-s", str(s), "-M", "do", "-W", "10"))
    _multicast(sh, until, first, second)
    for host in three.hosts:
        stats = host.ask("stats")
        assert stats["fabric.unicast_rx_stranger"] == stats["fabric.drop_icrc"] == 0
        assert stats["fabric.tx_fragments"] == stats["fabric.drop_address"] == 0


def _multicast(sh: Sh, until: Until, sender: Host, receiver: Host) -> None:
    group = "239.7.7.7"
    listen = f"exec socat -u UDP4-RECV:7777,ip-add-membership={group}:ib0 CREATE:/dev/null"
    listener = receiver.namespace.popen(["sh", "-c", listen])
    try:
        until(lambda: group in sh(receiver, "ip maddress show dev ib0"))
        sh(sender, f"ip route add {group}/32 dev ib0")

        def copies() -> int:
            before = int(sender.ask("stats")["fabric.unicast_tx_copies"])
            sh(sender, f"echo hello | socat -u STDIN UDP4-SENDTO:{group}:7777")
            return int(sender.ask("stats")["fabric.unicast_tx_copies"]) - before

        until(lambda: copies() == 1)
    finally:
        listener.kill()
        listener.wait()


def _iperf(first: Host, second: Host, *options: str) -> dict[str, Any]:
    server = second.namespace.popen(["iperf3", "-s", "-1"])
    try:
        second.run(["sh", "-c", "until ss -ltn | grep -q :5201; do sleep 0.05; done"], timeout_s=60)
        words = ["iperf3", "-c", str(second.ipv4.ip), "-J", *(options or ("-n", "20M"))]
        done = first.run(words, timeout_s=90)
    finally:
        server.kill()
        server.wait()
    assert done.returncode == 0, done.stdout
    return dict(json.loads(done.stdout)["end"])


def on(*pairs: tuple[str, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("three", "mode"), pairs, indirect=["three"])


@on(("ipv4", "datagram"), ("ipv4", "connected"), ("ipv6", "connected"), ("both", "datagram"))
def test_tcp_and_udp_streams_cross_the_router(three: NamespaceLab, mode: str, until: Until) -> None:
    for host in three.hosts:
        host.options = ["--mode", mode]
    start(three, until)
    first, second, _ = three.hosts
    assert _iperf(first, second)["sum_received"]["bytes"] > 1e6
    # A socket's buffer bridges the time that a busy machine takes the receiver's CPU away.
    until(lambda: _iperf(first, second, "-u", "-b", "5M", "-t", "1")["sum"]["lost_percent"] < 20)
    if mode == "connected":
        until(lambda: reaches_whole(first, str(second.ipv4.ip)))
        assert "live" in {row["state"] for row in first.ask("conn")}
    for host in three.hosts:
        assert host.ask("stats")["fabric.drop_icrc"] == 0


@on(("ipv4", "datagram"), ("ipv4", "connected"), ("ipv6", "connected"), ("ipv6", "datagram"))
def test_where_the_router_has_1500_bytes_what_is_longer_goes_in_fragments(
    three: NamespaceLab, mode: str, until: Until
) -> None:
    """The hosts' wires have 9000 bytes, so only the router tells the hosts."""
    first, second, _ = three.hosts
    for host in three.hosts:
        host.options = ["--mode", mode]
        route(three, f"ip route add {host.wire_ip} dev p{host.number} mtu 1500")
    start(three, until)
    until(lambda: reaches(first, second.ipv4.ip, "-s", "2016", "-M", "do"))
    if mode == "connected":
        until(lambda: reaches_whole(first, str(second.ipv4.ip)))
    assert first.ask("stats")["fabric.tx_fragments"] == 1
    assert _iperf(first, second)["sum_received"]["bytes"] > 1e6
    assert second.ask("stats")["fabric.drop_icrc"] == 0
    until(lambda: "fragments" in first.log())


@pytest.mark.parametrize("three", ["ipv4", "ipv6"], indirect=True)
def test_wires_of_1500_and_of_9000_bytes_share_a_link_with_one_mtu(
    three: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second, _ = three.hosts
    sh(second, "ip link set eth0 mtu 1500")
    route(three, "ip link set p2 mtu 1500")
    three.start()
    until(lambda: second.ask("stats")["fabric.mesh_other_mtu"] > 0)  # it has 1444 or 1424
    mtu = second.ask("show")["mtu"]
    for host in three.hosts:
        host.stop()
        host.options = ["--mtu", str(mtu)]
    start(three, until)
    until(lambda: reaches(first, second.ipv4.ip, "-s", str(mtu - 28), "-M", "do"))
    assert first.ask("stats")["fabric.tx_fragments"] == 0


@on_ipv4
def test_five_percent_of_loss_costs_speed_and_no_connection(
    three: NamespaceLab, until: Until
) -> None:
    for host in three.hosts:
        host.options = ["--mode", "connected"]
    start(three, until)
    route(three, "nft delete table inet router")
    confine(three, "udp dport 4791 numgen random mod 100 < 5 counter drop")
    first, second, _ = three.hosts
    assert _iperf(first, second, "-t", "5")["sum_received"]["bytes"] > 1e5
    assert live_peers(first) == {hwaddr(host) for host in three.hosts[1:]}


@pytest.mark.parametrize("three", ["ipv4", "ipv6"], indirect=True)
def test_a_host_that_was_killed_and_one_that_moved_come_back(
    three: NamespaceLab, sh: Sh, until: Until
) -> None:
    start(three, until)
    first, second, third = three.hosts
    second.kill()
    until(lambda: hwaddr(third) in live_peers(first) and len(live_peers(first)) == 1)
    assert second.wire_ip is not None
    moved = second.wire_ip + 5
    length = 24 if moved.version == 4 else 64
    sh(second, f"ip address delete {second.wire_ip}/{length} dev eth0")
    sh(second, f"ip address add {moved}/{length} dev eth0")
    gateway = next(it.ip for it in router_addresses(2, ROUTED4 if length == 24 else ROUTED6))
    sh(second, f"ip -{moved.version} route replace default via {gateway}")
    second.start()
    until(lambda: met(three.hosts))
    until(lambda: reaches(third, second.ipv4.ip))
    assert HwAddr.parse(f"00:{hwaddr(second)}").gid.ip == moved


@on_ipv4
def test_an_interface_of_a_named_address_waits_for_it(
    three: NamespaceLab, sh: Sh, until: Until
) -> None:
    host = three.hosts[1]
    host.device = f"soft:eth0,{host.wire_ip}"
    host.start()
    until(lambda: host.ask("show")["state"] == "up")
    sh(host, "ip address add 192.0.2.77/24 dev eth0")
    sh(host, f"ip address delete {host.wire_ip}/24 dev eth0")
    until(lambda: host.ask("show")["state"] != "up")
    sh(host, "sleep 5")  # longer than SOFT_MOVED_S
    sh(host, f"ip address add {host.wire_ip}/24 dev eth0")
    until(lambda: host.ask("show")["state"] == "up")


@on_ipv4
def test_a_name_that_leads_elsewhere_is_looked_up_again(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """The hosts read a file of their own as /etc/hosts. A name is looked up again after 30 s."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.78.9.9 mesh.example\n")
    words = f'mount --bind {hosts} /etc/hosts && exec "$@"'
    for host in three.hosts:
        host.peer = "mesh.example"
        host.wrapper = ("unshare", "-m", "sh", "-c", words, "sh")
    three.start()
    assert not any(live_peers(host) for host in three.hosts)
    hosts.write_text(f"127.0.0.1 localhost\n{three.hosts[0].wire_ip} mesh.example\n")
    until(lambda: met(three.hosts))
    until(lambda: reaches(three.hosts[1], three.hosts[2].ipv4.ip))


@on_ipv4
def test_strangers_neither_become_peers_nor_inject_packets(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    key = tmp_path / "key"
    key.write_text("12" * 32 + "\n")
    key.chmod(0o600)
    first, second, stranger = three.hosts
    for host in (first, second):
        host.options = ["--peer-key-file", str(key)]
    three.start()
    until(lambda: live_peers(first) == {hwaddr(second)})
    until(lambda: reaches(first, second.ipv4.ip))
    until(lambda: first.ask("stats")["fabric.mesh_key_missing"] > 0)
    assert not live_peers(stranger)
    assert not reaches(stranger, first.ipv4.ip)

    before = first.ask("stats")
    shown = HwAddr.parse(f"00:{hwaddr(first)}")
    stranger.stop()
    packet = _datagram(str(stranger.wire_ip), str(first.wire_ip), int(shown.qpn))
    source = tmp_path / "packet"
    source.write_bytes(packet)
    sent = f"socat -u OPEN:{source} UDP4-SENDTO:{first.wire_ip}:4791,sourceport=4791,ip-pktinfo"
    done = stranger.run(["sh", "-c", sent])
    assert done.returncode == 0, done.stderr
    until(
        lambda: (
            first.ask("stats")["fabric.unicast_rx_stranger"]
            == before["fabric.unicast_rx_stranger"] + 1
        )
    )
    assert first.ask("stats")["fabric.drop_icrc"] == before["fabric.drop_icrc"]


def _datagram(source: str, target: str, qpn: int) -> bytes:
    """Return a datagram for the queue pair, from BTH to ICRC, with a ping to the broadcast address."""
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import ICMP, IP, UDP
    from scapy.packet import Raw

    ping = bytes(IP(src="10.77.0.9", dst="10.77.0.1") / ICMP())
    deth = struct.pack("!II", 0x0B1B, 0x123456)
    body = deth + b"\x08\0\0\0" + ping
    bth = BTH(opcode=0x64, padcount=-len(body) % 4, pkey=0xFFFF, dqpn=qpn)
    wire = IP(src=source, dst=target, id=0, flags="DF") / UDP(sport=4791, dport=4791)
    return bytes(wire / bth / Raw(body + bytes(-len(body) % 4)))[28:]


def test_a_host_with_a_routed_gid_answers_by_its_hardware_address(sh: Sh, until: Until) -> None:
    """Its link-local address on the link comes from a hash of the GID."""
    with NamespaceLab(2, start=False) as lab:
        for host in lab.hosts:
            sh(host, f"ip address add 2001:db8::{host.number}/64 dev eth0 nodad")
            host.device = "soft:eth0,ipv6"
        lab.start()
        first, second = lab.hosts
        assert str(HwAddr.parse(f"00:{hwaddr(second)}").gid) == f"2001:db8::{second.number}"
        asked = until(lambda: _asked(first, f"00:{hwaddr(second)}"))
        assert asked["method"] == "nd"


def _asked(host: Host, target: str) -> dict[str, Any] | None:
    outcome: dict[str, Any] = host.ask("ping", target=target, timeout_ms=2000)
    return outcome if outcome["rtt_ms"] is not None else None


def test_over_ipv4_without_peers_the_broadcast_group_is_refused_and_peers_are_named() -> None:
    with NamespaceLab(2, start=False, underlay=ROUTED4) as lab:
        host = lab.hosts[0]
        host.peer = None
        with pytest.raises(Exception, match=r"soft:eth0,ipv4: IPv4 carries no multicast.*--peer"):
            host.start()


def test_gids_of_two_ip_versions_are_refused_with_the_remedy(until: Until) -> None:
    with NamespaceLab(2, start=False, underlay=BOTH) as lab:
        for host in lab.hosts:
            host.peer = str(BOTH.addresses(1)[1].ip)
        lab.hosts[1].device = "soft:eth0,ipv4"
        lab.start()
        until(lambda: lab.hosts[0].ask("stats")["fabric.mesh_other_ip_version"] > 0)
        assert re.search(r"different IP versions: .*soft:NETDEV,ipv4", lab.hosts[0].log())


def test_link_local_gids_across_a_router_are_logged_with_the_remedy(sh: Sh, until: Until) -> None:
    with NamespaceLab(2, start=False, underlay=BOTH) as lab:
        for host, peer in zip(lab.hosts, reversed(lab.hosts), strict=True):
            sh(host, f"ip address add fe80::{host.number}/64 dev eth0 nodad")
            host.device = f"soft:eth0,fe80::{host.number}"
            host.peer = str(peer.wire_ip)
        lab.start()
        for host in lab.hosts:
            until(lambda host=host: host.ask("stats")["fabric.mesh_router"] > 0)
            assert re.search(
                r"is behind the router .*link-local GIDs.*soft:NETDEV,ipv4", host.log()
            )


@pytest.mark.parametrize("underlay", [ROUTED4, ROUTED6, BOTH], ids=["ipv4", "ipv6", "both"])
def test_the_routes_to_the_peers_choose_the_underlay(
    underlay: Underlay, sh: Sh, until: Until
) -> None:
    """Each device has a link-local address, too. The first host names itself."""
    with NamespaceLab(3, start=False, underlay=underlay) as lab:
        confine(lab)
        for host in lab.hosts:
            sh(host, f"ip address add fe80::{host.number}/64 dev eth0 nodad")
            host.device = "soft:eth0"
        start(lab, until)
        for host in lab.hosts:
            shown = host.ask("show")
            assert shown["gid"].removeprefix("::ffff:") == str(host.wire_ip)
            assert shown["gid_by"].startswith("the route to the peer ")
            assert host.ask("stats")["fabric.mesh_router"] == 0


def test_a_lonely_first_host_goes_over_to_ipv4_and_its_longer_mtu(sh: Sh, until: Until) -> None:
    """On 1500 bytes a link has 1424 over IPv6 and 1444 over IPv4. It names itself, as the others name it."""
    with NamespaceLab(2, start=False, underlay=ROUTED4) as lab:
        first, second = lab.hosts
        confine(lab)
        for host in lab.hosts:
            sh(host, "ip link set eth0 mtu 1500")
            sh(host, f"ip address add fe80::{host.number}/64 dev eth0 nodad")
            host.device = "soft:eth0"
        first.start()
        assert (first.ask("show")["gid"], first.ask("show")["mtu"]) == ("fe80::1", 1424)
        second.start()
        until(lambda: met(lab.hosts))
        until(lambda: reaches(first, second.ipv4.ip, "-s", str(1444 - 28), "-M", "do"))
        shown = first.ask("show")
        assert shown["gid"] == f"::ffff:{first.wire_ip}"
        assert shown["gid_by"].startswith(f"the route to the peer {second.wire_ip} by the router")
        assert shown["mtu"] == 1444
        assert "are of different IP versions" in first.log()


def test_an_address_of_no_use_across_the_router_is_refused(sh: Sh) -> None:
    with NamespaceLab(2, start=False, underlay=ROUTED6) as lab:
        host = lab.hosts[1]
        sh(host, "ip address add fe80::7/64 dev eth0 nodad")
        sh(host, f"ip address del {host.wire_ip}/64 dev eth0")
        sh(host, "ip -6 route replace default via fe80::1 dev eth0")
        host.device = "soft:eth0"
        with pytest.raises(
            Exception, match=r"the router fe80::1 is on the way to the peer fd78:1::2"
        ):
            host.start()


def test_the_doctor_names_the_address_that_the_device_uses(cli: Cli) -> None:
    with NamespaceLab(2, start=False, underlay=ROUTED4) as lab:
        done = cli(lab.hosts[0], "doctor", "--device", "soft:eth0,ipv4", "-j")
        findings = {it["check"]: it for it in json.loads(done.stdout)}
        assert (findings["address"]["status"], findings["mtu"]["status"]) == ("ok", "ok")
        assert "10.78.1.2" in findings["address"]["detail"]
        assert "link_local" not in findings
        done = cli(lab.hosts[0], "doctor", "--device", "soft:eth0,ipv6", "-j")
        findings = {it["check"]: it for it in json.loads(done.stdout)}
        assert findings["address"]["status"] == "fail"
