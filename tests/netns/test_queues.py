# SPDX-License-Identifier: BSD-2-Clause
"""`--queues N`: several threads move the packets of one interface, and each flow keeps to one."""

from __future__ import annotations

import json
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ipoibu.daemon.control.client import Client
from ipoibu.host import receive_buffer
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.captures import TCPDUMP
from tests.netns.kernel_counters import counter, udp_arrived

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]

FLOWS = 16  # all of them on one of two queues: once in 32768 times
PARALLEL = ("-P", str(FLOWS))


@pytest.fixture(scope="module")
def queued() -> Iterator[NamespaceLab]:
    """Two hosts with two queues each, and a third with one."""
    with NamespaceLab(3, start=False) as lab:
        for host in lab.hosts[:2]:
            host.options = ["--queues", "2"]
        lab.start()
        yield lab


def sent(host: Host) -> list[int]:
    """Return the number of sent packets by queue."""
    stats = host.ask("stats")
    return [
        value
        for name, value in sorted(stats.items())
        if name.endswith(".tx_packets") and name.startswith("queue.")
    ]


def grown(after: list[int], before: list[int]) -> list[int]:
    return [new - old for new, old in zip(after, before, strict=True)]


def iperf3(sender: Host, receiver: Host, address: str, *words: str) -> dict[str, Any]:
    server = receiver.namespace.popen(
        ["iperf3", "-s", "-1", "-B", address, "--forceflush"], stdout=subprocess.PIPE
    )
    try:
        assert server.stdout is not None
        assert select.select([server.stdout], [], [], 60)[0]  # it says that it listens
        done = sender.run(["iperf3", "-J", "-c", address, "-t", "3", *words])
        end: dict[str, Any] = json.loads(done.stdout)["end"]
        return end
    finally:
        server.kill()
        server.wait()
        if server.stdout is not None:
            server.stdout.close()


def test_the_interface_shows_its_queues(queued: NamespaceLab, cli: Cli, sh: Sh) -> None:
    first, _, plain = queued.hosts
    assert first.ask("show")["queues"] == 2
    assert " queues 2\n" in cli(first, "show").stdout
    assert plain.ask("show")["queues"] == 1
    assert " queues " not in cli(plain, "show").stdout
    assert sent(plain) == []
    threads = [name.read_text().strip() for name in Path(f"/proc/{first.pid}/task").glob("*/comm")]
    assert threads.count("ipoibu-pump") == 2
    assert "multi_queue numqueues 2 " in sh(first, "ip -d link show ib0")
    assert "multi_queue" not in sh(plain, "ip -d link show ib0")


def streams_pass(sender: Host, receiver: Host, address: str, *words: str) -> bool:
    """Run FLOWS streams of TCP; return whether each has carried something, which takes a busy machine some
    attempts: there iperf3 may give up."""
    streams = iperf3(sender, receiver, address, *PARALLEL, *words).get("streams", [])
    return len(streams) == FLOWS and all(stream["receiver"]["bytes"] > 0 for stream in streams)


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (2, 0)], ids=["2-2", "2-1", "1-2"])
def test_hosts_reach_each_other_whatever_queues_they_have(
    queued: NamespaceLab, sh: Sh, pair: tuple[int, int]
) -> None:
    sender, receiver = (queued.hosts[number] for number in pair)
    for address in (receiver.ipv4.ip, receiver.ipv6.ip):
        sh(sender, f"ping -c3 -i0.1 -W10 {address}")
        sh(sender, f"ping -c2 -i0.1 -W10 -s 8000 {address}")  # fragments


def reordered(*hosts: Host) -> int:
    """Return how often the hosts have found that packets of theirs arrived in another order."""
    return sum(counter(host, name) for host in hosts for name in ("TCPSACKReorder", "TCPTSReorder"))


