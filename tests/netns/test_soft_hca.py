# SPDX-License-Identifier: BSD-2-Clause
"""The built-in HCA between two network namespaces: its C live tests, and its packets as others see them.

The tests do not depend on other parts of ipoibu, as ext/soft does not: ip(8) makes the namespaces.
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.doubles.c_build import EXT, build
from tests.netns.captures import WRITES, dumpcap, wait_written

pytestmark = pytest.mark.netns

SOFT = EXT / "soft"
SOURCES = sorted((SOFT / "tests").glob("live_*.c"))
LIVE_TESTS = [
    name
    for source in SOURCES
    for name in re.findall(r"^    TEST\((\w+)\),$", source.read_text(), re.MULTILINE)
]
VETH_MTU = 9000


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@dataclass(frozen=True)
class Place:
    netns: str
    netdev: str

    def run(self, *words: str) -> str:
        return run("ip", "netns", "exec", self.netns, *words)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["ip", "netns", "exec", self.netns, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def sysctl(self, path: str, value: int | str) -> None:
        self.run("sh", "-c", f"echo {value} > /proc/sys/net/ipv6/{path}")

    @property
    def words(self) -> tuple[str, str]:
        return f"/run/netns/{self.netns}", self.netdev

    def link_local(self) -> str:
        """Return the address, once the kernel has noticed the carrier, and lets programs use it."""
        for _ in range(500):
            shown = self.run("ip", "-6", "-oneline", "address", "show", "dev", self.netdev)
            match = re.search(r"inet6 (fe80::\S+)/", shown)
            if match is not None and "tentative" not in shown:
                return match.group(1)
            time.sleep(0.01)
        raise AssertionError(f"{self.netdev} has no link-local address")


@pytest.fixture
def pair() -> Iterator[tuple[Place, Place]]:
    """Two namespaces joined by a veth pair, with link-local addresses that work at once."""
    places = tuple(Place(f"soft-{os.getpid()}-{x}", f"soft{x}") for x in "ab")
    a, b = places
    made = []
    try:
        for place in places:
            run("ip", "netns", "add", place.netns)
            made.append(place)
        run(
            *("ip", "link", "add", a.netdev, "netns", a.netns, "mtu", str(VETH_MTU), "type"),
            *("veth", "peer", "name", b.netdev, "netns", b.netns, "mtu", str(VETH_MTU)),
        )
        for place in places:
            place.sysctl(f"conf/{place.netdev}/accept_dad", 0)
            place.sysctl(f"neigh/{place.netdev}/retrans_time_ms", 50)
            place.run("ip", "link", "set", place.netdev, "up")
        for number, place in enumerate(places, 1):
            place.link_local()
            for address in (f"192.0.2.{number}/24", f"2001:db8::{number}/64"):
                nodad = ["nodad"] if ":" in address else []
                place.run("ip", "address", "add", address, "dev", place.netdev, *nodad)
        yield a, b
    finally:
        for place in made:
            run("ip", "netns", "delete", place.netns)


@pytest.fixture(scope="module")
def sanitized() -> Path:
    """The directory of programs built with ASan and UBSan."""
    return build("soft", "CC=gcc", "SANITIZE=1")


@pytest.fixture(scope="module")
def plain() -> Path:
    return build("soft", "CC=gcc")


# ---- the C live tests ------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_every_live_test_is_known_here(sanitized: Path) -> None:
    assert run(str(sanitized / "live"), "list").split() != []
    assert set(run(str(sanitized / "live"), "list").split()) == set(LIVE_TESTS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", LIVE_TESTS)
def test_live(sanitized: Path, pair: tuple[Place, Place], name: str) -> None:
    a, b = pair
    if name == "a_slow_link_holds_sends_back_and_loses_none":
        a.run(
            *("tc", "qdisc", "add", "dev", a.netdev, "root", "tbf"),
            *("rate", "200mbit", "burst", "200k", "limit", "20m"),
        )
    # The HCA waits 10 ms for the one consumer, which a busy machine may stop for longer.
    attempts = 5 if name.startswith("a_poll_leaves_") else 1
    for left in reversed(range(attempts)):
        try:
            said = run(str(sanitized / "live"), name, *a.words, *b.words)
            break
        except AssertionError as error:
            if not left or "Sanitizer" in str(error):
                raise
    assert f"ok: {name}" in said.splitlines()


# The tests that need neither groups nor a link-local address.
ROUTED_TESTS = (
    "messages_of_all_sizes_arrive_with_their_grh",
    "bursts_travel_as_trains",
    "trains_are_as_long_as_the_kernel_takes_them",
    "messages_within_one_hca_need_no_wire",
    "a_tx_queue_sends_over_outlets_of_its_own",
    "corrupted_packets_are_dropped_and_the_good_one_is_not",
    "the_first_packet_of_a_train_takes_no_other_with_it",
    "packets_without_a_udp_checksum_are_taken_as_rxe_sends_them",
    "reliable_messages_cross_as_trains_and_in_order",
    "packets_may_be_as_long_as_the_wire_takes_them",
    "a_socket_that_overflows_costs_packets_and_no_message",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("gid", ["ipv4", "ipv6"])
@pytest.mark.parametrize("name", ROUTED_TESTS)
def test_live_with_another_gid(
    sanitized: Path, pair: tuple[Place, Place], name: str, gid: str
) -> None:
    said = run(str(sanitized / "live"), name, *pair[0].words, *pair[1].words, gid)
    assert f"ok: {name}" in said.splitlines()


@pytest.mark.timeout(300)
def test_threads_share_an_hca_under_the_thread_sanitizer(pair: tuple[Place, Place]) -> None:
    live = build("soft", "CC=clang", "SANITIZE=thread") / "live"
    for name in (
        "threads_share_an_hca_and_none_sleeps_for_ever",
        "packets_left_fetched_wake_the_other_cq",
    ):
        assert f"ok: {name}" in run(str(live), name, *pair[0].words, *pair[1].words)


@pytest.mark.parametrize("gid", ["link", "ipv4"])
def test_trains_are_cut_and_joined_where_the_devices_do_not_offload(
    sanitized: Path, pair: tuple[Place, Place], gid: str
) -> None:
    name = "bursts_travel_as_trains"
    words = (name, *pair[0].words, *pair[1].words, gid)
    for place in pair:
        place.run("ethtool", "-K", place.netdev, "tx-udp-segmentation", "off", "gro", "off")
    assert f"ok: {name}" in run(str(sanitized / "live"), *words)
    for place in pair:
        place.run("ethtool", "-K", place.netdev, "tx", "off")  # no checksum offload either
    assert f"ok: {name}" in run(str(sanitized / "live"), *words)


def test_a_thousand_groups_fit_where_sockets_may_hold_few(
    sanitized: Path, pair: tuple[Place, Place]
) -> None:
    b = pair[1]
    limit = "/proc/sys/net/core/optmem_max"  # of the namespace since Linux 6.7
    if b.run("sh", "-c", f"test -e {limit} && echo yes || echo no").strip() == "yes":
        b.run("sh", "-c", f"echo 4096 > {limit}")
    name = "a_thousand_groups_are_reached"
    assert f"ok: {name}" in run(str(sanitized / "live"), name, *pair[0].words, *b.words)


# ---- opening ---------------------------------------------------------------------------------


def test_opening_says_what_is_wrong_with_the_device(
    sanitized: Path, pair: tuple[Place, Place]
) -> None:
    a, b = pair

    def opened(place: Place, netdev: str = "", *gid: str) -> str:
        words = ("open", place.words[0], netdev or place.netdev, *gid)
        return run(str(sanitized / "live"), *words).strip()

    assert opened(a) == f"0 4096 8928 {a.link_local()}"
    assert opened(a, "nothere0") == "ENODEV"
    assert opened(a, "lo") == "ENETDOWN"
    a.run("ip", "link", "set", "lo", "up")
    assert opened(a, "lo") == "EADDRNOTAVAIL"  # it has ::1 and 127.0.0.1 alone
    for mtu, active in ((4176, 4096), (4175, 2048), (2128, 2048), (1500, 1024), (1280, 1024)):
        a.run("ip", "link", "set", a.netdev, "mtu", str(mtu))
        assert opened(a).startswith(f"0 {active} {(mtu - 72) // 4 * 4} fe80::")
    ipv4, ipv6 = "0 1024 1228 ::ffff:192.0.2.1", "0 1024 1208 2001:db8::1"
    for gid, answer in (
        ("ipv4", ipv4),
        ("192.0.2.1", ipv4),
        ("192.0.2.2", "EADDRNOTAVAIL"),
        ("ipv6", ipv6),
        ("2001:db8::1", ipv6),
        ("2001:db8::2", "EADDRNOTAVAIL"),
    ):
        assert opened(a, "", gid) == answer
    a.run("ip", "-6", "address", "flush", "dev", a.netdev, "scope", "link")
    assert opened(a) == ipv4
    a.run("ip", "-4", "address", "flush", "dev", a.netdev)
    assert opened(a) == ipv6
    assert opened(a, "", "ipv4") == "EADDRNOTAVAIL"
    a.sysctl(f"conf/{a.netdev}/disable_ipv6", 1)
    assert opened(a) == "EADDRNOTAVAIL"
    a.run("ip", "link", "set", a.netdev, "mtu", "300")  # the kernel has no IPv6 below 1280
    assert opened(a) == "EMSGSIZE"
    a.run("ip", "link", "set", a.netdev, "down")
    assert opened(a) == "ENETDOWN"
    b.run("ip", "address", "flush", "dev", b.netdev)
    b.sysctl(f"conf/{b.netdev}/accept_dad", 1)
    b.sysctl(f"conf/{b.netdev}/dad_transmits", 200)
    b.sysctl(f"neigh/{b.netdev}/retrans_time_ms", 1000)
    a.run("ip", "link", "set", a.netdev, "mtu", str(VETH_MTU), "up")
    b.run("ip", "-6", "address", "add", "fe80::77/64", "dev", b.netdev)
    assert opened(b) == "EAGAIN"
    b.run("ip", "-6", "address", "add", "fe80::78/64", "dev", b.netdev, "nodad")
    assert opened(b) == "0 4096 8928 fe80::78"


def test_the_address_made_from_the_mac_is_the_gid_where_there_are_several(
    plain: Path, pair: tuple[Place, Place]
) -> None:
    a, b = pair
    a.run("ip", "-6", "address", "add", "fe80::1/64", "dev", a.netdev, "nodad")
    mac = a.run("cat", f"/sys/class/net/{a.netdev}/address").strip().split(":")
    with capture(a) as packets:
        run(str(plain / "live"), "known_messages_for_a_capture", *a.words, *b.words)
    eui64 = bytes([int(mac[0], 16) ^ 2]) + bytes.fromhex("".join([*mac[1:3], "fffe", *mac[3:]]))
    sources = {packet.src[8:] for packet in packets}
    assert eui64 in sources
    assert bytes(7) + b"\x01" not in sources


# ---- the wire, seen by others ----------------------------------------------------------------


@dataclass(frozen=True)
class Packet:
    """A UDP packet to port 4791; `ip` is its header."""

    ip: bytes
    src: bytes
    dst: bytes
    udp: bytes
    payload: bytes


# Little-endian, with microseconds or nanoseconds
PCAP_MAGICS = (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")


def parse_pcap(path: Path) -> list[Packet]:
    data = path.read_bytes()
    assert data[:4] in PCAP_MAGICS
    packets, at = [], 24
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frame = data[at + 16 : at + 16 + length]
        at += 16 + length
        is_v6 = frame[12:14] == b"\x86\xdd"
        end = 54 if is_v6 else 34
        ip = frame[14:end]
        assert (ip[0], ip[6]) == (0x60, 17) if is_v6 else (ip[0], ip[9]) == (0x45, 17)
        src, dst = (ip[8:24], ip[24:40]) if is_v6 else (ip[12:16], ip[16:20])
        packets.append(Packet(ip, src, dst, frame[end : end + 8], frame[end + 8 :]))
    return packets


@contextlib.contextmanager
def capture(place: Place, path: Path | None = None) -> Iterator[list[Packet]]:
    """Capture the packets that pass the device to or from port 4791 meanwhile; complete at the end of the
    block."""
    file = path or Path(f"/tmp/soft-{os.getpid()}.pcap")
    packets: list[Packet] = []
    capturing = place.start(*dumpcap(place.netdev, file))
    assert capturing.stdout is not None
    try:
        for line in capturing.stdout:
            if WRITES in line:
                break
        yield packets
        wait_written(file)
    finally:
        capturing.terminate()
        capturing.wait()
        capturing.stdout.close()
    packets += parse_pcap(file)
    if path is None:
        file.unlink()


def icrc(packet: Packet) -> bytes:
    """Return the ICRC by its definition (InfiniBand Annex A17), with zlib, in the packet's byte order."""
    ip = packet.ip
    if ip[0] == 0x45:
        ip = b"\x45\xff" + ip[2:8] + b"\xff" + ip[9:10] + b"\xff\xff" + ip[12:]
    else:
        ip = bytes([ip[0] | 0x0F, 0xFF, 0xFF, 0xFF]) + ip[4:7] + b"\xff" + ip[8:]
    udp = packet.udp[:6] + b"\xff\xff"
    bth = packet.payload[:4] + b"\xff" + packet.payload[5:12]
    crc = zlib.crc32(b"\xff" * 8 + ip + udp + bth + packet.payload[12:-4])
    return struct.pack("<I", crc)


