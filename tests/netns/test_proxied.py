# SPDX-License-Identifier: BSD-2-Clause
"""Hosts behind a host of ours: it answers for them on the link, and forwards their packets."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace
from tests.netns.behind import (
    BEHIND,
    BEHIND6,
    FAR,
    FAR6,
    forward,
    inside,
    put_behind,
    reaches,
    wired,
)
from tests.netns.conftest import Cli, Until
from tests.netns.detection import gives_up
from tests.netns.frr import frr
from tests.netns.page_configs import config, swapped
from tests.netns.vrrp import keepalived

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]


def counted(host: Host, name: str) -> int:
    return int(host.ask("stats").get(f"engine.{name}", 0))


def test_hosts_behind_a_proxy_are_reached_and_reach_others(
    lab: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], cli: Cli, sh: Sh, until: Until
) -> None:
    """The first host believes all of 10.77.0.0/24, fd77::/64 and 192.0.2.0/24, fd77:2::/64 to be on the
    link."""
    first, router = lab.hosts
    pod, _ = pods

    def proxy(action: str, *texts: str) -> None:
        for text in texts:
            done = cli(router, "neigh", action, "proxy", text, "dev", "ib0")
            assert done.returncode == 0, done.stderr

    with wired(sh, router, pod):
        put_behind(sh, router, pod)
        forward(sh, router)
        sh(first, "ip route add 192.0.2.0/24 dev ib0; ip -6 route add fd77:2::/64 dev ib0")
        try:
            assert not any(reaches(first, it) for it in (BEHIND, BEHIND6, FAR, FAR6))
            proxy("add", BEHIND, BEHIND6, "192.0.2.0/24", "fd77:2::/120")
            listed = cli(router, "neigh", "-j", "show", "proxy", "dev", "ib0").stdout
            assert [row["proxy"] for row in json.loads(listed)] == [
                BEHIND,
                BEHIND6,
                "192.0.2.0/24",
                "fd77:2::/120",
            ]
            assert "192.0.2.0/24 dev ib0 proxy command" in (
                cli(router, "neigh", "show", "proxy").stdout
            )
            for target in (BEHIND, BEHIND6, FAR, FAR6):
                until(lambda target=target: reaches(first, target))
            for target in (str(first.ipv4.ip), str(first.ipv6.ip)):
                until(lambda target=target: reaches(pod, target))
            assert counted(router, "proxy_answered") >= 2  # the others know us by announcements
            hwaddr = router.ask("show")["hwaddr"]
            entries = {it["ip"]: it["hwaddr"] for it in first.ask("neigh")}
            assert {entries[it] for it in (BEHIND, BEHIND6, FAR, FAR6)} == {hwaddr}
            proxy("del", BEHIND, BEHIND6, "192.0.2.0/24", "fd77:2::/120")
            assert cli(router, "neigh", "show", "proxy").stdout == ""
            first.ask("neigh-flush")
            assert not any(reaches(first, it) for it in (BEHIND, BEHIND6, FAR, FAR6))
        finally:
            first.run(["ip", "route", "del", "192.0.2.0/24", "dev", "ib0"])
            first.run(["ip", "-6", "route", "del", "fd77:2::/64", "dev", "ib0"])


def test_nothing_answers_for_the_link_itself_and_for_what_has_no_route(
    pods: tuple[LabNamespace, LabNamespace], cli: Cli, sh: Sh, until: Until
) -> None:
    """The options name networks; an answer for a host of the link would take its packets away."""
    options = ["--proxy", "10.77.0.0/24", "--proxy", "fd77::/64", "--proxy", "203.0.113.0/24"]
    with NamespaceLab(2, options=options) as lab, wired(sh, lab.hosts[1], pods[0]):
        first, router = lab.hosts
        forward(sh, router)
        put_behind(sh, router, pods[0])

        def asked(target: str) -> bool:
            done = cli(first, "ping", "-I", "ib0", target, "-c", "1", "-j")
            return done.returncode == 0

        until(lambda: asked(BEHIND))
        until(lambda: asked(BEHIND6))
        before = counted(router, "proxy_unrouted")
        assert not asked("10.77.0.99"), "its route leads back to the link"
        assert not asked("203.0.113.5"), "it has no route"
        assert not asked("192.0.2.9"), "nobody named its network"
        until(lambda: counted(router, "proxy_unrouted") >= before + 2)
        # The answer is there if the route of the others leads elsewhere, too; unreachable ones stay out.
        sh(router, "ip route add 203.0.113.0/25 dev v0; ip route add unreachable 203.0.113.128/25")
        until(lambda: asked("203.0.113.5"))
        assert not asked("203.0.113.200")
        sh(router, "sysctl -qw net.ipv4.conf.ib0.forwarding=0 net.ipv6.conf.ib0.forwarding=0")
        until(lambda: not asked(BEHIND) and not asked(BEHIND6))
        until(lambda: "net.ipv4.conf.ib0.forwarding" in router.log())


def test_by_routes_everything_behind_is_answered_for_except_by_the_default_route(
    pods: tuple[LabNamespace, LabNamespace], cli: Cli, sh: Sh, until: Until
) -> None:
    with NamespaceLab(2) as lab, wired(sh, lab.hosts[1], pods[0]):
        first, router = lab.hosts
        forward(sh, router)
        added = cli(router, "neigh", "add", "proxy", "routes", "dev", "ib0")
        assert added.returncode == 0, added.stderr

        def asked(target: str) -> bool:
            return cli(first, "ping", "-I", "ib0", target, "-c", "1").returncode == 0

        until(lambda: asked(FAR))
        assert not asked("198.51.100.1")
        # Our kernel knows the pod as soon as one of both has sent to the other.
        until(lambda: reaches(pods[0], "fd77:2::1"))
        until(lambda: asked(FAR6))
        sh(router, "ip route add default via 192.0.2.9")
        assert not asked("198.51.100.1"), "by the default route"
        sh(router, "ip route add 198.51.100.0/24 via 192.0.2.9")
        until(lambda: asked("198.51.100.1"))


def test_an_address_that_moves_behind_another_host_takes_its_traffic_along(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    """Both routers name it; the one to which it comes announces it when its route changes."""
    options = ["--proxy", BEHIND, "--proxy", BEHIND6]
    with NamespaceLab(3, options=options) as lab:
        client, one, other = lab.hosts
        with wired(sh, one, pods[0]), wired(sh, other, pods[1]):
            forward(sh, one)
            forward(sh, other)
            put_behind(sh, one, pods[0])
            for target in (BEHIND, BEHIND6):
                until(lambda target=target: reaches(client, target))
            assert _hwaddrs(client) == {one.ask("show")["hwaddr"]}
            announced = counted(other, "proxy_announced")
            inside(pods[0], f"ip address del {BEHIND}/32 dev v1")
            inside(pods[0], f"ip address del {BEHIND6}/128 dev v1")
            sh(one, f"ip route del {BEHIND}/32 dev v0; ip -6 route del {BEHIND6}/128 dev v0")
            put_behind(sh, other, pods[1])
            until(lambda: _hwaddrs(client) == {other.ask("show")["hwaddr"]})
            until(lambda: counted(other, "proxy_announced") >= announced + 2)
            until(lambda: reaches(client, BEHIND))
            until(lambda: reaches(client, BEHIND6))


def test_a_new_queue_pair_is_announced_for_what_is_behind_it(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    """The client learns it without a packet of its own: a change of mode makes another queue pair."""
    options = ["--proxy", BEHIND, "--proxy", BEHIND6]
    with NamespaceLab(2, options=options) as lab, wired(sh, lab.hosts[1], pods[0]):
        client, router = lab.hosts
        forward(sh, router)
        put_behind(sh, router, pods[0])
        for target in (BEHIND, BEHIND6):
            until(lambda target=target: reaches(client, target))
        before = router.ask("show")["hwaddr"]
        assert _hwaddrs(client) == {before}
        router.ask("set", option="mode", value="connected")
        until(lambda: _hwaddrs(client) == {router.ask("show")["hwaddr"]})
        assert router.ask("show")["hwaddr"] != before


def _hwaddrs(client: Host) -> set[Any]:
    entries = {it["ip"]: it["hwaddr"] for it in client.ask("neigh")}
    return {entries.get(it) for it in (BEHIND, BEHIND6)}


def test_the_delay_of_the_kernel_lets_the_owner_answer_first(
    pods: tuple[LabNamespace, LabNamespace], cli: Cli, sh: Sh, until: Until
) -> None:
    """A host of the link has the address, too: its answer comes at once, the proxy's later."""
    with NamespaceLab(3, options=["--proxy", BEHIND]) as lab, wired(sh, lab.hosts[1], pods[0]):
        client, router, owner = lab.hosts
        forward(sh, router, delay=6000)  # a random part of 60 s: almost never before the owner
        until(lambda: cli(owner, "neigh", "show", "proxy").returncode == 0)
        sh(router, f"ip route add {BEHIND}/32 dev v0")
        until(lambda: counted(router, "proxy_announced") >= 3)
        sh(owner, f"ip address add {BEHIND}/24 dev ib0")
        until(lambda: counted(router, "proxy_conflict") > 0)
        assert "is behind this host" in router.log()
        hwaddr = owner.ask("show")["hwaddr"]

        def is_the_owners() -> bool:
            client.ask("neigh-flush")
            reaches(client, BEHIND)
            entries = {it["ip"]: it["hwaddr"] for it in client.ask("neigh")}
            return bool(entries.get(BEHIND) == hwaddr)

        # An answer of the router comes in one of its 60 s, in which a busy machine may stop the owner.
        assert sum(is_the_owners() for _ in range(8)) >= 4


