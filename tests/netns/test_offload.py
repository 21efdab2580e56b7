# SPDX-License-Identifier: BSD-2-Clause
"""TCP and UDP in frames of up to 64 KiB at the TUN, in packets of the MTU on the fabric."""

from __future__ import annotations

import hashlib
import json
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.captures import TCPDUMP
from tests.netns.streams import family_of, lengths, moved, mss_of, transfer

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., Any]

MTU = 2044
TCP_PACKET = 2016  # 32 of them fill a train, and 32 of the MTU do not fit
SUPER_FRAMES = ["csum", "tso4", "tso6", "ecn", "uso4", "uso6"]  # Linux 6.2 and later
UDP_SEGMENT, UDP_GRO = 103, 104
ETH_P_ALL = 3
CAPTURE = [sys.executable, "-m", "ipoibu.cli", "capture", "ib0", "-w"]


def test_the_interface_says_what_the_kernel_leaves_to_it(lab: NamespaceLab) -> None:
    for host in lab.hosts:
        assert host.ask("show")["offload"] == SUPER_FRAMES


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_stream_is_large_frames_at_both_ends_and_arrives_byte_for_byte(
    lab: NamespaceLab, family: str
) -> None:
    first, second = lab.hosts
    data = random.Random(1).randbytes(32 << 20)

    def is_in_large_frames() -> bool:
        """TCP sends small ones where a round trip takes a busy machine long."""
        before = [host.ask("stats") for host in lab.hosts]
        with lengths(first) as sent, lengths(second) as received:
            digest = transfer(first, second, str(getattr(second, family).ip), data)
        assert digest == hashlib.sha256(data).hexdigest()
        frames, packets = moved(first, before[0], "tx_super_frames", "tx_packets")
        assert packets > len(data) // MTU  # no packet is larger than that on the fabric,
        are_sent = max(sent) > 16 * MTU and frames < packets / 8  # though the kernel gave far fewer
        merged, frames = moved(second, before[1], "rx_merged", "rx_merged_frames")
        are_received = max(received) > 16 * MTU and frames < merged / 8
        return are_sent and are_received and merged > 0.8 * len(data) / MTU

    assert any(is_in_large_frames() for _ in range(3))