TEXTS = [b"", b"a", b"ab", b"abc", b"abcd", b"The quick brown fox"]
TRAIN = [b"one of four"[:n] for n in (11, 11, 11, 3)]
FIELDS = (
    "infiniband.bth.opcode",
    "infiniband.bth.se",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.immdt",
    "infiniband.invariant.crc",
)


def tshark(path: Path, fields: tuple[str, ...] = FIELDS) -> list[list[str]]:
    words = ["tshark", "-r", str(path), "-T", "fields", "-E", "separator=;"]
    for field in fields:
        words += ["-e", field]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [line.split(";") for line in done.stdout.splitlines()]


def number(text: str) -> int:
    return int(text, 0)


def test_tshark_decodes_the_wire_and_the_icrc_is_right_by_three_accounts(
    sanitized: Path, pair: tuple[Place, Place], tmp_path: Path
) -> None:
    from scapy.contrib.roce import BTH  # binds itself to UDP port 4791
    from scapy.layers.inet6 import IPv6

    a, b = pair
    # Else the capture shows the train in one piece, as the two devices hand it on.
    a.run("ethtool", "-K", a.netdev, "tx-udp-segmentation", "off")
    path = tmp_path / "wire.pcap"
    with capture(b, path) as packets:
        said = run(
            str(sanitized / "live"), "known_messages_for_a_capture", *a.words, *b.words
        ).splitlines()
    qpn_a, qpn_b = (int(x, 16) for x in said[0].split()[1:])

    rows = tshark(path)
    messages = [*TEXTS, b"to the group", *TRAIN]
    assert len(packets) == len(rows) == len(messages)
    for i, (packet, row, text) in enumerate(zip(packets, rows, messages, strict=True)):
        opcode, solicited, pad, pkey, dest, psn, qkey, src, imm, crc = row
        special = i == len(TEXTS) - 1
        assert number(opcode) == (0x65 if special else 0x64)
        assert solicited in (("1", "True") if special else ("0", "False"))
        assert number(pad) == -len(text) % 4
        assert number(pkey) == 0xFFFF
        assert number(dest) == (0xFFFFFF if text == b"to the group" else qpn_b)
        assert number(src) == qpn_a
        assert number(qkey) == 0x0B1B
        assert number(psn) == (number(rows[0][5]) + i) % (1 << 24)
        # tshark shows the immediate data twice.
        assert set(imm.split(",")) == {"cafef00d" if special else ""}

        start = 24 if special else 20
        assert packet.payload[start : start + len(text)] == text
        assert packet.payload[start + len(text) : -4] == bytes(-len(text) % 4)
        assert packet.payload[-4:] == icrc(packet)
        flow = i % 4 if i < len(TEXTS) else 0
        assert packet.udp[:4] == struct.pack("!HH", 0xC000 + flow, 4791)
        assert packet.udp[6:8] != b"\0\0"  # a checksum, so that the kernel may join packets
        if text:  # tshark 4.0 calls a message without data malformed, and stops there
            assert number(crc) == int.from_bytes(packet.payload[-4:], "big")

        again = IPv6(packet.ip + packet.udp + packet.payload)
        del again[BTH].icrc
        assert bytes(again)[-4:] == packet.payload[-4:], "scapy computes another ICRC"