def test_the_kernel_s_sysctl_says_how_long_answers_wait(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    with NamespaceLab(2) as lab, wired(sh, lab.hosts[1], pods[0]):
        first, router = lab.hosts

        def prepare(delay: int, network: int) -> None:
            forward(sh, router, delay=delay)
            router.ask("proxy-add", proxy=f"198.51.{network}.0/24")  # reads the sysctl again
            sh(router, f"ip route add 198.51.{network}.0/24 dev v0")

        def answers(network: int) -> int:
            """How many of 20 requests get an answer within two seconds or so."""
            before = counted(router, "proxy_answered")
            for last in range(1, 21):
                first.ask("ping", target=f"198.51.{network}.{last}", timeout_ms=20)
            time.sleep(1)
            return counted(router, "proxy_answered") - before

        prepare(0, 100)
        until(lambda: answers(100) >= 20)  # with late ones of an earlier round
        prepare(6000, 101)
        assert answers(101) < 10, "of those that wait up to a minute, few end so soon"
        assert counted(router, "proxy_answers_full") == 0


# What the wire of a network without multicast does to RoCE datagrams to groups.
NO_MULTICAST = """nft -f - << END
table inet wire {
    chain out {
        type filter hook output priority 0
        oifname eth0 udp dport 4791 ip6 daddr ff00::/8 counter drop
    }
}
END"""


def test_hosts_behind_a_proxy_are_found_on_a_link_without_multicast(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    """The proxy tells the peers its solicited-node groups as any others."""
    with NamespaceLab(2, start=False) as lab, wired(sh, lab.hosts[1], pods[0]):
        first, router = lab.hosts
        for host in lab.hosts:
            sh(host, NO_MULTICAST)
            host.options += ["--peer", "192.0.2.101" if host is router else "192.0.2.102"]
            sh(
                host,
                f"ip address add 192.0.2.{100 + host.number}/25 dev eth0 noprefixroute;"
                " ip route add 192.0.2.101 dev eth0; ip route add 192.0.2.102 dev eth0",
            )
        router.options += ["--proxy", BEHIND, "--proxy", BEHIND6, "--proxy", "fd77:2::/64"]
        forward_all = "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
        sh(router, forward_all)
        lab.start()
        forward(sh, router)
        put_behind(sh, router, pods[0])
        sh(first, "ip -6 route add fd77:2::/64 dev ib0")
        for target in (BEHIND, BEHIND6):
            until(lambda target=target: reaches(first, target))
        until(lambda: reaches(pods[0], "fd77:2::1"))  # so that the router knows the pod
        until(lambda: reaches(first, FAR6))


KEEPALIVED = """
vrrp_instance one {{
  interface ib0
  state BACKUP
  virtual_router_id 77
  priority {priority}
  advert_int 0.2
  unicast_peer {{ {peer} }}
  virtual_ipaddress {{ 10.77.0.250/32 dev ib0 }}
  virtual_routes {{ {behind}/32 dev v0 }}
}}
"""


def test_vrrp_moves_what_is_behind_two_routers(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    """keepalived gives the route to the router that is the master, and the proxy there announces it."""
    with NamespaceLab(3, options=["--proxy", BEHIND]) as lab:
        client, one, other = lab.hosts
        with wired(sh, one, pods[0]), wired(sh, other, pods[1]):
            for router, pod in ((one, pods[0]), (other, pods[1])):
                forward(sh, router)
                inside(pod, f"ip address add {BEHIND}/32 dev v1")

            def neighbour() -> object:
                entries = {it["ip"]: it["hwaddr"] for it in client.ask("neigh")}
                return entries.get(BEHIND)

            def config(priority: int, peer: Host) -> str:
                ip = str(peer.ipv4.ip)
                return KEEPALIVED.format(priority=priority, peer=ip, behind=BEHIND)

            def is_behind(router: Host) -> bool:
                hwaddr = router.ask("show")["hwaddr"]
                return reaches(client, BEHIND) and neighbour() == hwaddr

            with keepalived(other, config(50, one)):
                until(lambda: reaches(client, BEHIND))
                assert neighbour() == other.ask("show")["hwaddr"]
                with keepalived(one, config(100, other)):
                    until(lambda: is_behind(one))
                until(lambda: is_behind(other))


def bgp(number: int, interface: str) -> str:
    """Two routers that know each other by their interfaces alone."""
    text = swapped(config("! frr.conf: BGP without a subnet"), number)
    return text.replace("neighbor ib0", f"neighbor {interface}")


ROUTED, ROUTED6 = "198.51.100.7", "fd77:9::7"


@pytest.mark.parametrize("compatible", [1, 0])
def test_by_routes_the_proxy_follows_a_routing_daemon(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until, compatible: int
) -> None:
    """The pod announces its addresses by BGP, and withdraws them: the router answers for them meanwhile.

    FRR's routes have nexthop objects, which the kernel names by their numbers alone without
    nexthop_compat_mode.
    """
    with NamespaceLab(2, options=["--proxy", "routes"]) as lab, wired(sh, lab.hosts[1], pods[0]):
        client, router = lab.hosts
        pod, _ = pods
        forward(sh, router)
        sh(router, f"sysctl -qw net.ipv4.nexthop_compat_mode={compatible}")
        sh(client, "ip route add 198.51.100.0/24 dev ib0; ip -6 route add fd77:9::/64 dev ib0")

        def asked(target: str) -> bool:
            return client.ask("ping", target=target, timeout_ms=500)["reason"] is None

        def addresses(action: str) -> None:
            inside(pod, "ip link set lo up", f"ip address {action} {ROUTED}/32 dev lo")
            inside(pod, f"ip address {action} {ROUTED6}/128 dev lo")

        with (
            frr(router, bgp(1, "v0"), "bgpd"),
            frr(pod, bgp(2, "v1"), "bgpd"),
        ):
            assert not asked(ROUTED)
            for _ in range(2):
                addresses("add")
                for target in (ROUTED, ROUTED6):
                    until(lambda target=target: asked(target))
                    until(lambda target=target: reaches(client, target))
                addresses("del")
                for target in (ROUTED, ROUTED6):
                    until(lambda target=target: not asked(target))
        until(lambda: " proto bgp " not in sh(router, "ip route show table all"))


BEHIND_US = """
vrrp_instance behind {{
  interface v1
  state BACKUP
  virtual_router_id 78
  priority {priority}
  advert_int 0.2
  virtual_ipaddress {{ {behind}/32 dev v1 }}
  virtual_ipaddress_excluded {{ {behind6}/128 dev v1 }}
}}
"""


def test_an_address_that_hosts_behind_us_share_by_vrrp_stays_reachable(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    """keepalived moves it between two hosts of the Ethernet; the link sees the same router all the time."""
    options = ["--proxy", BEHIND, "--proxy", BEHIND6]
    with NamespaceLab(2, options=options) as lab:
        client, router = lab.hosts
        forward(sh, router)
        sh(
            router,
            "ip link add br0 type bridge; sysctl -qw net.ipv6.conf.br0.accept_dad=0;"
            " ip link set br0 up; ip address add 192.0.2.1/24 dev br0;"
            " ip address add fd77:2::1/64 dev br0 nodad;"
            f" ip route add {BEHIND}/32 dev br0; ip -6 route add {BEHIND6}/128 dev br0",
        )
        for number, pod in enumerate(pods, start=2):
            sh(
                router,
                f"ip link add p{number} type veth peer name v1 netns {pod.name};"
                f" ip link set p{number} master br0 up",
            )
            inside(
                pod,
                "sysctl -qw net.ipv6.conf.v1.accept_dad=0",
                "ip link set v1 up",
                f"ip address add 192.0.2.{number}/24 dev v1",
                f"ip address add fd77:2::{number}/64 dev v1 nodad",
                "ip route add default via 192.0.2.1",
                "ip -6 route add default via fd77:2::1",
            )

        def holds(pod: LabNamespace) -> bool:
            return f" {BEHIND}/" in pod.run(["ip", "address", "show", "dev", "v1"]).stdout

        def config(priority: int) -> str:
            return BEHIND_US.format(priority=priority, behind=BEHIND, behind6=BEHIND6)

        def is_reached(by: LabNamespace) -> None:
            until(lambda: holds(by) and not holds(pods[1 - pods.index(by)]))
            for target in (BEHIND, BEHIND6):
                until(lambda target=target: reaches(client, target))
            assert _hwaddrs(client) == {hwaddr}

        hwaddr = router.ask("show")["hwaddr"]
        with keepalived(pods[1], config(50)):
            is_reached(pods[1])
            with keepalived(pods[0], config(100)):
                is_reached(pods[0])
            is_reached(pods[1])
        assert counted(router, "proxy_conflict") == 0


def test_a_probe_for_a_host_behind_us_finds_it_in_use(
    pods: tuple[LabNamespace, LabNamespace], sh: Sh, until: Until
) -> None:
    """Duplicate address detection of IPv6: the prober gives the address up (RFC 4862 §5.4)."""
    with NamespaceLab(2, options=["--proxy", BEHIND6]) as lab, wired(sh, lab.hosts[1], pods[0]):
        first, router = lab.hosts
        forward(sh, router)
        put_behind(sh, router, pods[0])
        until(lambda: reaches(first, BEHIND6))
        until(lambda: gives_up(sh, first, f"{BEHIND6}/64"))
        until(lambda: f"address {BEHIND6} is also used" in first.log())
        until(lambda: reaches(first, BEHIND6))


def test_the_doctor_says_why_nobody_is_answered_for(
    pods: tuple[LabNamespace, LabNamespace], cli: Cli, sh: Sh, until: Until
) -> None:
    options = ["--proxy", BEHIND, "--proxy", BEHIND6, "--proxy", "203.0.113.0/24"]
    with NamespaceLab(2, options=options) as lab, wired(sh, lab.hosts[1], pods[0]):
        other, router = lab.hosts

        def found() -> dict[str, str | None]:
            """Warnings about the proxy, with their remedies."""
            done = cli(router, "doctor", "-j")
            findings = [it for it in json.loads(done.stdout) if it["check"] == "proxy"]
            assert findings
            return {it["detail"]: it["remedy"] for it in findings if it["status"] == "warn"}

        sh(router, "sysctl -qw net.ipv4.conf.all.forwarding=0 net.ipv6.conf.all.forwarding=0")
        sh(other, "sysctl -qw net.ipv4.conf.all.forwarding=0 net.ipv6.conf.all.forwarding=0")
        assert found() == {
            "ib0 does not forward IPv4, so it answers for no such host": (
                "sysctl -w net.ipv4.ip_forward=1"
            ),
            "ib0 does not forward IPv6, so it answers for no such host": (
                "sysctl -w net.ipv6.conf.all.forwarding=1"
            ),
            f"ib0 does not answer for {BEHIND}: its route leads to the link": (
                f"ip route add {BEHIND}/32 dev DEVICE"
            ),
            f"ib0 does not answer for {BEHIND6}: its route leads to the link": (
                f"ip route add {BEHIND6}/128 dev DEVICE"
            ),
            "ib0 answers for no host of 203.0.113.0/24: no route in it leads elsewhere": (
                "ip route add 203.0.113.0/24 dev DEVICE"
            ),
        }
        for remedy in list(found().values()):
            sh(router, str(remedy).replace("DEVICE", "v0"))
        assert found() == {}
        sh(other, f"ip address add {BEHIND}/24 dev ib0")
        until(lambda: any("on the link answers for it, too" in text for text in found()))
        until(lambda: any("(proxy_conflict " in text for text in found()))
