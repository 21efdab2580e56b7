# SPDX-License-Identifier: BSD-2-Clause
"""Seeds of fuzz_pump.c, fuzz_segment.c and fuzz_tap.c: the actions of hosts, guests and the link."""

from __future__ import annotations

import struct

from scapy.compat import raw
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.packet import Packet, Raw
from seed_parts import ARP, IPV4, IPV6, NO_VNET, ip, sized

TCP_ALL = 3  # the device's offloads: TCP and UDP
VNET_TCP4, VNET_UDP, VNET_TCP6 = 1, 5, 4
MULTIPATH, ASK = 4, 5  # kinds of a route


def tcp(seq: int, data: bytes, flags: str = "A") -> Packet:
    return TCP(sport=1000, dport=2000, seq=seq, ack=7, flags=flags) / Raw(data)


def udp(data: bytes) -> Packet:
    return UDP(sport=1000, dport=2000) / Raw(data)


def stretch(data: bytes) -> bytes:
    return struct.pack("<H", 0) + sized(data)


def datagram(ip_packet: bytes, encap: bytes = b"", flags: int = 1 | 32) -> bytes:
    kind = encap or (IPV4 if ip_packet[:1] < b"\x60" else IPV6)
    return struct.pack("<BB", 0, flags) + stretch(kind + ip_packet)


def over_connection(data: bytes, which: int = 0, flags: int = 0) -> bytes:
    return struct.pack("<BBB", 1, which, flags) + stretch(data)


def frame(data: bytes) -> bytes:
    return struct.pack("<BB", 2, 0) + stretch(data)


def step() -> bytes:
    return b"\x03"


def neighbour(which: int, how: int) -> bytes:
    return struct.pack("<BBB", 4, which, how)


def connection(which: int, how: int) -> bytes:
    return struct.pack("<BBB", 5, which, how)


def tx_mode(which: int, how: int) -> bytes:
    return struct.pack("<BBB", 6, which, how)


def engine(which: int, data: bytes) -> bytes:
    return struct.pack("<BB", 7, which) + stretch(data)


def faults(how: int, take: int = 0) -> bytes:
    return struct.pack("<BBB", 8, how, take)


def route(which: int, how: int) -> bytes:
    return struct.pack("<BBB", 9, which, how)


def own(which: int) -> bytes:
    return struct.pack("<BB", 11, which)


def guest(which: int, how: int, data: bytes | None = None) -> bytes:
    return struct.pack("<BBB", 12, which, how) + (b"" if data is None else stretch(data))


def ethernet(
    receiver: bytes, sender: int, kind: int, payload: bytes, vnet: bytes = NO_VNET
) -> bytes:
    """A frame of a guest; `receiver` is a MAC or the last byte of one."""
    macs = (b"\2\0\0\0\0" + receiver)[-6:] + b"\2\0\0\0\0" + bytes((sender,))
    return frame(macs + struct.pack("!H", kind) + vnet + payload)


def turned(version: int, packet: bytes) -> bytes:
    """A packet with its addresses exchanged, so that it comes from a guest; the checksums stay right."""
    at, size = (12, 4) if version == 4 else (8, 16)
    ends = packet[at : at + size], packet[at + size : at + 2 * size]
    return packet[:at] + ends[1] + ends[0] + packet[at + 2 * size :]


