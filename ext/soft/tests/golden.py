#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Write golden.h: RoCEv2 packets as scapy makes them (scapy.contrib.roce, scapy >= 2.5).

    python3 golden.py > golden.h

scapy computes the ICRC from the whole IPv6 packet with code of its own, so the vectors judge ours.
It knows no DETH; those 8 bytes (InfiniBand volume 1, 9.3.2) are spelled out here.
"""

import struct
from dataclasses import dataclass

from scapy.compat import raw
from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

UD_SEND = 0x64
UD_SEND_IMM = 0x65


@dataclass(frozen=True)
class Vector:
    """One packet: what goes in; each field that is left out has its most common value."""

    name: str
    payload: bytes
    src: str = "fe80::5054:ff:fe12:3456"
    dst: str = "fe80::5054:ff:fe12:3457"
    sport: int = 4791
    dqpn: int = 0x000011
    sqpn: int = 0x000012
    qkey: int = 0x00000B1B
    pkey: int = 0xFFFF
    psn: int = 0
    solicited: int = 0
    imm: int | None = None
    tc: int = 0
    fl: int = 0
    hlim: int = 64
    fecn: int = 0
    becn: int = 0
    id: int | None = None  # IPv4; then fl is left out

    def packet(self) -> bytes:
        """The UDP payload, from BTH to ICRC."""
        pad = -len(self.payload) % 4
        rest = struct.pack("!II", self.qkey, self.sqpn)
        if self.imm is not None:
            rest += struct.pack("!I", self.imm)
        rest += self.payload + bytes(pad)
        bth = BTH(
            opcode=UD_SEND if self.imm is None else UD_SEND_IMM,
            solicited=self.solicited,
            padcount=pad,
            pkey=self.pkey,
            fecn=self.fecn,
            becn=self.becn,
            dqpn=self.dqpn,
            psn=self.psn,
        )
        if self.id is None:
            ip = IPv6(src=self.src, dst=self.dst, tc=self.tc, fl=self.fl, hlim=self.hlim)
        else:
            ip = IP(src=self.src, dst=self.dst, tos=self.tc, ttl=self.hlim, id=self.id, flags="DF")
        udp = UDP(sport=self.sport, dport=4791)
        return raw(ip / udp / bth / Raw(rest))[len(ip) + len(udp) :]

    def gid(self, address: str) -> str:
        return address if self.id is None else f"::ffff:{address}"


VECTORS = [
    Vector("nothing", b""),
    Vector("one byte, three of padding", b"\x5a", psn=0xFFFFFF),
    Vector("two bytes, two of padding", b"\x01\x02", pkey=0x7FFF),
    Vector("three bytes, one of padding", b"abc", dqpn=0xFFFFFE, sqpn=0xABCDEF),
    Vector("four bytes, none", b"\x00\x00\x00\x00", psn=0x800000),
    Vector("solicited, with immediate data", b"immediate", solicited=1, imm=0xDEADBEEF),
    Vector("controlled Q_Key, to QP1", bytes(range(256)), dqpn=1, sqpn=1, qkey=0x80010000),
    Vector("traffic class, flow label, hop limit", b"masked", tc=0xA5, fl=0x12345, hlim=1),
    Vector("FECN and BECN", b"congested here", fecn=1, becn=1),
    Vector("another source port, as rxe has", b"x" * 60, sport=0xC0DE),
    Vector(
        "an IPoIB broadcast ARP",
        bytes.fromhex(
            "08060000"
            "0020080014040001"
            "00000012fe80000000000000505400fffe123456c0a80001"
            "0000000000000000000000000000000000000000c0a80002"
        ),
        dst="ff12:401b:ffff::ffff:ffff",
        dqpn=0xFFFFFF,
    ),
    Vector("IPv4", b"over IPv4", src="192.0.2.1", dst="198.51.100.7", tc=0xA5, hlim=7, id=0),
    Vector("IPv4, nothing", b"", src="10.0.0.1", dst="10.255.0.2", id=0),
]

# Packets as other adapters send them: the identification is in the ICRC.
OTHER_IDS = [
    Vector("", bytes(n), src="192.0.2.1", dst="192.0.2.2", id=number)
    for n, number in ((0, 1), (1, 0xFFFF), (256, 0x8000), (1024, 0x1234), (4096, 0xBEEF))
]


def c_bytes(data: bytes) -> str:
    lines = [data[i : i + 16] for i in range(0, len(data), 16)]
    return ",\n         ".join(", ".join(f"0x{b:02x}" for b in line) for line in lines)


def main() -> None:
    print("/* SPDX-License-Identifier: BSD-2-Clause */")
    print("/* Made by golden.py with scapy; do not edit. */")
    print("/* clang-format off */")
    print("static const struct golden golden[] = {")
    print_vectors(VECTORS)
    print("/* The ICRCs alone: of payloads of zeros. */")
    print("static const struct {")
    print("    uint16_t id;")
    print("    uint32_t payload_bytes, icrc;")
    print("} other_ids[] = {")
    for v in OTHER_IDS:
        icrc = int.from_bytes(v.packet()[-4:], "little")
        print(f"    {{0x{v.id:04x}, {len(v.payload)}, 0x{icrc:08x}}},")
    print("};")


def print_vectors(vectors: list[Vector]) -> None:
    for v in vectors:
        packet = v.packet()
        src, dst = v.gid(v.src), v.gid(v.dst)
        print(f'    {{"{v.name}", "{src}", "{dst}", {v.sport}, 0x{v.dqpn:06x}, 0x{v.sqpn:06x},')
        print(f"     0x{v.qkey:08x}, 0x{v.pkey:04x}, 0x{v.psn:06x}, {v.solicited}, ", end="")
        print(f"{int(v.imm is not None)}, 0x{v.imm or 0:08x}, {len(v.payload)}, {len(packet)},")
        print(f"        {{{c_bytes(packet)}}}}},")
    print("};")


if __name__ == "__main__":
    main()
