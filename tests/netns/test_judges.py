# SPDX-License-Identifier: BSD-2-Clause
"""Other programs read our frames: tcpdump reads captures of the link, tshark the wire below it."""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.captures import TCPDUMP, WRITES, dumpcap, wait_written

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Sh = Callable[[Host, str], str]
Until = Callable[..., Any]
COMMAND = [sys.executable, "-m", "ipoibu.cli"]


@contextmanager
def _capturing(host: Host, file: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `ipoibu capture` from its first line of output to Ctrl-C."""
    process = host.namespace.popen(
        [*COMMAND, "capture", "ib0", "-w", str(file), *words], stderr=subprocess.PIPE
    )
    with process:
        assert process.stderr is not None
        assert b"capturing on ib0" in process.stderr.readline()
        try:
            yield process
            process.send_signal(2)
            process.wait(60)
        finally:
            process.kill()


def _tcpdump(file: Path, *words: str) -> str:
    done = subprocess.run(
        [*TCPDUMP, "-nvr", str(file), *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "IPOIB" in done.stderr
    return done.stdout


def _pings(size: int) -> str:
    """Three of IPv4 and two of IPv6, one by one: a ping of several waits for the last answer but briefly."""
    return (
        f"for n in 1 2 3; do ping -c1 -W10 -s {size} 10.77.0.2 || exit; done;"
        " for n in 1 2; do ping -6 -c1 -W10 fd77::2 || exit; done"
    )


def test_tcpdump_reads_arp_with_20_byte_addresses_and_icmp(
    bare: NamespaceLab, sh: Sh, tmp_path: Path
) -> None:
    bare.start()
    first = bare.hosts[0]
    file = tmp_path / "ib0.pcap"
    with _capturing(first, file) as capture:
        sh(first, _pings(56))
    assert capture.returncode == 0
    text = _tcpdump(file)
    assert re.search(r"ARP, InfiniBand \(len 20\).*Request who-has 10.77.0.2 tell 10.77.0.1", text)
    hwaddr = bare.hosts[1].ask("show")["hwaddr"]
    assert f"Reply 10.77.0.2 is-at {hwaddr}" in text
    assert text.count("ICMP echo request") == 3
    assert text.count("ICMP echo reply") == 3
    assert text.count("ICMP6, echo request") == 2
    assert "neighbor solicitation, length 48, who has fd77::2" in text
    assert "neighbor advertisement" in text
    assert "bad " not in text  # no checksum is wrong
    assert "truncated" not in text


def test_a_capture_ends_by_itself_after_its_count(
    lab: NamespaceLab, cli: Cli, sh: Sh, tmp_path: Path
) -> None:
    first = lab.hosts[0]
    file = tmp_path / "ib0.pcap"
    with _capturing(first, file, "-c", "3", "-s", "60") as capture:
        sh(first, "ping -c5 -i0.1 -W10 10.77.0.2")
        assert capture.wait(60) == 0
        assert capture.stderr is not None
        assert capture.stderr.read().startswith(b"3 frames captured")
    assert len(_tcpdump(file, "-t").strip().splitlines()) >= 3
    assert file.stat().st_size == 24 + 3 * (16 + 60)


def test_a_capture_pipes_into_tcpdump(lab: NamespaceLab, sh: Sh) -> None:
    first = lab.hosts[0]
    command = " ".join(COMMAND)
    pipeline = f"{command} capture ib0 -w - -c 4 2>/dev/null | {' '.join(TCPDUMP)} -nr -"
    process = first.namespace.popen(
        ["sh", "-c", pipeline], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    with process:
        end = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            sh(first, "ping -c1 -W10 10.77.0.2; sleep 0.1")
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert len(output.splitlines()) == 4


def test_captures_do_not_disturb_each_other_or_the_traffic(
    lab: NamespaceLab, sh: Sh, tmp_path: Path
) -> None:
    first = lab.hosts[0]
    files = [tmp_path / "a.pcap", tmp_path / "b.pcap"]
    with _capturing(first, files[0]), _capturing(first, files[1]):
        sh(first, "for n in $(seq 20); do ping -q -c1 -W5 10.77.0.2 || exit 1; done")
    for file in files:
        assert _tcpdump(file).count("ICMP echo reply") == 20


# The wire


@contextmanager
def _on_the_wire(host: Host, file: Path) -> Iterator[None]:
    process = host.namespace.popen(dumpcap("eth0", file), stderr=subprocess.PIPE)
    with process:
        assert process.stderr is not None
        while WRITES.encode() not in process.stderr.readline():
            assert process.poll() is None
        try:
            yield
            wait_written(file)
            process.terminate()
            process.wait(60)
        finally:
            process.kill()


def _tshark(file: Path, filters: str, *fields: str) -> list[list[str]]:
    words = [word for field in fields for word in ("-e", field)]
    done = subprocess.run(
        [
            "tshark",
            "-r",
            str(file),
            "-Y",
            filters,
            "-T",
            "fields",
            "-E",
            "separator=|",
            "-E",
            "occurrence=f",
            *words,
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return [line.split("|") for line in done.stdout.splitlines()]


def test_tshark_reads_the_wire_as_rocev2_datagrams(
    bare: NamespaceLab, sh: Sh, tmp_path: Path
) -> None:
    """E1, E5, E6."""
    bare.start()
    first, second = bare.hosts
    file = tmp_path / "eth0.pcap"
    with _on_the_wire(first, file):
        sh(first, _pings(1001))
    fields = (
        "ipv6.src",
        "ipv6.dst",
        "infiniband.bth.opcode",
        "infiniband.bth.p_key",
        "infiniband.bth.destqp",
        "infiniband.deth.q_key",
        "infiniband.deth.srcqp",
    )
    frames = _tshark(file, "infiniband", *fields)
    every = _tshark(file, "udp.dstport == 4791", "frame.number")
    assert len(frames) == len(every) >= 12
    assert _tshark(file, "_ws.malformed", "frame.number") == []
    qpn = {host.name: int(host.ask("show")["qpn"], 16) for host in bare.hosts}
    for source, destination, opcode, pkey, destqp, qkey, srcqp in frames:
        assert int(opcode, 0) == 100  # UD SEND only
        assert int(pkey, 0) == 0xFFFF
        assert int(qkey, 0) == 0x0B1B  # OpenSM's default (E6)
        assert source in ("fe80::ff:fe00:1", "fe80::ff:fe00:2")
        sender = "h1" if source.endswith(":1") else "h2"
        assert int(srcqp, 0) == qpn[sender]
        if destination.startswith("ff12:"):
            assert int(destqp, 0) == 0xFFFFFF  # E5
        else:
            assert int(destqp, 0) == qpn["h1" if destination.endswith(":1") else "h2"]
    groups = {frame[1] for frame in frames if frame[1].startswith("ff12:")}
    assert "ff12:401b:ffff::ffff:ffff" in groups  # the ARP request
    assert "ff12:601b:ffff::1:ff00:2" in groups  # the neighbour solicitation
    assert second.ask("stats")["fabric.rx_packets"] > 0


SENDER = """
import socket
for round in range(3):
    for port in range(7000, 7064):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("10.77.0.1", port))
            one.sendto(b"%d" % round, ("10.77.0.2", 9))