def guest_seeds() -> dict[str, bytes]:
    """Guests behind a TAP: what each of their frames and each packet for them meets."""
    hosts = guest(3, 3) + guest(4, 1 | 2 << 3) + guest(6, 1 | 2 << 3)  # host 2 of the link
    seeds: dict[str, bytes] = {}
    for version, kind in ((4, 0x0800), (6, 0x86DD)):
        high = 128 if version == 6 else 0
        address = high  # the one to which `ip` sends
        held = hosts + b"".join(guest(0, high | at | 64) for at in range(4))
        coming = ip(version, udp(b"data"))
        plain = turned(version, coming)
        whole = super_frame(version, bytes(1000), 300, is_tcp=True)
        whole = whole[:16] + turned(version, whole[16:])
        group = b"\1\0\x5e\1\2\3" if version == 4 else b"\x33\x33\0\0\0\1"
        run = [datagram(ip(version, tcp(1 + 100 * i, bytes(100)))) for i in range(4)]
        own = guest(2, 0) + guest(2, 1 << 2 | 1)
        seeds |= {
            f"guest_out{version}": b"\x0b"
            + held
            + own
            + ethernet(b"\2", 0, kind, plain)
            + ethernet(b"\2", 0, kind, whole[16:], whole[:16])
            + ethernet(b"\2", 1, kind, plain)
            + ethernet(b"\3", 0, kind, plain)
            + ethernet(group, 0, kind, plain)
            + ethernet(b"\xff" * 6, 0, kind, plain),
            f"guest_unknown{version}": b"\x0b" + hosts + ethernet(b"\2", 0, kind, plain) * 3,
            f"guest_loose{version}": b"\x0b"
            + hosts
            + guest(0, address)
            + ethernet(b"\2", 1, kind, plain),
            f"guest_in{version}": b"\x0b" + held + b"".join(run) + step(),
            f"guest_own{version}": b"\x0b"
            + hosts
            + own
            + datagram(coming, flags=1 | 64)
            + datagram(coming, flags=1 | 128)
            + guest(2, 128)
            + guest(5, 1)
            + guest(1, address)
            + datagram(coming, flags=1 | 64),
            f"guest_one_piece{version}": b"\x0f"
            + held
            + ethernet(b"\2", 0, kind, whole[16:], whole[:16]),
        }
    seeds |= {
        "guest_arp": b"\x0b" + hosts + ethernet(b"\xff" * 6, 0, 0x0806, bytes(28)),
        "guest_rarp": b"\x0b" + hosts + ethernet(b"\xff" * 6, 0, 0x8035, bytes(28)),
        "guest_vlan": b"\x0b" + hosts + ethernet(b"\2", 0, 0x8100, bytes(40)),
        "guest_other": b"\x0b" + hosts + ethernet(b"\2", 0, 0x88CC, bytes(40)) + frame(bytes(9)),
        "guest_deliver": b"\x0b"
        + hosts
        + guest(7, 0, bytes(60))
        + faults(8)
        + guest(7, 0, b"short"),
        "guest_none": b"\3" + hosts + guest(0, 1) + guest(1, 1) + guest(2, 0) + guest(5, 1),
    }
    return seeds


def arp_request(sender: int, target: int) -> bytes:
    """An ARP message of 10.0.0.`sender`, or a probe if that is 0, for 10.0.0.`target`."""
    hwaddr = bytes(20)
    owner = bytes((10, 0, 0, sender)) if sender else bytes(4)
    ends = hwaddr + owner + hwaddr + bytes((10, 0, 0, target))
    return datagram(struct.pack("!HHBBH", 32, 0x0800, 20, 4, 1) + ends, ARP)


def super_frame(version: int, data: bytes, size: int, *, is_tcp: bool) -> bytes:
    """[vnet 16][IP]: what a kernel with TSO or USO gives, the checksum that of the pseudo header."""
    start = 20 if version == 4 else 40
    packet = bytearray(ip(version, tcp(1, data, "PA") if is_tcp else udp(data)))
    offset, head = (16, 20) if is_tcp else (6, 8)
    at = start + offset
    packet[at : at + 2] = bytes(2)
    addresses = packet[12:20] if version == 4 else packet[8:40]
    pseudo = bytes(addresses) + struct.pack("!HH", 6 if is_tcp else 17, len(packet) - start)
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    packet[at : at + 2] = struct.pack("!H", total)
    kind = VNET_UDP if not is_tcp else VNET_TCP4 if version == 4 else VNET_TCP6
    vnet = struct.pack("<BBHHHH", 1, kind, start + head, size, start, offset)
    return vnet.ljust(16, b"\0") + bytes(packet)


def unsummed(version: int, data: bytes) -> bytes:
    """[vnet 16][IP]: one packet whose checksum is left to the receiver."""
    whole = super_frame(version, data, 1000, is_tcp=True)
    start = struct.unpack_from("<H", whole, 6)[0]
    return struct.pack("<BBHHHH", 1, 0, 0, 0, start, 16).ljust(16, b"\0") + whole[16:]


