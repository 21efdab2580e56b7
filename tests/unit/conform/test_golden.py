# SPDX-License-Identifier: BSD-2-Clause
"""The tester's own layouts: their bytes are those of the golden corpus, which tshark reads as we do.

`tests/golden/conform.toml` has each frame with what tshark (Wireshark) reads from it.
"""

from __future__ import annotations

import struct
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from ipoibu.conform.headers.dhcp import client_id, dhcp, end, message_type
from ipoibu.conform.headers.groups import (
    igmp,
    igmp3_query,
    igmp3_record,
    igmp3_report,
    mld,
    mld2_query,
    mld2_record,
    mld2_report,
)
from ipoibu.conform.headers.ip import (
    destination_options,
    echo6,
    fragment,
    hop_by_hop,
    icmp_echo,
    icmp_unreachable,
    icmpv6_error,
    ipv4,
    ipv6,
    router_alert,
    too_big,
    udp,
)
from ipoibu.conform.headers.link import ENCAP, arp, encap
from ipoibu.conform.headers.nd import (
    mtu_option,
    na,
    ns,
    prefix_option,
    ra,
    redirect,
    rs,
    source_option,
    target_option,
)
from ipoibu.conform.packet import Packet, build, parse_untrusted

GOLDEN: Final = Path(__file__).resolve().parents[2] / "golden/conform.toml"
HW: Final = bytes.fromhex("00000123" + "fe80000000000000" + "0211223344556677")
OTHER: Final = bytes.fromhex("80abcdef" + "fe80000000000000" + "0011223344556678")
LINKTYPE_IPOIB: Final = 242
GRH: Final = 40  # bytes in front of each frame
V4: Final = ipv4(source="10.1.2.3", destination="10.1.2.4", id=0x1234)
V6: Final = ipv6(source="fe80::1", destination="fe80::2")
ND: Final = ipv6(source="fe80::1", destination="ff02::1:ff00:2", hop_limit=255)
GROUP: Final = ipv6(source="fe80::1", destination="ff02::16", hop_limit=1)