def test_over_ipv4_the_icrc_is_that_of_an_unfragmented_packet_with_identification_0(
    sanitized: Path, pair: tuple[Place, Place], tmp_path: Path
) -> None:
    """Single packets have just that, so other adapters can take them; those of a train are numbered."""
    from scapy.contrib.roce import BTH
    from scapy.layers.inet import IP

    a, b = pair
    a.run("ethtool", "-K", a.netdev, "tx-udp-segmentation", "off")
    with capture(b, tmp_path / "wire.pcap") as packets:
        run(str(sanitized / "live"), "known_messages_for_a_capture", *a.words, *b.words, "ipv4")
    assert len(packets) == len(TEXTS) + len(TRAIN)
    numbers = [0] * len(TEXTS) + list(range(len(TRAIN)))
    for packet, identification in zip(packets, numbers, strict=True):
        assert packet.ip[4:8] == struct.pack("!HH", identification, 0x4000)
        assert packet.ip[8] == 64
        assert packet.udp[6:8] != b"\0\0"
        as_0 = replace(packet, ip=packet.ip[:4] + b"\0\0" + packet.ip[6:])
        assert packet.payload[-4:] == icrc(as_0)
        again = IP(as_0.ip + packet.udp + packet.payload)
        del again[BTH].icrc
        assert bytes(again)[-4:] == packet.payload[-4:], "scapy computes another ICRC"
        assert (packet.payload[-4:] == icrc(packet)) == (identification == 0)