def with_encap(whole: bytes) -> bytes:
    """A message: the encapsulation header in the padding of the vnet header."""
    return whole[:12] + (IPV4 if whole[16] >> 4 == 4 else IPV6) + whole[16:]


def pump_seeds(golden: dict[str, bytes]) -> dict[str, bytes]:
    connected = connection(0, 1) + connection(1, 0) + tx_mode(0, 2) + tx_mode(9, 2)
    seeds: dict[str, bytes] = {}
    for version in (4, 6):
        run = [datagram(ip(version, tcp(1 + 100 * i, bytes(100)))) for i in range(6)]
        short = [
            datagram(ip(version, udp(data))) for data in (bytes(200), bytes(200), bytes(50), b"")
        ]
        last = datagram(ip(version, tcp(601, bytes(30), "PA")))
        odd = datagram(ip(version, tcp(1, b"", "S"))) + datagram(ip(version, tcp(1, b"x", "F")))
        flows = [
            datagram(ip(version, TCP(sport=i, dport=2, flags="A") / Raw(b"x" * 9)))
            for i in range(10)
        ]
        plain = NO_VNET + ip(version, udp(b"data"))
        supers = [
            super_frame(version, bytes(1000), 300, is_tcp=True),
            super_frame(version, bytes(1000), 300, is_tcp=False),
            super_frame(version, bytes(3000), 3000, is_tcp=True),
        ]
        first = bytes([TCP_ALL])
        seeds |= {
            f"merge_tcp{version}": first + b"".join(run) + last + step(),
            f"merge_udp{version}": first + b"".join(short) + step(),
            f"merge_odd{version}": first + run[0] + odd + run[1] + run[3] + step(),
            f"merge_flows{version}": first + b"".join(flows) + flows[0] + step(),
            f"no_offload{version}": b"\0" + b"".join(run) + step(),
            f"only_udp{version}": b"\2" + b"".join(run + short) + step(),
            f"out_plain{version}": first + frame(plain) + frame(NO_VNET + bytes(9)),
            f"out_super{version}": first + b"".join(map(frame, supers)),
            f"out_connected{version}": first + connected + b"".join(map(frame, [plain, *supers])),
            f"out_held{version}": first + connected + faults(16) + frame(plain) * 9 + faults(0),
            f"out_failed{version}": first
            + connected
            + faults(32)
            + frame(plain)
            + frame(supers[0]),
            f"out_cut_failed{version}": first
            + connected
            + tx_mode(0, 2 | 8)
            + faults(16 | 2, 1)
            + frame(super_frame(version, bytes(30000), 300, is_tcp=True))
            + faults(32)
            + step(),
            f"out_captured{version}": first
            + engine(2 | 128, b"")
            + connected
            + frame(plain)
            + frame(supers[0])
            + tx_mode(1, 1)
            + frame(plain.replace(b"\x0a\0\0\1", b"\x0a\0\0\2", 1)),
            f"out_stalled{version}": first
            + connected
            + tx_mode(0, 2 | 8)
            + faults(16)
            + frame(super_frame(version, bytes(60000), 300, is_tcp=True))
            + step() * 9
            + faults(16 | 32)
            + connection(0, 2)
            + step(),
            f"out_refused{version}": first + connected + faults(1) + engine(0, plain[12:]) + step(),
            f"out_broken{version}": first + faults(1) + frame(plain) + frame(supers[0]) + step(),
            f"out_partly{version}": first + faults(2, 2) + frame(supers[0]) + step(),
            f"in_connected{version}": first
            + connected
            + b"".join(over_connection(with_encap(it)) for it in [plain, *supers])
            + over_connection(with_encap(unsummed(version, b"data")))
            + over_connection((IPV4 if version == 4 else IPV6) + plain[16:], 1),
            f"in_unsummed{version}": first
            + connected
            + over_connection(with_encap(unsummed(version, bytes(5000))))
            + over_connection(with_encap(unsummed(version, b"data")), 0, 32) * 3
            + step(),
            f"engine{version}": first
            + engine(2 | 128, b"")
            + engine(0, (IPV4 if version == 4 else IPV6) + plain[16:])
            + engine(1, plain[16:])
            + engine(3, b"")
            + datagram(plain[16:])
            + step(),
            f"routes{version}": first
            + b"".join(route(which + (64 if version == 6 else 0), how) for which, how in ROUTES)
            + frame(plain) * 2
            + frame(supers[0]),
            f"neighbours{version}": first
            + b"".join(
                neighbour(128 if version == 6 else 0, how) + frame(plain) + frame(supers[0])
                for how in (1, 2, 3, 4, 64, 32, 128)
            ),
        }
    for which, version in ((0, 4), (3, 4), (64, 6), (67, 6)):
        seeds[f"multipath_{which}"] = flows_by_routes(version, which, MULTIPATH, ())
        every = tuple(kind | 8 for kind in range(6))
        seeds[f"asked_{which}"] = flows_by_routes(version, which, ASK | 7 << 3, every)
        seeds[f"asked_all_{which}"] = flows_by_routes(version, which, ASK, (MULTIPATH | 8, 1))
    plain = NO_VNET + ip(4, udp(b"data"))
    cut_in_two = super_frame(4, bytes(1000), 600, is_tcp=True)
    seeds |= {
        "in_failed": bytes([TCP_ALL])
        + datagram(plain[16:], flags=2)
        + datagram(plain[16:], flags=1 | 4)
        + struct.pack("<BB", 0, 16)
        + stretch(b"short")
        + datagram(b"\x45", IPV4)
        + datagram(b"\x60", IPV6)
        + datagram(b"x", b"\x12\x34\0\0")
        + step(),
        "in_full": bytes([TCP_ALL]) + faults(8) + datagram(plain[16:]) + step(),
        "in_queued": bytes([TCP_ALL]) + faults(4) + datagram(plain[16:]) * 7 + step() + step(),
        "in_short_message": bytes([TCP_ALL])
        + connection(0, 1)
        + over_connection(b"short")
        + over_connection(NO_VNET[:12] + ARP + bytes(60))
        + over_connection(with_encap(b"\x01\x09" + plain[2:]))
        + over_connection(with_encap(plain), 128),
        "out_malformed": bytes([TCP_ALL])
        + frame(b"short")
        + frame(NO_VNET)
        + frame(NO_VNET + b"\x45" + bytes(19))
        + frame(NO_VNET + b"\x60" + bytes(9))
        + frame(NO_VNET + ip(6, udp(b"x"))[:24] + bytes(10) + b"\xff\xff\x0a\0\0\1" + bytes(8))
        + frame(NO_VNET + b"\x15" + bytes(30))
        + frame(b"\x01\0\0\0\0\0\xff\xff".ljust(16, b"\0") + plain[16:]),
        "out_bad_super": bytes([TCP_ALL]) + frame(b"\0\x01" + plain[2:]),
        "out_too_big": bytes([TCP_ALL])
        + struct.pack("<BBH", 2, 1, 65535)
        + sized(plain)
        + struct.pack("<BBH", 2, 1, 5000)
        + sized(plain),
        "out_one_piece": bytes([TCP_ALL | 4]) + frame(cut_in_two),
        "device_failed": bytes([TCP_ALL]) + faults(64) + frame(plain) + faults(128) + frame(plain),
    }
    # The neighbours are 10.0.0.1 and the like; we take their addresses for ours here.
    question = struct.pack("!HHBBH", 32, 0x0800, 20, 4, 1) + bytes(44) + b"\x0a\0\0\x63"
    seeds |= {
        "own_arp": bytes([TCP_ALL])
        + own(0)
        + arp_request(200, 100)
        + arp_request(200, 1)
        + arp_request(2, 100)
        + arp_request(0, 2)
        + own(128)
        + arp_request(200, 1),
        "own_answered": bytes([TCP_ALL])
        + own(0)
        + engine(0, ARP + question)
        + arp_request(0x63, 1) * 17,
        "own_flood": bytes([TCP_ALL]) + own(0) + arp_request(200, 1) * 190,
    }
    for name, data in golden.items():
        kind = IPV6 if name.startswith(("nd", "mld", "ip6")) else ARP if "arp" in name else IPV4
        as_packet = IPV6 if data[:1] >= b"\x60" else IPV4
        seeds[f"golden_{name}"] = (
            bytes([TCP_ALL])
            + datagram(data, kind)
            + datagram(data, as_packet)
            + datagram(b"", data[:4])
            + step()
            + frame(NO_VNET + data)
        )
    return seeds


