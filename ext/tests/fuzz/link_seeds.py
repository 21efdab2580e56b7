# SPDX-License-Identifier: BSD-2-Clause
"""Seeds of fuzz_unicast.c, fuzz_rails.c and fuzz_mesh.c: the actions of a link of peers."""

from __future__ import annotations

import struct

from scapy.layers.inet import UDP
from seed_parts import IPV4, ip, sized

# Links of peers: the first byte of an action is its number

ADD, REMOVE, TELL, TELL_MANY = (how << 6 for how in range(4))
BROADCAST_GROUP, A_GROUP = 128, 129


def peer_of_link(host: int, how: int = ADD, groups: bytes = b"") -> bytes:
    return struct.pack("<BB", 0, how | host) + sized(groups)


def heard_of_link(host: int, data: bytes) -> bytes:
    return struct.pack("<BB", 2, host) + sized(data)


def sent_by_link(to: int, count: int) -> bytes:
    return struct.pack("<BBB", 4, to, count)


def unicast_seeds(golden: dict[str, bytes]) -> dict[str, bytes]:
    packets = [IPV4 + ip(4, UDP(sport=1, dport=2)), golden["encap.arp"], bytes(3)]
    many = b"".join(peer_of_link(host) for host in range(1, 6))
    known = many + b"".join(peer_of_link(host, TELL, b"\1\2\3") for host in range(1, 6))
    return {
        "peers_and_strangers": b"".join(
            heard_of_link(host, data) for host in (1, 2) for data in packets
        )
        + peer_of_link(1)
        + b"".join(heard_of_link(host, data) for host in (1, 2) for data in packets)
        + b"\6",
        "groups": known + sent_by_link(BROADCAST_GROUP, 20) + sent_by_link(A_GROUP, 9),
        "unicast": known + b"".join(sent_by_link(host, 20) for host in range(6)),
        "too_many_groups": peer_of_link(2) + peer_of_link(2, TELL_MANY) + sent_by_link(A_GROUP, 3),
        "one_group": known + b"\1\1\5\1" + b"\1\1\5\0" + b"\1\2\2\0" + sent_by_link(A_GROUP, 3),
        "broken": known + sent_by_link(A_GROUP, 3) + b"\5\2" + sent_by_link(A_GROUP, 3),
        "leave_and_return": known
        + sent_by_link(BROADCAST_GROUP, 2)
        + peer_of_link(1, REMOVE)
        + sent_by_link(1, 2)
        + peer_of_link(1),
    }


# Rails: the first byte of an action is its number; a place is a host, and 64 for the second wire

SECOND_WIRE, DOWN = 64, 128
PROOF, TO_ALL, WRONG = 1, 2, 0x84  # a bit of the code


def hello_of_rails(place: int, how: int, *named: int, rail: int = 0, active: int = 0) -> bytes:
    fields = len(named) | rail << 4 | active << 6
    return struct.pack("<BBBB", 1, place - 1, fields, how) + bytes(named)


def heard_of_rails(place: int, data: bytes) -> bytes:
    return struct.pack("<BB", 0, place - 1) + sized(data)


def sent_by_rails(place: int, count: int, flow: int) -> bytes:
    return struct.pack("<BBBB", 3, place, count, flow)


def met_on_rails(host: int) -> bytes:
    """Make the host a peer on both wires."""
    places, poll = (host, host | SECOND_WIRE), b"\7"
    return b"".join(
        hello_of_rails(place, how, *places, rail=rail) + poll
        for rail, place in enumerate(places)
        for how in (TO_ALL, PROOF)
    )


def rails_seeds(golden: dict[str, bytes]) -> dict[str, bytes]:
    poll, second = b"\7", b"\6\x14"
    known = b"".join(met_on_rails(host) for host in range(1, 4))
    return {
        "datagrams": heard_of_rails(1, IPV4 + ip(4, UDP(sport=1, dport=2)))
        + heard_of_rails(1 | SECOND_WIRE, golden["encap.arp"])
        + heard_of_rails(1 | DOWN, golden["encap.arp"])  # to all
        + poll,
        "peers": known + second + sent_by_rails(1, 20, 0) + sent_by_rails(2, 20, 7),
        "full": known + sent_by_rails(1, 9, 0) + met_on_rails(4) + sent_by_rails(4, 9, 1),
        "time": known + (second + poll) * 12 + met_on_rails(1),
        "forged": hello_of_rails(1, 0, 1, 65)
        + poll
        + hello_of_rails(1, PROOF | WRONG, 1, 65)
        + poll
        + known
        + hello_of_rails(1, PROOF | WRONG, 1, 66)
        + poll
        + hello_of_rails(1, 0, 1),
        "address_of_another": known
        + hello_of_rails(1, PROOF, 1, 2 | SECOND_WIRE)
        + poll
        + hello_of_rails(4, 0, 4, 2)
        + poll
        + hello_of_rails(4, PROOF, 4, 2 | SECOND_WIRE)
        + second
        + poll,
        "rail_down": known
        + hello_of_rails(1, PROOF, 1, 65 | DOWN)
        + poll
        + b"\4\2\1"
        + poll
        + sent_by_rails(1, 20, 3)
        + b"\4\3\0"
        + poll,
        "broken": known + b"\5\0\0" + sent_by_rails(1, 9, 0) + b"\5\1\2" + sent_by_rails(2, 9, 0),
    }


def mesh_peer(host: int, how: int = 96) -> bytes:
    return struct.pack("<BBB", 0, host, how)


def heard_of_mesh(host: int, data: bytes) -> bytes:
    return struct.pack("<BB", 1, host) + sized(data)


def said_to_mesh(which: int, data: bytes) -> bytes:
    return struct.pack("<BB", 4, which) + sized(data)


def mesh_control(data: bytes) -> bytes:
    return b"\x88\xb5\0\0" + data


def mesh_seeds(golden: dict[str, bytes]) -> dict[str, bytes]:
    met = b"".join(mesh_peer(host) * 2 for host in range(3))
    window = mesh_control(b"\5\0\0\0" + (64).to_bytes(4, "big"))
    packet = IPV4 + ip(4, UDP(sport=1, dport=2))
    to_all, pump, done = struct.pack("<BBB", 3, 128, 9), b"\7", b"\5\xff"
    return {
        "messages": met
        + heard_of_mesh(0, packet) * 3
        + heard_of_mesh(1, golden["encap.arp"])
        + pump,
        "early": mesh_peer(0) + heard_of_mesh(0, packet) + pump + mesh_peer(0),
        "controls": met
        + (heard_of_mesh(0, mesh_control(b"\1\0\0\0")) + pump) * 45
        + heard_of_mesh(0, mesh_control(b"") + bytes(2044)),
        "windows": met + heard_of_mesh(0, window) + heard_of_mesh(0, window[:9]) + pump + done,
        "no_window": met + heard_of_mesh(2, packet) * 45,
        "sends": met + struct.pack("<BBB", 3, 0, 39) + to_all + done + pump,
        "groups": met + said_to_mesh(128, b"\1\2") + said_to_mesh(64, b"\1") + to_all + done,
        "too_much_to_say": met + said_to_mesh(0, b"\1\0\0\0") * 100 + pump,
        "failed": met + to_all + b"\6\0" + pump + to_all + b"\6\1" + pump,
        "removed": met + to_all + mesh_peer(0, 128) + mesh_peer(0) + mesh_peer(0) + pump,
    }