def test_the_fabric_carries_packets_of_the_mtu(lab: NamespaceLab, tmp_path: Path) -> None:
    first, second = lab.hosts
    file = tmp_path / "ib0.pcap"
    capture = first.namespace.popen(
        [*CAPTURE, str(file), "-c", "2000"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    with capture:
        # The capture has begun when it has written the header of the file.
        while not file.exists() or file.stat().st_size < 24:
            assert capture.poll() is None
            select.select([], [], [], 0.01)
        data = bytes(8 << 20)
        end = time.monotonic() + 60
        while capture.poll() is None:  # a busy capture drops frames
            assert time.monotonic() < end
            assert transfer(first, second, "10.77.0.2", data) == hashlib.sha256(data).hexdigest()
        assert capture.returncode == 0
    raw, at, lengths = file.read_bytes(), 24, []
    while at < len(raw):
        kept, length = struct.unpack_from("=8xII", raw, at)
        lengths.append(length)
        at += 16 + kept
    assert len(lengths) == 2000
    assert max(lengths) == 40 + 4 + TCP_PACKET
    done = subprocess.run(
        [*TCPDUMP, "-nvvr", str(file)], capture_output=True, text=True, check=True
    )
    # tcpdump checks every checksum, segment by segment.
    assert done.stdout.count("(correct)") > 1900
    assert "incorrect" not in done.stdout
    assert "bad cksum" not in done.stdout


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_connection_and_its_frames_are_made_for_trains(lab: NamespaceLab, family: str) -> None:
    """The routes are untouched: the other end's SYN names a smaller MSS than it was sent with."""
    first, second = lab.hosts
    for host in lab.hosts:
        (link,) = json.loads(host.run(["ip", "-d", "-j", "link", "show", "dev", "ib0"]).stdout)
        assert link["gso_max_size"] == 64344
        assert "advmss" not in host.run(["ip", "route", "show", "dev", "ib0"]).stdout
    address = str(getattr(second, family).ip)
    headers = (20 if family == "ipv4" else 40) + 20 + 12
    mss = TCP_PACKET - headers
    assert mss_of(first, second, address) == (mss, mss)


def test_without_offload_the_kernel_cuts_the_stream_itself(bare: NamespaceLab) -> None:
    for host in bare.hosts:
        host.options = ["--offload", "off"]
    bare.start()
    first, second = bare.hosts
    assert first.ask("show")["offload"] == ["csum"]
    data = random.Random(2).randbytes(4 << 20)
    with lengths(first) as sent, lengths(second) as received:
        digest = transfer(first, second, "10.77.0.2", data)
    assert digest == hashlib.sha256(data).hexdigest()
    assert max(sent) == max(received) == MTU
    counters = [host.ask("stats") for host in bare.hosts]
    assert counters[0]["tx_super_frames"] == counters[1]["rx_merged_frames"] == 0


def test_an_offloading_host_and_one_without_understand_each_other(bare: NamespaceLab) -> None:
    bare.hosts[1].options = ["--offload", "off"]
    bare.start()
    data = random.Random(3).randbytes(4 << 20)
    for sender, receiver in (bare.hosts, bare.hosts[::-1]):
        for address in (receiver.ipv4.ip, receiver.ipv6.ip):
            digest = transfer(sender, receiver, str(address), data)
            assert digest == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("address", ["10.77.0.2", "fd77::2"])
@pytest.mark.parametrize("gro", [False, True], ids=["datagrams", "gro"])
def test_udp_bursts_arrive_as_the_datagrams_that_were_sent(
    lab: NamespaceLab, until: Until, address: str, gro: bool
) -> None:
    first, second = lab.hosts
    until(lambda: first.run(["ping", "-c1", "-W2", address]).returncode == 0)
    size, count = 1400, 40
    before = [host.ask("stats") for host in lab.hosts]
    with (
        second.socket(family_of(address), socket.SOCK_DGRAM) as receiver,
        first.socket(family_of(address), socket.SOCK_DGRAM) as sender,
    ):
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        receiver.setsockopt(socket.SOL_UDP, UDP_GRO, int(gro))
        receiver.bind((address, 0))
        receiver.settimeout(30)
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, size)
        for burst in range(20):
            data = random.Random(burst).randbytes(size * count + 77)
            sender.sendto(data, receiver.getsockname())
            got: list[bytes] = []
            while sum(map(len, got)) < len(data):
                got.append(receiver.recv(1 << 17))
            assert b"".join(got) == data
            if not gro:
                assert [len(datagram) for datagram in got] == [size] * count + [77]
    assert moved(first, before[0], "tx_super_frames") == [20]
    merged, frames = moved(second, before[1], "rx_merged", "rx_merged_frames")
    assert merged > 20 * count / 2
    assert frames < merged / 4


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("loss", [0.001, 0.01])
def test_a_stream_survives_loss_and_reordering(seed: int, loss: float) -> None:
    faults = f"loss={loss},reorder=0.005,dup=0.002,corrupt=0.0005,seed={seed}"
    data = random.Random(seed).randbytes(8 << 20)
    with NamespaceLab(options=["--faults", faults]) as lab:
        first, second = lab.hosts
        for address in ("10.77.0.2", "fd77::2"):
            assert transfer(first, second, address, data) == hashlib.sha256(data).hexdigest()
        counters = first.ask("stats")
        assert counters["fabric.faults_lost"] > 0
        assert counters["fabric.faults_reordered"] > 0
        assert second.ask("stats")["rx_merged_frames"] > 100


def _datagrams(receiver: socket.socket) -> Iterator[bytes]:
    """Yield the datagrams of one call, cut where the kernel says that it has joined them."""
    data, control, _, _ = receiver.recvmsg(1 << 17, socket.CMSG_SPACE(4))
    size = len(data)
    for level, kind, value in control:
        if (level, kind) == (socket.SOL_UDP, UDP_GRO):
            (size,) = struct.unpack("=i", value)
    for at in range(0, len(data), size):
        yield data[at : at + size]


@pytest.mark.parametrize("address", ["10.77.0.2", "fd77::2"])
@pytest.mark.parametrize("gro", [False, True], ids=["datagrams", "gro"])
@pytest.mark.parametrize("loss", [0.001, 0.01])
def test_udp_bursts_through_loss_are_some_of_the_datagrams_that_were_sent_and_never_stop(
    loss: float, gro: bool, address: str, until: Until
) -> None:
    """Packets are lost, doubled, moved and damaged between those that the receiver merges."""
    faults = f"loss={loss},reorder=0.005,dup=0.002,corrupt=0.0005,seed=7"
    size, count, bursts = 1400, 40, 100
    arrived: Counter[bytes] = Counter()
    sent: set[bytes] = set()
    with NamespaceLab(options=["--faults", faults]) as lab:
        first, second = lab.hosts
        until(lambda: first.run(["ping", "-c1", "-W2", address]).returncode == 0)
        with (
            second.socket(family_of(address), socket.SOCK_DGRAM) as receiver,
            first.socket(family_of(address), socket.SOCK_DGRAM) as sender,
        ):
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
            receiver.setsockopt(socket.SOL_UDP, UDP_GRO, int(gro))
            receiver.bind((address, 0))
            sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, size)

            def receive(timeout_s: float) -> bool:
                if not select.select([receiver], [], [], timeout_s)[0]:
                    return False
                arrived.update(_datagrams(receiver))
                return True

            for burst in range(bursts):
                source = random.Random(burst)
                datagrams = [
                    struct.pack("!II", burst, n) + source.randbytes(size - 8) for n in range(count)
                ]
                sent.update(datagrams)
                sender.sendto(b"".join(datagrams), receiver.getsockname())
                while not any(struct.unpack_from("!I", got)[0] == burst for got in arrived):
                    assert receive(30), f"nothing came of burst {burst}"
                while receive(0):
                    pass
            while receive(3):
                pass
        counters = [host.ask("stats") for host in lab.hosts]
    assert set(arrived) <= sent
    assert len(arrived) > (1 - 3 * loss - 0.01) * count * bursts
    assert max(arrived.values()) <= 2
    assert counters[0]["fabric.faults_lost"] > 0
    assert counters[1]["rx_merged"] > count * bursts / 2


def test_neighbours_are_resolved_by_a_burst_that_begins_with_a_super_frame(
    bare: NamespaceLab,
) -> None:
    """The first datagram waits for the answer, and the other segments of the frame are lost; then all
    datagrams arrive."""
    bare.start()
    first, second = bare.hosts
    with (
        second.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        first.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("10.77.0.2", 0))
        receiver.settimeout(30)
        sender.setsockopt(socket.SOL_UDP, UDP_SEGMENT, 1000)
        sender.sendto(b"".join(bytes([n]) * 1000 for n in range(10)), receiver.getsockname())
        assert receiver.recv(2000) == bytes(1000)
        sender.sendto(b"".join(bytes([n]) * 1000 for n in range(10)), receiver.getsockname())
        for n in range(10):
            assert receiver.recv(2000) == bytes([n]) * 1000