# A route, and then packets: prefixes of 32 or 128 bits come first in a look-up.
def flows_by_routes(version: int, which: int, how: int, answers: tuple[int, ...]) -> bytes:
    """A route of this kind, packets of different flows to it, and answers about them."""
    packets = [
        ip(version, UDP(sport=port, dport=2) / Raw(b"data")) for port in (1, 2, 3, 4, 5, 6)
    ] + [ip(version, tcp(1, b"x"))]
    asked = b"".join(
        struct.pack("<BBB", 10, which, kind) + stretch(packets[0]) + frame(NO_VNET + packets[1])
        for kind in answers
    )
    sent = b"".join(frame(NO_VNET + each) for each in packets)
    big = frame(super_frame(version, bytes(1000), 300, is_tcp=True))
    return bytes([TCP_ALL]) + route(which, how) + sent + asked + sent + big


ROUTES = [(0, 0), (1, 1), (2, 2), (4, 3), (1, 128), (33, 4)]


# Segmentation


def segment_seeds() -> dict[str, bytes]:
    seeds = {}
    for version in (4, 6):
        for is_tcp in (False, True):
            whole = super_frame(version, bytes(range(250)) * 12, 700, is_tcp=is_tcp)
            name = f"{'tcp' if is_tcp else 'udp'}{version}"
            for mtu in (1500, 500, 60):
                seeds[f"{name}_{mtu}"] = struct.pack("<H", mtu) + whole
    behind = raw(IPv6(src="fd00::9", dst="fd00::1") / IPv6ExtHdrDestOpt() / tcp(1, bytes(900)))
    vnet = struct.pack("<BBHHHH", 1, VNET_TCP6, 68, 300, 48, 16).ljust(16, b"\0")
    options = raw(IP(dst="10.0.0.1", options=b"\1" * 8) / tcp(1, bytes(900)))
    options_vnet = struct.pack("<BBHHHH", 1, VNET_TCP4, 48, 300, 28, 16).ljust(16, b"\0")
    return seeds | {
        "extension": struct.pack("<H", 1000) + vnet + behind,
        "options": struct.pack("<H", 1000) + options_vnet + options,
        "empty": struct.pack("<H", 1500),
    }