PACKETS: Final[dict[str, Packet]] = {
    "arp-request": encap() / arp(sender_hwaddr=HW, sender_ip="10.1.2.3", target_ip="10.1.2.4"),
    "arp-reply": encap()
    / arp(
        operation=2,
        sender_hwaddr=HW,
        sender_ip="10.1.2.3",
        target_hwaddr=OTHER,
        target_ip="10.1.2.4",
    ),
    "echo": encap() / V4 / icmp_echo(id=7, sequence=9) / b"abcdefg",
    "ipv4-fragment": encap()
    / ipv4(source="10.1.2.3", destination="10.1.2.4", more_fragments=1, fragment_offset=185)
    / bytes(16),
    "fragmentation-needed": encap()
    / V4
    / icmp_unreachable(code=4, mtu=1400)
    / build(ipv4(source="10.1.2.4", destination="10.1.2.3") / udp(source_port=1) / b"body"),
    "udp": encap() / V4 / udp(source_port=5000, destination_port=5001) / b"hello",
    "udp6": encap() / V6 / udp(source_port=5000, destination_port=5001) / b"hello",
    "echo6": encap() / V6 / echo6(id=7, sequence=9) / b"abcdefg",
    "fragment6": encap() / V6 / fragment(next_header=58, offset=181, more=1, id=77) / bytes(16),
    "options6": encap() / V6 / destination_options() / echo6(id=1, sequence=2),
    "too-big": encap() / V6 / too_big(mtu=1280) / build(V6 / echo6(id=1) / b"body"),
    "parameter-problem": encap()
    / V6
    / icmpv6_error(code=1, pointer=40)
    / build(V6 / echo6(id=1) / b"body"),
    "ns": encap() / ND / ns(target="fe80::2") / source_option(hwaddr=HW),
    "na": encap()
    / ipv6(source="fe80::2", destination="fe80::1", hop_limit=255)
    / na(solicited=1, override=1, target="fe80::2")
    / target_option(hwaddr=OTHER),
    "rs": encap()
    / ipv6(source="fe80::1", destination="ff02::2", hop_limit=255)
    / rs()
    / source_option(hwaddr=HW),
    "ra": encap()
    / ipv6(source="fe80::1", destination="ff02::1", hop_limit=255)
    / ra(lifetime_s=1800, reachable_ms=30000, retransmit_ms=1000)
    / source_option(hwaddr=HW)
    / mtu_option(mtu=1500)
    / prefix_option(prefix="2001:db8::"),
    "redirect": encap()
    / ipv6(source="fe80::1", destination="fe80::2", hop_limit=255)
    / redirect(target="fe80::3", destination="2001:db8::9")
    / target_option(hwaddr=HW),
    "igmp-query": encap()
    / ipv4(source="10.1.2.3", destination="224.0.0.1", ttl=1)
    / router_alert()
    / igmp(max_response=10)
    / igmp3_query(),
    "igmp-report": encap()
    / ipv4(source="10.1.2.3", destination="224.0.0.22", ttl=1)
    / router_alert()
    / igmp3_report(records=1)
    / igmp3_record(type=4, group="239.1.2.3"),
    "igmp2-report": encap()
    / ipv4(source="10.1.2.3", destination="239.1.2.3", ttl=1)
    / router_alert()
    / igmp(type=0x16, group="239.1.2.3"),
    "mld-query": encap() / GROUP / hop_by_hop() / mld(max_response_ms=1000) / mld2_query(),
    "mld-report": encap()
    / GROUP
    / hop_by_hop()
    / mld2_report(records=1)
    / mld2_record(type=4, group="ff05::1:3"),
    "dhcp": encap()
    / ipv4(source="0.0.0.0", destination="255.255.255.255")
    / udp(source_port=68, destination_port=67)
    / dhcp(transaction=0x12345678, broadcast=1)
    / message_type(type=1)
    / client_id(length=1, type=0)
    / end(),
}


def golden() -> dict[str, dict[str, object]]:
    return tomllib.loads(GOLDEN.read_text())


def test_the_corpus_has_each_packet() -> None:
    assert list(golden()) == list(PACKETS)


@pytest.mark.parametrize("name", PACKETS)
def test_the_bytes_are_golden_and_read_back(name: str) -> None:
    raw = bytes.fromhex(str(golden()[name]["hex"]))
    packet = PACKETS[name]
    assert build(packet) == raw
    found = parse_untrusted(raw, ENCAP)
    assert packet.is_met_by(found)
    assert build(found) == raw


def test_tshark_reads_what_the_corpus_says(tmp_path: Path) -> None:
    entries = golden()
    file = tmp_path / "golden.pcap"
    frames = [bytes.fromhex(str(it["hex"])) for it in entries.values()]
    file.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, LINKTYPE_IPOIB)
        + b"".join(
            struct.pack("<IIII", number, 0, GRH + len(frame), GRH + len(frame)) + bytes(GRH) + frame
            for number, frame in enumerate(frames)
        )
    )
    rows = {name: it["tshark"] for name, it in entries.items()}
    fields = sorted({field for row in rows.values() for field in dict(row)})  # type: ignore[call-overload]
    fixed = ("_ws.malformed", "_ws.expert.severity")
    words = [word for field in (*fixed, *fields) for word in ("-e", field)]
    checks = [
        word
        for name in ("ip.check_checksum", "udp.check_checksum")
        for word in ("-o", f"{name}:TRUE")
    ]
    command = ["tshark", "-r", str(file), *checks, "-T", "fields", "-E", "separator=|"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    lines = [line.split("|") for line in done.stdout.splitlines()]
    for (name, wanted), (malformed, _, *values) in zip(rows.items(), lines, strict=True):
        found = {field: value for field, value in zip(fields, values, strict=True) if value}
        assert malformed == "", name
        assert {field: found.get(field) for field in dict(wanted)} == wanted, name  # type: ignore[call-overload]