@contextmanager
def in_order(sender: Host, receiver: Host) -> Iterator[None]:
    """Check that meanwhile no packet between the hosts arrived behind a later one.

    A receiver without CPU time drops what its socket has no room for. Then the packets behind that are late,
    too, but the sender knows the difference.
    """
    before = reordered(sender, receiver)
    late, dropped = counter(receiver, "TCPOFOQueue"), counter(receiver, "TCPRcvQDrop")
    yield
    if counter(receiver, "TCPRcvQDrop") == dropped:
        assert counter(receiver, "TCPOFOQueue") == late
    assert reordered(sender, receiver) == before


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2, 0)], ids=["2-2", "2-1", "1-2"])
@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_parallel_streams_use_all_queues_and_stay_in_order(
    queued: NamespaceLab, until: Until, pair: tuple[int, int], family: str
) -> None:
    sender, receiver = (queued.hosts[number] for number in pair)
    address = str(getattr(receiver, family).ip)

    def all_pass() -> bool:
        before = [sent(host) for host in (sender, receiver)]
        again = counter(sender, "RetransSegs")
        with in_order(sender, receiver):
            for words in (("-w", "256K"), ("-w", "256K", "-R")):
                if not streams_pass(sender, receiver, address, *words):
                    return False
        for host, old in zip((sender, receiver), before, strict=True):
            assert all(packets > 0 for packets in grown(sent(host), old))
        return counter(sender, "RetransSegs") - again < 100  # on a machine that is busy

    until(all_pass)


@contextmanager
def opened(host: Host, address: str) -> Iterator[list[socket.socket]]:
    """Open a socket for each flow; not connected, so that a refusal does not stop it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with ExitStack() as stack:
        yield [stack.enter_context(host.socket(family, socket.SOCK_DGRAM)) for _ in range(FLOWS)]


def number(host: Host, address: str, count: int, rounds: int) -> None:
    """Send numbered datagrams in each of several flows, in turn."""
    with opened(host, address) as flows:
        for burst in range(rounds):
            for at in range(count):
                for flow in flows:
                    data = struct.pack(">I", burst * count + at) + bytes(1000)
                    flow.sendto(data, (address, 4000))
            time.sleep(0.005)  # every buffer on the way holds a whole burst


@pytest.mark.serial
@pytest.mark.parametrize("address", ["10.77.0.2", "fd77::2"])
def test_the_datagrams_of_each_flow_arrive_in_order(
    queued: NamespaceLab, sh: Sh, until: Until, address: str
) -> None:
    first, second, _ = queued.hosts
    sh(first, f"ping -c1 -W10 {address}")
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def arrive() -> bool:
        """A pump that a busy machine stops for long leaves packets in the TUN's queue, which is bounded."""
        before = sent(first)
        seen: dict[int, list[int]] = {}
        total = 0
        with second.socket(family, socket.SOCK_DGRAM) as receiver:
            receive_buffer.enlarge(receiver, 64 << 20)
            receiver.bind((address, 4000))
            receiver.setblocking(False)
            number(first, address, 8, 60)
            while total < FLOWS * 8 * 60 and select.select([receiver], [], [], 10)[0]:
                data, source = receiver.recvfrom(2000)
                seen.setdefault(source[1], []).append(struct.unpack_from(">I", data)[0])
                total += 1
        for numbers in seen.values():
            assert numbers == sorted(numbers)
        shared = all(packets > 100 for packets in grown(sent(first), before))
        return len(seen) == FLOWS and total > 0.99 * FLOWS * 8 * 60 and shared

    until(arrive)


@pytest.mark.serial
def test_udp_streams_arrive(queued: NamespaceLab, until: Until) -> None:
    first, second, _ = queued.hosts

    def arrive() -> bool:
        before, arrived = sent(first), udp_arrived(second)
        end = iperf3(first, second, "10.77.0.2", "-u", *PARALLEL, "-b", "10M", "-l", "1200")
        if not end:
            return False  # iperf3 gave up
        assert sum(stream["udp"]["out_of_order"] for stream in end["streams"]) == 0
        packets = end["sum"]["packets"]
        shared = all(packets > 100 for packets in grown(sent(first), before))
        return packets > FLOWS * 500 and udp_arrived(second) - arrived > 0.95 * packets and shared

    until(arrive)


def member(host: Host, group: str) -> socket.socket:
    index = host.interface_index()
    family = socket.AF_INET6 if ":" in group else socket.AF_INET
    receiver = host.socket(family, socket.SOCK_DGRAM)
    receiver.settimeout(30)
    receiver.bind((group, 4001))
    if family == socket.AF_INET:
        membership = socket.inet_aton(group) + struct.pack("@4xi", index)
        receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    else:
        membership = socket.inet_pton(family, group) + struct.pack("@I", index)
        receiver.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
    return receiver