# A TAP with VLANs

TAGGED = 1


def guest_frame(data: bytes, flags: int = 0) -> bytes:
    return struct.pack("<BB", 1, flags) + sized(data)


def vlan(which: int, *, gone: bool = False) -> bytes:
    return struct.pack("<BB", 3, which | gone << 6)


def tap_seeds() -> dict[str, bytes]:
    macs = bytes.fromhex("020000000009 020000000007")
    vnet = struct.pack("<BBHHHH", 1, 0, 42, 0, 34, 6).ljust(16, b"\0")
    packet = ip(4, UDP(sport=1, dport=2))
    plain = vnet + macs + b"\x08\0" + packet
    tagged = vnet + macs + bytes(4) + b"\x08\0" + packet
    twice = vnet + macs + bytes(4) + bytes.fromhex("81000002") + b"\x08\0" + packet
    all_vlans = b"".join(vlan(which) for which in range(3))
    return {
        "plain": guest_frame(plain),
        "vlans": all_vlans + b"".join(guest_frame(tagged, TAGGED | n << 1) for n in range(8)),
        "vlan_gone": all_vlans + vlan(0, gone=True) + guest_frame(tagged, TAGGED | 1 << 1),
        "tagged_twice": all_vlans + guest_frame(twice, TAGGED | 1 << 1),
        "priority_in_vlan": all_vlans
        + guest_frame(twice.replace(b"\x81\0\0\x02", b"\x81\0\x60\0"), TAGGED | 1 << 1),
        "short": b"".join(guest_frame(tagged[:n], TAGGED) for n in (1, 16, 29, 30, 32, 34, 35)),
        "pump_behind": b"\x0f" + all_vlans + guest_frame(tagged, TAGGED | 1 << 1),
    }