RC_FIELDS = (
    "infiniband.bth.opcode",
    "infiniband.bth.padcnt",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.immdt",
)


def test_tshark_and_scapy_decode_a_reliable_connection(
    sanitized: Path, pair: tuple[Place, Place], tmp_path: Path
) -> None:
    from scapy.contrib.roce import AETH, BTH
    from scapy.layers.inet6 import IPv6

    a, b = pair
    for place in pair:
        place.run("ethtool", "-K", place.netdev, "tx-udp-segmentation", "off")
    path = tmp_path / "wire.pcap"
    with capture(b, path) as packets:
        said = run(
            str(sanitized / "live"), "known_reliable_messages_for_a_capture", *a.words, *b.words
        ).splitlines()
    qpn_a, qpn_b = (int(x, 16) for x in said[0].split()[1:])
    first = 0xFFFFFE
    expected: list[tuple[int, int, bool, int, int | None, int | None]] = [
        # opcode, padding, ack request, PSN, AETH syndrome and MSN or None
        (0x05, 1, True, first, None, None),
        (0x11, 0, False, first, 0x1F, 1),
        (0x00, 0, False, first + 1, None, None),
        (0x01, 0, False, 0, None, None),
        (0x03, 3, True, 1, None, None),
        (0x11, 0, False, 1, 0x1F, 2),
        (0x05, 0, True, 2, None, None),
        (0x11, 0, False, 2, 0x20 | 12, 2),
    ]
    rows = tshark(path, RC_FIELDS)
    assert len(packets) == len(rows) == len(expected)
    for packet, row, values in zip(packets, rows, expected, strict=True):
        opcode, pad, ack_request, psn, syndrome, msn = values
        assert number(row[0]) == opcode
        assert number(row[1]) == pad
        assert number(row[2]) == (qpn_a if opcode == 0x11 else qpn_b)
        assert (row[3] in ("1", "True")) == ack_request
        assert number(row[4]) == psn
        assert (number(row[5]) if row[5] else None) == syndrome
        assert (number(row[6]) if row[6] else None) == msn
        assert packet.payload[-4:] == icrc(packet)
        outlet = (qpn_b if opcode == 0x11 else qpn_a) % 4
        assert packet.udp[:4] == struct.pack("!HH", 0xC000 + outlet, 4791)

        again = IPv6(packet.ip + packet.udp + packet.payload)
        assert again[BTH].psn == psn
        assert again[BTH].ackreq == ack_request
        if opcode == 0x11:
            assert again[AETH].syndrome == syndrome
            assert again[AETH].msn == msn
        del again[BTH].icrc
        assert bytes(again)[-4:] == packet.payload[-4:], "scapy computes another ICRC"
    assert set(rows[0][7].split(",")) == {"01020304"}


