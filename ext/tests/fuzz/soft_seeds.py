# SPDX-License-Identifier: BSD-2-Clause
"""Seeds of fuzz_soft.c: the actions of the peers of the built-in HCA."""

from __future__ import annotations

import struct

from seed_parts import sized

UD, GSI, RC_OWN, RC_SHARED, RC_HALF, GROUP, RAW = range(7)
PSN_RELATIVE, STRANGER, TO_GROUP, BAD_ICRC, RAW_KEYS, BATCHED = (1 << bit for bit in range(6))
FIRST, MIDDLE, LAST, LAST_IMM, ONLY, ONLY_IMM = range(6)
WRITE_FIRST, READ, ACK, COMPARE_SWAP, SEND_INVALIDATE = 0x06, 0x0C, 0x11, 0x13, 0x17
UD_SEND, UD_SEND_IMM = 0x64, 0x65
RC_MTU = 1024


def packet(
    which: int, opcode: int, rest: bytes, flags: int = PSN_RELATIVE, distance: int = 0
) -> bytes:
    pad = -len(rest) % 4
    bth = struct.pack("!BBHII", opcode, pad << 4, 0xFFFF, 0, 1 << 31)
    header = struct.pack("<BBBb", 0, which, flags, distance)
    return header + sized(bth + rest + bytes(pad))


def ud(payload: bytes, which: int = UD, flags: int = 0, opcode: int = UD_SEND) -> bytes:
    immediate = b"\xde\xad\xbe\xef" if opcode == UD_SEND_IMM else b""
    return packet(which, opcode, struct.pack("!II", 0, 0x1234) + immediate + payload, flags)


def ack(syndrome: int, distance: int, which: int = RC_OWN) -> bytes:
    return packet(which, ACK, struct.pack("!I", syndrome << 24), distance=distance)


def clock(milliseconds: int) -> bytes:
    return struct.pack("<BH", 1, milliseconds * 20)


def send(which: int, length: int) -> bytes:
    return struct.pack("<BBH", 2, which, length)


def poll(which: int) -> bytes:
    return struct.pack("<BB", 3, which)


def stall(count: int) -> bytes:
    return struct.pack("<BB", 4, count)


def walk(which: int, *, anew: bool) -> bytes:
    return struct.pack("<BBB", 5, which - RC_OWN, anew)


def message(which: int, packets: int) -> bytes:
    """Return a message of that many packets over a connection."""
    middle = packet(which, MIDDLE, bytes(RC_MTU)) * (packets - 2)
    return packet(which, FIRST, bytes(RC_MTU)) + middle + packet(which, LAST, b"the end")


