# SPDX-License-Identifier: BSD-2-Clause
"""The InfiniBand switch of a lab with a subnet manager: the wire's hub, and what manages it.

Machine N hangs on port N. On the wire a packet that is routed by LID alone goes to the IPv6 group
ff12::4c49:4400:LID, with its source LID as the UDP source port (kernel/sources/.../rxe_ib.c). The switch
forwards such packets by its linear forwarding table; those for the permissive LID are directed routes, of
which it is a hop. Every other frame goes to all machines: multicast tables are kept, and forward nothing.
A machine's link is up while its port is in the group of the permissive LID.

    switch = Switch(ports=3)
    for port, frame in switch.receive(1, frame):
        ...
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from ipoibu.lab.machines.smp import (
    BAD_ATTRIBUTE,
    BAD_VALUE,
    DIRECTED,
    Attribute,
    Method,
    PortState,
    Smp,
)

GUID: Final = 0xFFFE00FF00
DESCRIPTION: Final = b"lab switch"
PERMISSIVE: Final = 0xFFFF
NO_PORT: Final = 0xFF  # in a forwarding table

_MAC: Final = bytes.fromhex("02000000ff00")
_GID: Final = bytes.fromhex("fe80000000000000") + GUID.to_bytes(8)
_GROUP: Final = bytes.fromhex("ff12 0000 0000 0000 0000 4c49 4400")  # then the LID
_REPORTS_MAC: Final = bytes.fromhex("333300000016")  # of ff02::16: MLDv2 reports
_MLD2_REPORT: Final = 143
_JOINS: Final = (2, 4)  # record types: mode is exclude, change to exclude
_LEAVES: Final = 3  # change to include: nothing
_LIDS: Final = 0xC000
_BLOCK: Final = 64
_MULTICAST_BLOCKS: Final = 32  # of 32 groups each
_PKEYS: Final = 32
_UD_SEND: Final = 0x64
_GSI_QKEY: Final = 0x80010000
_HEADERS: Final = 82  # Ethernet, IPv6, UDP, BTH, DETH
_MAD: Final = slice(_HEADERS, _HEADERS + 256)
_ROCE_PORT: Final = 4791
_PERFORMANCE: Final = 0x04
_TRAP_LINK_STATE: Final = 128

Delivery = tuple[int, bytes]  # the port, and a frame for it


class Switch:
    """A switch with so many ports; any thread may call it, one for each port."""

    def __init__(self, ports: int) -> None:
        self._numbers: Final = range(1, ports + 1)
        self._others = {port: [it for it in self._numbers if it != port] for port in self._numbers}
        self._lock = threading.Lock()
        self._lid = 0
        self._info = [bytearray(_BLOCK) for _ in range(ports + 1)]  # of ports, as the SM wants it
        self._states = [PortState.ACTIVE] + [PortState.DOWN] * ports
        self._pkeys = [bytearray(b"\xff\xff" + bytes(2 * _PKEYS - 2)) for _ in range(ports + 1)]
        self._forwarding = bytearray([NO_PORT]) * _LIDS
        self._multicast = [bytes(_BLOCK)] * _MULTICAST_BLOCKS
        self._switch_info = bytearray(_BLOCK)
        self._has_changed = False  # a port's state, since the SM has asked
        self._traps = 0
        # Frames and bytes from port i to port j, counted by the thread of i alone.
        self._frames = [[0] * (ports + 1) for _ in range(ports + 1)]
        self._bytes = [[0] * (ports + 1) for _ in range(ports + 1)]
        self._answers: Final[dict[int, Callable[[Smp, int], bytes | int]]] = {
            Attribute.NODE_DESCRIPTION: lambda smp, port: DESCRIPTION,
            Attribute.NODE_INFO: self._node_info,
            Attribute.SWITCH_INFO: self._answer_switch_info,
            Attribute.GUID_INFO: lambda smp, port: GUID.to_bytes(8),
            Attribute.PORT_INFO: self._answer_port_info,
            Attribute.PKEY_TABLE: self._answer_pkeys,
            Attribute.LINEAR_FORWARDING: self._answer_forwarding,
            Attribute.MULTICAST_FORWARDING: self._answer_multicast,
        }

    def receive(self, port: int, frame: bytes) -> list[Delivery]:
        """Return what to send for a frame from the machine on `port`, and to which ports."""
        deliveries = self._deliveries(port, frame)
        for to, sent in deliveries:
            self._frames[port][to] += 1
            self._bytes[port][to] += len(sent)
        return deliveries

    def _deliveries(self, port: int, frame: bytes) -> list[Delivery]:
        if frame[38:52] == _GROUP and len(frame) > _HEADERS:
            lid = int.from_bytes(frame[52:54])
            if lid in (PERMISSIVE, self._lid):
                with self._lock:
                    return list(self._manage_untrusted(port, frame))
            to = self._forwarding[lid] if lid < _LIDS else NO_PORT
            return [(to, frame)] if to in self._numbers and to != port else []
        deliveries = [(other, frame) for other in self._others[port]]
        if frame[:6] == _REPORTS_MAC:
            with self._lock:
                deliveries += self._read_reports_untrusted(port, frame)
        return deliveries

    # ---- management datagrams

    def _manage_untrusted(self, port: int, frame: bytes) -> Iterator[Delivery]:
        """Yield the answer to a datagram for the switch, or the datagram for the next hop."""
        mad = bytearray(frame[_MAD])
        if frame[62] != _UD_SEND or len(mad) < _MAD.stop - _MAD.start:
            return
        slid = int.from_bytes(frame[54:56])
        qpn = int.from_bytes(frame[67:70])
        if qpn == 1 and mad[1] == _PERFORMANCE and slid != PERMISSIVE:
            answer = self._count(mad)
            if answer is not None:
                source = int.from_bytes(frame[79:82])
                yield port, self._frame(answer, slid, 1, source, frame[64:66])
        elif qpn == 0:
            smp = Smp(mad)
            if smp.mad_class == DIRECTED:
                to = smp.hop_untrusted(port, self._answer)
                if to in self._numbers:
                    yield to, self._frame(smp.data, PERMISSIVE)
            elif slid != PERMISSIVE and self._answer(smp, port):
                yield port, self._frame(smp.data, slid)

    def _frame(
        self,
        mad: bytes | bytearray,
        lid: int,
        qpn: int = 0,
        to_qpn: int = 0,
        pkey: bytes = b"\xff\xff",
    ) -> bytes:
        """Return the frame of a datagram to `lid`."""
        group = _GROUP + lid.to_bytes(2)
        source = PERMISSIVE if lid == PERMISSIVE else self._lid
        bth = struct.pack(">BB2sII", _UD_SEND, 0, pkey, to_qpn, 0)
        deth = struct.pack(">II", _GSI_QKEY if qpn else 0, qpn)
        length = 8 + len(bth) + len(deth) + len(mad) + 4
        ip = struct.pack(">IHBB", 0x60000000, length, 17, 64) + _GID + group
        udp = struct.pack(">HHHH", source, _ROCE_PORT, length, 0)
        packet = ip + udp + bth + deth + mad
        ethernet = b"\x33\x33" + group[12:] + _MAC + b"\x86\xdd"
        return ethernet + packet + icrc(packet)

    def _answer(self, smp: Smp, port: int) -> bool:
        """Turn a question to the switch into its answer; return whether there is one."""
        if smp.method not in (Method.GET, Method.SET) or smp.attribute == Attribute.SM_INFO:
            return False
        answer = self._answers.get(smp.attribute)
        smp.answer(BAD_ATTRIBUTE if answer is None else answer(smp, port))
        return True

    # ---- attributes

    def _node_info(self, smp: Smp, port: int) -> bytes:
        guids = GUID.to_bytes(8) * 3
        ports = len(self._numbers)
        return struct.pack(">BBBB24sHHIB3x", 1, 1, 2, ports, guids, _PKEYS, 0, 0, port)

    def _answer_switch_info(self, smp: Smp, port: int) -> bytes:
        if smp.is_set:
            self._switch_info[:] = smp.value
            if smp.value[11] & 0x04:  # the SM has seen it
                self._has_changed = False
        info = bytearray(self._switch_info)
        struct.pack_into(">HHH", info, 0, _LIDS - 1, 0, 32 * _MULTICAST_BLOCKS)
        info[11] = info[11] & 0xF8 | (0x04 if self._has_changed else 0)
        struct.pack_into(">HHBx", info, 12, 0, _PKEYS, 0)
        return bytes(info)

    def _answer_port_info(self, smp: Smp, port: int) -> bytes | int:
        number = smp.modifier
        if number > len(self._numbers):
            return BAD_VALUE
        if smp.is_set:
            self._set_port_info(number, smp.value)
        info = bytearray(self._info[number])
        state = self._states[number]
        lid, capabilities = (self._lid, 0x0000000C) if number == 0 else (0, 0)  # notices, traps
        struct.pack_into(">Q", info, 8, 0xFE80000000000000)
        struct.pack_into(">H2xIH", info, 16, lid, capabilities, 0)
        linked = 2 if state == PortState.DOWN else 5
        info[28:34] = bytes((port, 3, 3, 2, 0x10 | state, linked << 4 | 2))  # 4X SDR
        info[34] &= 0xC0
        info[35] = 0x11
        info[36] = info[36] or 0x50  # 4096 bytes, until the SM has another wish
        info[37] = 0x10
        info[40:42] = bytes((0, 5))
        info[43] = 0x10 | info[43] & 0x0F
        info[50] = 1 if number == 0 else 0
        info[51] &= 0x1F
        info[52] = 18
        return bytes(info)

    def _set_port_info(self, number: int, wanted: bytes) -> None:
        self._info[number][:] = wanted
        if number == 0:
            self._lid = int.from_bytes(wanted[16:18])
            return
        state, now = wanted[32] & 0x0F, self._states[number]
        if now == PortState.DOWN or state == PortState.NO_CHANGE:
            return
        if state == PortState.DOWN:
            self._states[number] = PortState.INIT  # the link is trained anew
        elif state == now + 1:
            self._states[number] = PortState(state)

    def _answer_pkeys(self, smp: Smp, port: int) -> bytes | int:
        number, block = smp.modifier >> 16, smp.modifier & 0xFFFF
        if number > len(self._numbers) or block:
            return BAD_VALUE
        if smp.is_set:
            self._pkeys[number][:] = smp.value
        return bytes(self._pkeys[number])

    def _answer_forwarding(self, smp: Smp, port: int) -> bytes | int:
        first = smp.modifier * _BLOCK
        if first >= _LIDS:
            return BAD_VALUE
        place = slice(first, first + _BLOCK)
        if smp.is_set:
            self._forwarding[place] = smp.value
        return bytes(self._forwarding[place])

    def _answer_multicast(self, smp: Smp, port: int) -> bytes | int:
        if smp.modifier >= _MULTICAST_BLOCKS:  # ports 0 to 15 are at position 0
            return BAD_VALUE
        if smp.is_set:
            self._multicast[smp.modifier] = smp.value
        return self._multicast[smp.modifier]

    # ---- counters

    def _count(self, mad: bytearray) -> bytes | None:
        """Return the answer to a question about counters, which a Set does not reset."""
        if mad[3] not in (Method.GET, Method.SET):
            return None
        attribute, number = int.from_bytes(mad[16:18]), mad[65]
        mad[3], mad[4:6] = Method.GET_RESPONSE, bytes(2)
        mad[68:] = bytes(len(mad) - 68)
        counts = self._traffic(number)
        if attribute == 0x0001:
            mad[64:68] = bytes((1, 1, 0x04, 0))  # extended counters, without unicast
        elif number > len(self._numbers):
            mad[5] = BAD_VALUE
        elif attribute == 0x0012:
            struct.pack_into(">IIII", mad, 88, *(min(it, 0xFFFFFFFF) for it in counts))
        elif attribute == 0x001D:
            struct.pack_into(">QQQQ", mad, 72, *counts)
        else:
            mad[5] = BAD_ATTRIBUTE
        return bytes(mad)

    def _traffic(self, number: int) -> tuple[int, int, int, int]:
        """Return what a port has sent and received: words of 4 bytes, then frames."""
        if number > len(self._numbers):
            return 0, 0, 0, 0
        sent, received = (
            (sum(row[number] for row in table), sum(table[number]))
            for table in (self._bytes, self._frames)
        )
        return sent[0] // 4, sent[1] // 4, received[0], received[1]

    # ---- links

    def _read_reports_untrusted(self, port: int, frame: bytes) -> Iterator[Delivery]:
        """Learn from a machine's MLD report whether its link is up; yield what the SM is told."""
        try:
            at = 54 + 8 * (frame[55] + 1)  # after the hop-by-hop header
            if frame[20] != 0 or frame[at] != _MLD2_REPORT:
                return
            count, at = int.from_bytes(frame[at + 6 : at + 8]), at + 8
            for _ in range(count):
                kind, extra, sources, group = struct.unpack_from(">BBH16s", frame, at)
                at += 20 + 16 * sources + 4 * extra
                if group == _GROUP + b"\xff\xff":
                    if kind in _JOINS:
                        yield from self._change_link(port, is_up=True)
                    elif kind == _LEAVES and not sources:
                        yield from self._change_link(port, is_up=False)
        except (IndexError, struct.error):
            return

    def _change_link(self, port: int, *, is_up: bool) -> Iterator[Delivery]:
        if is_up is not (self._states[port] == PortState.DOWN):
            return
        self._states[port] = PortState.INIT if is_up else PortState.DOWN
        self._has_changed = True
        sm_lid = int.from_bytes(self._info[0][18:20])
        to = self._forwarding[sm_lid] if sm_lid < _LIDS else NO_PORT
        if self._lid and to in self._numbers:
            self._traps += 1
            trap = Smp.trap(self._traps, _TRAP_LINK_STATE, self._lid)
            yield to, self._frame(trap.data, sm_lid)


def icrc(packet: bytes) -> bytes:
    """Return the invariant CRC of an IPv6 packet of RoCEv2 without one."""
    masked = bytearray(packet)
    masked[:4] = b"\x6f\xff\xff\xff"
    masked[7] = 0xFF  # hop limit
    masked[46:48] = b"\xff\xff"  # UDP checksum
    masked[52] = 0xFF  # BTH: reserved for congestion
    return struct.pack("<I", zlib.crc32(b"\xff" * 8 + masked))