# ---- soft_pingpong ---------------------------------------------------------------------------


def test_pingpong_plays_between_two_programs(sanitized: Path, pair: tuple[Place, Place]) -> None:
    a, b = pair
    program = str(sanitized / "soft_pingpong")
    for options in (["-s", "4096", "-c", "-e"], ["-s", "0", "-r", "1", "-e"], ["-c", "-n", "50"]):
        server = b.start(program, "-d", b.netdev, *options)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening on port 18515\n"
        said = a.run(program, "-d", a.netdev, *options, f"{b.link_local()}%{a.netdev}")
        assert server.wait(timeout=60) == 0
        count = "50" if "-n" in options else "1000"
        assert f", {count} messages each way in " in said
        assert f", {count} messages each way in " in server.stdout.read()
        server.stdout.close()


def test_rc_pingpong_plays_between_two_programs(sanitized: Path, pair: tuple[Place, Place]) -> None:
    a, b = pair
    program = str(sanitized / "soft_rc_pingpong")
    for options in (["-c", "-e"], ["-s", "65524", "-m", "4096", "-c", "-e", "-n", "200"]):
        server = b.start(program, "-d", b.netdev, *options)
        assert server.stdout is not None
        assert server.stdout.readline() == "listening on port 18515\n"
        said = a.run(program, "-d", a.netdev, *options, f"{b.link_local()}%{a.netdev}")
        assert server.wait(timeout=60) == 0
        count = "200" if "-n" in options else "1000"
        assert f", {count} messages each way in " in said
        assert f", {count} messages each way in " in server.stdout.read()
        server.stdout.close()