"""


def _udp_on_the_wire(file: Path) -> Iterator[tuple[int, int, int]]:
    """Of each UDP datagram inside one of ours: the source ports, of the outer one first, and its data."""
    data, at = file.read_bytes(), 24
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        outer, inner = frame[54:], frame[54 + 8 + 12 + 8 + 4 :]  # UDP, BTH, DETH, our own header
        if outer[8] == 0x64 and inner[:1] == b"\x45" and inner[9] == socket.IPPROTO_UDP:
            (wire,) = struct.unpack_from("!H", outer)
            port, target = struct.unpack_from("!HH", inner, 20)
            if target == 9:
                yield wire, port, int(inner[28:29])


def test_a_flow_has_one_udp_port_on_the_wire_and_keeps_its_order(
    bare: NamespaceLab, sh: Sh, tmp_path: Path
) -> None:
    bare.start()
    first = bare.hosts[0]
    file = tmp_path / "eth0.pcap"
    # Else the capture shows a train in one piece.
    first.namespace.run(["ethtool", "-K", "eth0", "tx-udp-segmentation", "off"])
    sh(first, "ping -c1 -W5 10.77.0.2")
    with _on_the_wire(first, file):
        first.namespace.run([sys.executable, "-c", SENDER])
    ports: dict[int, set[int]] = {}
    order: dict[int, list[int]] = {}
    for wire, port, number in _udp_on_the_wire(file):
        ports.setdefault(port, set()).add(wire)
        order.setdefault(port, []).append(number)
    assert order == {port: [0, 1, 2] for port in range(7000, 7064)}
    assert all(len(own) == 1 for own in ports.values())
    used = set().union(*ports.values())
    assert len(used) > 1
    assert min(used) >= 0xC000
