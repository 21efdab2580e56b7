# SPDX-License-Identifier: BSD-2-Clause
"""Whole hosts on a subnet that OpenSM manages: partitions, refusals, OpenSM's death, a hundred groups."""

from __future__ import annotations

import ipaddress
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.processes import children_of
from ipoibu.lab import LabError, LabSubnet, NamespaceLab
from ipoibu.lab.check import check, ping
from ipoibu.lab.host import Host
from ipoibu.wire import mgid

pytestmark = pytest.mark.netns

DEFAULT: Final = PKey(0xFFFF)
GROUPS: Final = 100
PER_SOCKET: Final = 20  # igmp_max_memberships
ADMINISTERED: Final = "Default=0x7fff, ipoib : ALL=full;\n"


def members(*hosts: int, how: str = "full") -> str:
    return ", ".join(f"0x{LabSubnet.guid(host):x}={how}" for host in hosts)


def until(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def hears(source: Host, target: Host, timeout_s: float = 2.0) -> bool:
    """Send one ping, by ping(8), which gives up, while the lab's own ping repeats it."""
    count = str(int(timeout_s))
    done = source.run(["ping", "-c", count, "-W", "1", "-i", "0.5", str(target.ipv4.ip)])
    return done.returncode == 0


def begin_flow(source: Host, target: Host) -> subprocess.Popen[bytes]:
    """Begin a ping(8) of five requests a second."""
    command = ["ping", "-q", "-i", "0.2", str(target.ipv4.ip)]
    return source.namespace.popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def unanswered(flow: subprocess.Popen[bytes]) -> int:
    """Return how many requests of a flow have no answer now: that to the last one may be under way."""
    assert flow.stderr is not None
    flow.send_signal(signal.SIGQUIT)
    line = flow.stderr.readline()
    counts = re.search(rb"(\d+)/(\d+) packets", line)
    assert counts is not None, line
    return int(counts[2]) - int(counts[1])


def end_flow(flow: subprocess.Popen[bytes]) -> None:
    """End the flow, of which no request may have been lost."""
    until(lambda: unanswered(flow) <= 1, "requests were lost")
    flow.send_signal(signal.SIGINT)
    flow.communicate(timeout=30)


def counters(host: Host) -> dict[str, int]:
    stats: dict[str, int] = host.ask("stats")
    return stats


def test_hosts_reach_each_other_by_paths_and_groups_of_opensm() -> None:
    """B1, B6, M1, M3."""
    subnet = LabSubnet(2)
    with NamespaceLab(2, subnet=subnet) as lab:
        assert [str(outcome) for outcome in check(lab) if not outcome.ok] == []
        shown = lab.hosts[0].ask("show")
        assert shown["link_layer"] == "InfiniBand"
        assert int(shown["guid"], 16) == subnet.guid(1)
        assert shown["qkey"] == "0x00000b1b"
        broadcast = str(mgid.broadcast(DEFAULT))
        assert broadcast in subnet.query("saquery", "MCMR", "--mgid", broadcast)


def test_a_lab_that_is_killed_leaves_no_process() -> None:
    command = [sys.executable, "-m", "ipoibu.cli", "lab", "--fabric", "ib"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as lab:
        assert lab.stdout is not None
        while "Ctrl-C" not in (line := lab.stdout.readline()):
            assert line, "the lab ended"
        children = children_of(lab.pid)
        assert len(children) == 4  # two daemons, ibsim, OpenSM
        lab.kill()
    until(lambda: not any(Path(f"/proc/{each}").exists() for each in children), "a process stays")


def test_e7_two_partitions_are_isolated_from_each_other() -> None:
    """E7."""
    partitions = (
        "Default=0x7fff : ALL=full;\n"
        f"red=0x1, ipoib : {members(1, 2)};\n"
        f"blue=0x2, ipoib : {members(3, 4)};\n"
    )
    with NamespaceLab(4, subnet=LabSubnet(4, partitions), start=False) as lab:
        for host, pkey in zip(lab.hosts, ("0x8001", "0x8001", "0x8002", "0x8002"), strict=True):
            host.options += ["--pkey", pkey]
        lab.start()
        first, second, third, fourth = lab.hosts
        assert ping(first, second, "ipv4").ok
        assert ping(third, fourth, "ipv6").ok
        assert not hears(first, third)
        assert not hears(fourth, second)


def test_limited_members_talk_to_full_ones_and_not_to_each_other() -> None:
    partitions = (
        "Default=0x7fff : ALL=full;\n"
        f"red=0x1, ipoib : {members(1)}, {members(2, 3, how='limited')};\n"
    )
    options = ["--pkey", "0x8001"]
    with NamespaceLab(3, subnet=LabSubnet(3, partitions), options=options) as lab:
        full, limited, other = lab.hosts
        assert [host.ask("show")["membership"] for host in lab.hosts] == [
            "full",
            "limited",
            "limited",
        ]
        assert ping(full, limited, "ipv4").ok
        assert ping(other, full, "ipv4").ok
        before = counters(other)["fabric.drop_pkey"]
        assert not hears(limited, other)
        until(lambda: counters(other)["fabric.drop_pkey"] > before, "no drop")


@pytest.mark.parametrize(
    ("partitions", "lab", "options", "said"),
    [
        (ADMINISTERED, {"netdev_mtu_bytes": 1500}, [], "carries an InfiniBand MTU of 1024"),
        (ADMINISTERED, {}, ["--mtu", "4092"], "the link carries an MTU of 2044, not 4092"),
        (ADMINISTERED, {}, ["--pkey", "0x8005"], "no P_Key 0x8005; it has: 0xffff"),
        ("Default=0x7fff : ALL=full;\n", {}, [], "needs the flag `ipoib`"),
    ],
    ids=["mtu of the port", "mtu asked for", "p_key", "no group"],
)
def test_b2_what_does_not_fit_the_link_is_refused_by_name(
    partitions: str, lab: dict[str, Any], options: list[str], said: str
) -> None:
    """B2."""
    with (
        pytest.raises(LabError) as refused,
        NamespaceLab(2, subnet=LabSubnet(2, partitions), options=options, **lab),
    ):
        pass
    assert said in str(refused.value)


def test_opensm_dies_and_returns_under_traffic() -> None:
    """Existing flows go on; new flows and the memberships come back by themselves."""
    subnet = LabSubnet(3)
    broadcast = str(mgid.broadcast(DEFAULT))
    with NamespaceLab(3, subnet=subnet) as lab:
        first, second, third = lab.hosts
        assert ping(first, second, "ipv4").ok
        flow = begin_flow(first, second)
        subnet.ibsim.kill_opensm()
        until(lambda: hears(first, second), "no answer")
        assert not hears(second, third)  # no path yet, and no SA to ask
        subnet.ibsim.start_opensm(ADMINISTERED)
        until(lambda: hears(second, third), "no new flow after OpenSM's return")
        until(lambda: hears(first, second), "no answer")
        until(
            lambda: all(counters(host).get("engine.sa_rejoined") for host in lab.hosts),
            "not every host joined again",
        )
        assert broadcast in subnet.query("saquery", "MCMR", "--mgid", broadcast)
        end_flow(flow)
        assert [str(outcome) for outcome in check(lab) if not outcome.ok] == []


@pytest.mark.timeout(600)
def test_a_hundred_groups_are_joined_and_left_and_saquery_agrees() -> None:
    """M3, M4."""
    subnet = LabSubnet(2)
    ips = [ipaddress.IPv4Address(f"239.9.0.{number}") for number in range(1, GROUPS + 1)]
    groups = [str(mgid.of_group(ip, DEFAULT)) for ip in ips]

    def known() -> int:
        return sum(group in subnet.query("saquery", "MCMR", "--mgid", group) for group in groups)

    with NamespaceLab(2, subnet=subnet) as lab:
        host = lab.hosts[0]

        def joined() -> set[str]:
            return {one["mgid"] for one in host.ask("mcast") if one["state"] == "member"}

        index = host.interface_index()
        sockets = []
        for at, ip in enumerate(ips):
            if at % PER_SOCKET == 0:
                sockets.append(host.socket(socket.AF_INET, socket.SOCK_DGRAM))
            request = ip.packed + bytes(4) + index.to_bytes(4, "little")
            sockets[-1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        until(lambda: set(groups) <= joined(), "not all groups were joined")
        assert known() == GROUPS
        for one in sockets:
            one.close()
        until(lambda: not set(groups) & joined(), "groups were kept")
        until(lambda: known() == 0, "OpenSM has groups that were left", 150)


def test_children_are_links_of_their_own_and_need_the_subnet_managers_p_key() -> None:
    partitions = ADMINISTERED + f"red=0x1, ipoib : {members(1, 2)};\n"
    with NamespaceLab(2, subnet=LabSubnet(2, partitions)) as lab:
        for number, host in enumerate(lab.hosts, 1):
            asked = ["child", "add", "ib0", "0x8001", "--address", f"10.1.0.{number}/24"]
            done = host.run([sys.executable, "-m", "ipoibu.cli", *asked])
            assert done.returncode == 0, done.stderr
        first = lab.hosts[0]
        ping_child = ["ping", "-c", "1", "-W", "1", "10.1.0.2"]
        until(lambda: first.run(ping_child).returncode == 0, "the child does not work")
        done = first.run([sys.executable, "-m", "ipoibu.cli", "child", "add", "ib0", "0x8002"])
        assert done.returncode == 1
        assert "no P_Key 0x8002; it has: 0xffff, 0x8001" in done.stderr
        done = first.run([sys.executable, "-m", "ipoibu.cli", "child", "del", "ib0", "0x8001"])
        assert done.returncode == 0, done.stderr
        assert ping(first, lab.hosts[1], "ipv4").ok


def red(*full: int, limited: tuple[int, ...] = ()) -> str:
    lists = [members(*full)] if full else []
    lists += [members(*limited, how="limited")] if limited else []
    return f"Default=0x7fff, ipoib : ALL=full;\nred=0x1, ipoib : {', '.join(lists)};\n"


def is_up(host: Host) -> bool:
    return bool(host.ask("show")["state"] == "up")


def test_a_p_key_taken_and_given_back_at_run_time_is_another_queue_pair_under_the_interface() -> (
    None
):
    """The kernel's heavy flush: the test changes partitions.conf under a running OpenSM."""
    subnet = LabSubnet(3, red(1, 2, 3))
    with NamespaceLab(3, subnet=subnet, options=["--pkey", "0x8001"]) as lab:
        first, second, third = lab.hosts
        assert ping(first, second, "ipv4").ok
        before = first.ask("show")
        index = first.interface_index()
        subnet.reload(red(2, 3))
        until(lambda: not is_up(first), "a port without the P_Key was kept up")
        assert not hears(second, first)
        assert ping(second, third, "ipv4").ok
        subnet.reload(red(1, 2, 3))
        until(lambda: is_up(first), "the P_Key is back, and the link is not")
        after = first.ask("show")
        assert after["qpn"] != before["qpn"]
        assert first.interface_index() == index
        kept = [one["address"] for one in before["addresses"]]
        until(
            lambda: [one["address"] for one in first.ask("show")["addresses"]] == kept,
            "addresses were lost",
        )
        until(
            lambda: hears(second, first),
            "a peer of the former queue pair did not learn the new one",
        )
        assert [str(outcome) for outcome in check(lab) if not outcome.ok] == []
        assert counters(first)["engine.renewals"] == 1
        assert "engine.renewals" not in counters(second)


def test_a_membership_that_became_limited_at_run_time_is_honoured() -> None:
    subnet = LabSubnet(3, red(1, 2, limited=(3,)))
    with NamespaceLab(3, subnet=subnet, options=["--pkey", "0x8001"]) as lab:
        first, second, third = lab.hosts
        assert ping(second, third, "ipv4").ok
        subnet.reload(red(1, limited=(2, 3)))
        until(lambda: second.ask("show")["membership"] == "limited" and is_up(second), "full")
        assert ping(first, second, "ipv4").ok
        assert not hears(second, third)


def test_a_childs_p_key_comes_and_goes_without_its_parent() -> None:
    subnet = LabSubnet(2, red(1, 2))
    with NamespaceLab(2, subnet=subnet) as lab:
        first, second = lab.hosts
        for number, host in enumerate(lab.hosts, 1):
            asked = ["child", "add", "ib0", "0x8001", "--address", f"10.1.0.{number}/24"]
            done = host.run([sys.executable, "-m", "ipoibu.cli", *asked])
            assert done.returncode == 0, done.stderr
        hwaddr = first.ask("show")["hwaddr"]

        def child_hears() -> bool:
            return first.run(["ping", "-c", "1", "-W", "1", "10.1.0.2"]).returncode == 0

        until(child_hears, "the child never worked")
        subnet.reload(red(2))
        until(lambda: not child_hears(), "the child kept its P_Key")
        assert ping(first, second, "ipv4").ok
        subnet.reload(red(1, 2))
        until(child_hears, "the child did not come back")
        assert first.ask("show")["hwaddr"] == hwaddr


def test_a_link_with_another_q_key_is_taken_over() -> None:
    """E6. A subnet manager with another partitions.conf replaces the first."""
    subnet = LabSubnet(2)
    with NamespaceLab(2, subnet=subnet) as lab:
        first, second = lab.hosts
        assert ping(first, second, "ipv4").ok
        subnet.ibsim.kill_opensm()
        subnet.ibsim.start_opensm("Default=0x7fff, ipoib, Q_Key=0x1b1b : ALL=full;\n")
        for host in lab.hosts:
            until(
                lambda host=host: host.ask("show")["qkey"] == "0x00001b1b" and is_up(host),  # type: ignore[misc]
                "the former Q_Key was kept",
            )
        until(lambda: hears(first, second), "no traffic with the new Q_Key")


def test_connections_end_with_the_queue_pair_and_new_ones_take_their_place() -> None:
    """C10, with a heavy flush under connected mode."""
    subnet = LabSubnet(2, red(1, 2))
    options = ["--pkey", "0x8001", "--mode", "connected"]
    with NamespaceLab(2, subnet=subnet, options=options) as lab:
        first, second = lab.hosts

        def carried(host: Host) -> int:
            return sum(one["tx_messages"] for one in host.ask("conn"))

        until(lambda: hears(first, second) and carried(first) > 0, "no connection carries")
        subnet.reload(red(2))
        until(lambda: not is_up(first), "a port without the P_Key was kept up")
        assert first.ask("conn") == []
        subnet.reload(red(1, 2))
        until(lambda: is_up(first), "the P_Key is back, and the link is not")
        until(lambda: hears(first, second) and carried(first) > 0, "no new connection")
        until(lambda: hears(second, first) and carried(second) > 0, "none in return")


def test_the_mode_changes_under_a_living_interface() -> None:
    """The interface joins the link again, and so do the groups of its addresses."""
    subnet = LabSubnet(2)
    with NamespaceLab(2, subnet=subnet) as lab:
        first, second = lab.hosts
        until(lambda: hears(first, second), "no answer")

        def are_up() -> bool:
            return all(is_up(host) for host in lab.hosts)

        def are_connected() -> bool:
            return all({one["state"] for one in host.ask("conn")} == {"live"} for host in lab.hosts)

        for mode in ("connected", "datagram"):
            for host in lab.hosts:
                command = [sys.executable, "-m", "ipoibu.cli", "set", "ib0", "mode", mode]
                done = host.run(command)
                assert done.returncode == 0, done.stderr
            until(are_up, f"no link in {mode} mode")
            until(lambda: hears(first, second), f"no answer in {mode} mode")
            assert [host.ask("show")["mode"] for host in lab.hosts] == [mode, mode]
            if mode == "connected":
                # Nothing but a packet begins another connection in place of one that broke.
                until(lambda: hears(first, second) and are_connected(), "no connections")
        assert [str(outcome) for outcome in check(lab) if not outcome.ok] == []


def test_another_subnet_manager_takes_over_under_traffic() -> None:
    """SM_CHANGE: a light flush. The new manager knows no member until every host has joined again."""
    subnet = LabSubnet(3, standby=True)
    broadcast = str(mgid.broadcast(DEFAULT))

    def manager() -> str:
        """ "sminfo: sm lid 1 sm guid 0x100001, activity count 9 priority 0 state 3 ..." """
        return subnet.query("sminfo").partition(",")[0]

    with NamespaceLab(3, subnet=subnet) as lab:
        first, second, third = lab.hosts
        assert ping(first, second, "ipv4").ok
        flow = begin_flow(first, second)
        before = manager()
        subnet.hand_over()
        assert manager() != before
        until(
            lambda: all(counters(host).get("engine.sa_rejoined") for host in lab.hosts),
            "not every host joined again",
        )
        until(lambda: hears(second, third), "no flow under the new manager")
        assert broadcast in subnet.query("saquery", "MCMR", "--mgid", broadcast)
        end_flow(flow)
        assert all("engine.renewals" not in counters(host) for host in lab.hosts)