def test_pingpong_refuses_nonsense(sanitized: Path, pair: tuple[Place, Place]) -> None:
    a, _ = pair
    for words, status, said in (
        (["-d", "nothere0"], 1, "nothere0: No such device"),
        (["-d", a.netdev, "-s", "x"], 2, "x is not a number from 0 to 4096"),
        ([], 2, "usage:"),
    ):
        program = a.start(str(sanitized / "soft_pingpong"), *words)
        assert program.wait(timeout=60) == status
        assert program.stdout is not None
        assert said in program.stdout.read()
        program.stdout.close()


def test_rate_measures_messages_that_arrive(plain: Path, pair: tuple[Place, Place]) -> None:
    said = run(str(plain / "rate"), *pair[0].words, *pair[1].words, "2")
    rates = {
        int(size): float(rate)
        for size, rate in re.findall(r"^ *(\d+) bytes: .*received +(\d+)/s", said, re.MULTILINE)
    }
    assert set(rates) == {64, 1024, 2048, 4096}
    assert all(rates.values()), said


def test_rate_rc_measures_messages_that_arrive(plain: Path, pair: tuple[Place, Place]) -> None:
    for connections in ("1", "8"):
        said = run(str(plain / "rate_rc"), *pair[0].words, *pair[1].words, "2", connections)
        rates = {
            int(size): float(rate)
            for size, rate in re.findall(r"^ *(\d+) bytes: received +(\d+)/s", said, re.MULTILINE)
        }
        assert set(rates) == {64, 4096, 65524}
        assert all(rates.values()), said