def is_member(host: Host, group: str) -> bool:
    return any(
        group in entry["groups"] and (entry["state"], entry["kind"]) == ("member", "full")
        for entry in host.ask("mcast")
    )


@pytest.mark.parametrize("group", ["239.5.5.5", "ff15::5:5"])
def test_multicast_of_every_queue_reaches_all_and_its_echo_is_dropped(
    queued: NamespaceLab, until: Until, group: str
) -> None:
    """E8. The kernel spreads flows, and so groups' packets, over the queues by their ports."""
    first = queued.hosts[0]  # a member itself: its own stack delivers each of its packets once
    before, echoes = sent(first), first.ask("stats")["rx_echo"]
    index = first.interface_index()
    with ExitStack() as stack, opened(first, group) as flows:
        receivers = [stack.enter_context(member(host, group)) for host in queued.hosts]
        for host in queued.hosts:
            until(lambda host=host: is_member(host, group))
        for flow in flows:
            if flow.family == socket.AF_INET:
                option = struct.pack("@4x4xi", index)
                flow.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, option)
            else:
                flow.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        flows[0].sendto(b"join", (group, 4001))
        for receiver in receivers:
            assert receiver.recv(100) == b"join"
        for name, flow in enumerate(flows):
            flow.sendto(b"%d" % name, (group, 4001))
        wanted = {b"%d" % name for name in range(FLOWS)}
        for receiver in receivers:
            assert {receiver.recv(100) for _ in range(FLOWS)} == wanted
        until(lambda: first.ask("stats")["rx_echo"] >= echoes + FLOWS + 1)
        receivers[0].setblocking(False)
        with pytest.raises(BlockingIOError):
            receivers[0].recv(100)
    assert all(packets > 0 for packets in grown(sent(first), before))