def soft_seeds(golden: dict[str, bytes]) -> dict[str, bytes]:
    full = packet(RC_OWN, ONLY, b"x") * 5
    seeds = {
        "ud": ud(b"hello") + ud(b"", opcode=UD_SEND_IMM) + ud(bytes(2048)) + ud(bytes(2052)),
        "ud_group": ud(b"all", GROUP, TO_GROUP) + ud(b"all", UD, TO_GROUP) + ud(b"one", GROUP),
        "ud_refused": ud(b"x", flags=BAD_ICRC)
        + ud(b"x", flags=RAW_KEYS)
        + ud(b"x", RAW)
        + packet(UD, 0xFF, bytes(8))
        + packet(UD, ONLY, bytes(8))
        + struct.pack("<BBBb", 0, UD, 0, 0)
        + sized(b"short"),
        "ud_no_buffer": ud(b"x") * 5 + poll(1) + ud(b"x", flags=BATCHED) * 9 + poll(255),
        "gsi": ud(golden["mad.header"][:232].ljust(256, b"\0"), GSI) + poll(2),
        "rc_messages": message(RC_OWN, 2) + message(RC_SHARED, 3) + message(RC_HALF, 2) + poll(255),
        "rc_small": packet(RC_OWN, ONLY, b"x")
        + packet(RC_OWN, ONLY_IMM, b"\0\0\0\1y")
        + packet(RC_OWN, ONLY, b"")
        + poll(255),
        "rc_order": packet(RC_OWN, ONLY, b"x", distance=2)
        + packet(RC_OWN, ONLY, b"x", distance=2)
        + packet(RC_OWN, ONLY, b"x") * 2
        + packet(RC_OWN, ONLY, b"x", distance=-1),
        "rc_not_ready": full + poll(4) + full + clock(5),
        "rc_too_long": message(RC_OWN, 5),
        "rc_refused": packet(RC_OWN, LAST, b"x")
        + packet(RC_SHARED, WRITE_FIRST, bytes(16 + RC_MTU))
        + packet(RC_HALF, READ, bytes(16)),
        "rc_atomic": packet(RC_OWN, COMPARE_SWAP, bytes(28))
        + packet(RC_SHARED, SEND_INVALIDATE, bytes(8)),
        "rc_middle": packet(RC_OWN, FIRST, bytes(RC_MTU)) + packet(RC_OWN, FIRST, bytes(RC_MTU)),
        "rc_short_middle": packet(RC_OWN, FIRST, bytes(100)),
        "rc_last_empty": packet(RC_OWN, FIRST, bytes(RC_MTU)) + packet(RC_OWN, LAST, b""),
        "rc_last_imm": packet(RC_OWN, FIRST, bytes(RC_MTU))
        + packet(RC_OWN, LAST_IMM, b"\0\0\0\1z")
        + poll(255),
        "rc_stranger": packet(RC_OWN, ONLY, b"x", STRANGER | PSN_RELATIVE),
        "rc_batch": packet(RC_OWN, ONLY, b"x", PSN_RELATIVE | BATCHED) * 12,
        "rc_send": send(RC_OWN, 3000) + ack(0x1F, 0) + ack(0x1F, 1) + ack(0x1F, 2) + poll(255),
        "rc_send_many": send(RC_OWN, 5000) * 20 + ack(0x1F, 40) + poll(255) + ack(0x1F, 60),
        "rc_nak_sequence": send(RC_OWN, 5000) + ack(0x60, 2) + ack(0x1F, 4) + poll(255),
        "rc_nak_invalid": send(RC_OWN, 500) * 3 + ack(0x61, 1) + poll(255),
        "rc_nak_access": send(RC_SHARED, 500) + ack(0x62, 0, RC_SHARED) + poll(255),
        "rc_nak_operation": send(RC_OWN, 500) + ack(0x63, 0) + poll(255),
        "rc_nak_odd": send(RC_OWN, 500) + ack(0x7F, 0) + ack(0x45, 0) + poll(255),
        "rc_rnr": send(RC_OWN, 500) + (ack(0x21, 0) + clock(50)) * 6 + poll(255),
        "rc_window": send(RC_OWN, 500) + ack(0x1F, 100) + ack(0x1F, -100) + poll(255),
        "rc_timeout": send(RC_OWN, 2000) + clock(100) * 8 + poll(255),
        "rc_timeout_answered": send(RC_OWN, 2000)
        + clock(10)
        + ack(0x1F, 0)
        + clock(10)
        + ack(31, 0),
        "rc_stalled": stall(3) + send(RC_OWN, 5000) + packet(RC_OWN, ONLY, b"x") + clock(2) * 4,
        "rc_ended": send(RC_OWN, 5000)
        + packet(RC_OWN, FIRST, bytes(RC_MTU))
        + walk(RC_OWN, anew=False)
        + poll(255)
        + packet(RC_OWN, ONLY, b"x"),
        "rc_anew": message(RC_SHARED, 2) + walk(RC_SHARED, anew=True) + message(RC_SHARED, 2),
        "ud_send": send(UD, 100) + send(UD, 5000) + send(GSI, 256) + stall(2) + send(UD, 3) * 3,
        "cq_full": send(UD, 8) * 40 + packet(RC_OWN, ONLY, b"x") + ud(b"x") + poll(255) * 8,
    }
    return seeds | {f"golden_{name}": ud(data) + ud(data, GSI) for name, data in golden.items()}