def test_a_peer_that_was_started_again_is_known_to_every_queue(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    """It has another queue pair, which its announcement contains."""
    first, second = bare.hosts
    for host in bare.hosts:
        host.options = ["--queues", "2"]
    bare.start()
    for kill in (False, True):
        iperf3(first, second, "10.77.0.2", *PARALLEL)
        qpn = second.ask("show")["qpn"]
        second.kill() if kill else second.stop()
        second.start()
        assert second.ask("show")["qpn"] != qpn
        until(lambda: first.run(["ping", "-c1", "-W1", "10.77.0.2"]).returncode == 0)
        before = sent(first)
        until(lambda: streams_pass(first, second, "10.77.0.2"))
        assert all(packets > 0 for packets in grown(sent(first), before))
    assert [host.stop() for host in bare.hosts] == [0, 0]
    assert "Traceback" not in first.log() + second.log()


def test_a_child_has_the_queues_of_its_parent(queued: NamespaceLab, cli: Cli, until: Until) -> None:
    for host in queued.hosts[:2]:
        address = f"--address=10.88.0.{host.number}/24"
        done = cli(host, "child", "add", "ib0", "0x8001", address)
        assert done.returncode == 0, done.stderr
    first, second, _ = queued.hosts
    try:
        with Client("ib0.8001", first.namespace.path) as client:
            assert client.request("show")["queues"] == 2

            def are_used() -> bool:
                iperf3(first, second, "10.88.0.2", *PARALLEL)
                stats = client.request("stats")
                return all(stats[f"queue.{number}.tx_packets"] > 100 for number in (0, 1))

            until(are_used)
    finally:
        for host in queued.hosts[:2]:
            assert cli(host, "child", "del", "ib0", "0x8001").returncode == 0


def test_a_capture_has_what_all_queues_send(
    queued: NamespaceLab, tmp_path: Path, sh: Sh, until: Until
) -> None:
    first = queued.hosts[0]
    file = tmp_path / "ib0.pcap"

    def captured() -> int:
        done = subprocess.run(
            [*TCPDUMP, "-nr", str(file)], capture_output=True, text=True, check=False
        )
        return done.stdout.count(" > 10.77.0.2.4000: UDP, length 1004")

    capture = first.namespace.popen(
        [sys.executable, "-m", "ipoibu.cli", "capture", "ib0", "-w", str(file)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    with capture:
        while not file.exists() or file.stat().st_size < 24:
            assert capture.poll() is None
            select.select([], [], [], 0.01)
        sh(first, "ping -c1 -W10 10.77.0.2")  # few packets wait for an answer to ARP
        before = sent(first)
        number(first, "10.77.0.2", 1, 4)
        until(lambda: all(packets > 0 for packets in grown(sent(first), before)))
        until(lambda: captured() == FLOWS * 4)
        capture.terminate()
        capture.wait(60)
    assert captured() == FLOWS * 4


@pytest.mark.parametrize(
    "options",
    [("16",), ("3", "--offload", "off"), ("2", "--busy-poll", "50"), ("2", "--mtu", "1280")],
    ids=["16 queues", "without offload", "busy polling", "a small MTU"],
)
def test_queues_go_with_other_options(
    bare: NamespaceLab, until: Until, options: tuple[str, ...]
) -> None:
    for host in bare.hosts:
        host.options = ["--queues", *options]
    bare.start()
    first, second = bare.hosts
    with in_order(first, second):
        until(lambda: streams_pass(first, second, "fd77::2", "-w", "64K"))
    assert sum(packets > 10 for packets in sent(first)) > 1
    assert [host.stop() for host in bare.hosts] == [0, 0]


def test_faults_are_for_every_queue(bare: NamespaceLab, until: Until) -> None:
    for host in bare.hosts:
        host.options = ["--queues", "2", "--faults", "loss=0.02,seed=3"]
    bare.start()
    first, second = bare.hosts
    until(lambda: streams_pass(first, second, "10.77.0.2"))
    stats = first.ask("stats")
    assert stats["fabric.faults_lost"] > 10
    assert stats["queue.1.tx_packets"] > 0


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--queues", "0"], "expected 1 to 16 queues"),
        (["--queues", "2", "--mode", "connected"], "--queues is for datagram mode"),
    ],
)
def test_what_cannot_have_queues_says_so(
    bare: NamespaceLab, cli: Cli, options: list[str], why: str
) -> None:
    done = cli(bare.hosts[0], "up", "ib0", "--device", "soft:eth0", *options)
    assert done.returncode == 2
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_interface_that_is_deleted_ends_its_daemon_with_one_clear_word(
    bare: NamespaceLab, sh: Sh, until: Until
) -> None:
    host = bare.hosts[0]
    host.options = ["--queues", "4"]
    host.start()
    sh(host, "ip link delete ib0")
    assert until(host.ended).startswith("ib0: ")
    assert host.log().count("ipoibu: ib0") <= 1
    assert "Traceback" not in host.log()


CYCLES = """
import ctypes, gc, ipaddress, json, os, time
from ipoibu.daemon.daemon import real_endpoint
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.host.tun import Tun

def resources():
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is left is in use
    with open("/proc/self/statm") as statm:
        rss = int(statm.read().split()[1]) * 4096
    return len(os.listdir("/proc/self/fd")), rss

config = InterfaceConfig.build("ib0", {"device": "soft:eth0", "queues": "4"})
seen = []
for cycle in range(15):
    with Tun.open("ib0", queues=4) as tun:
        endpoint = real_endpoint(config, tun, Callbacks())
        endpoint.open()
        endpoint.address_added(ipaddress.ip_interface("10.0.0.1/24"))
        endpoint.close()
    seen.append(resources())
deadline = time.monotonic() + 60
while len(os.listdir("/proc/self/task")) > 1 and time.monotonic() < deadline:
    time.sleep(0.01)
print(json.dumps([seen, len(os.listdir("/proc/self/task"))]))
"""


def test_descriptors_threads_and_memory_stay_flat_over_starts(bare: NamespaceLab) -> None:
    done = bare.hosts[0].run([sys.executable, "-c", CYCLES], timeout_s=100)
    assert done.returncode == 0, done.stderr
    seen, threads = json.loads(done.stdout)
    assert threads == 1
    assert len({descriptors for descriptors, _ in seen[1:]}) == 1
    assert seen[-1][1] - seen[4][1] < 1 << 20
