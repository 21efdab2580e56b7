# SPDX-License-Identifier: BSD-2-Clause
"""For each clause of docs/understand/conformance.md one change of the code that breaks it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutation:
    """Replaces `old`, which is once in `file`, by `new`: then a test that shows the clause must fail."""

    clause: str
    file: str
    old: str
    new: str

    @property
    def is_c(self) -> bool:
        return self.file.startswith("ext/")


_WIRE: Final = "ipoibu/wire/"
_PROTO: Final = "ipoibu/proto/"
_PUMP: Final = "ext/pump/"
_SA: Final = "ipoibu/fabric/sa/"

MUTATIONS: Final = (
    Mutation("E2", _WIRE + "encap.py", r'b"\0\0" + self.payload', r'b"\0\1" + self.payload'),
    Mutation("E3", _WIRE + "encap.py", "RARP = 0x8035", "RARP = 0x8036"),
    Mutation("E5", _WIRE + "mgid.py", "HwAddr(Qpn(MULTICAST_QPN), gid)", "HwAddr(Qpn(1), gid)"),
    Mutation(
        "E7",
        _WIRE + "mgid.py",
        "Mgid(group.version, scope, pkey.full,",
        "Mgid(group.version, scope, pkey,",
    ),
    Mutation(
        "A1",
        "ipoibu/base/addr.py",
        'int.from_bytes(raw[1:4], "big")), Gid',
        'int.from_bytes(raw[1:3], "big")), Gid',
    ),
    Mutation(
        "A2",
        _WIRE + "lladdr.py",
        "HwAddr.unpack(bytes(raw))",
        r'HwAddr.unpack(b"\0" + bytes(raw[1:]))',
    ),
    Mutation("A3", "ipoibu/base/addr.py", "return self.raw[8:]", "return self.raw[:8]"),
    Mutation("A4", _WIRE + "lladdr.py", "hwaddr.qpn in (0, MULTICAST_QPN)", "hwaddr.qpn == 0"),
    Mutation(
        "A5",
        _PROTO + "neigh/arp.py",
        "self._neighbours.suspect(now, target, message.sender_hwaddr)",
        "pass",
    ),
    Mutation(
        "A6",
        "ipoibu/base/addr.py",
        "return self.qpn == other.qpn and self.gid == other.gid",
        "return self == other",
    ),
    Mutation(
        "G1", _WIRE + "mgid.py", "bytes((0xFF, 0x10 | self.scope))", "bytes((0xFF, self.scope))"
    ),
    Mutation("G2", _WIRE + "mgid.py", "6: 0x601B}", "6: 0x601C}"),
    Mutation("G3", _WIRE + "mgid.py", "(28 if group.version == 4", "(24 if group.version == 4"),
    Mutation("G4", _WIRE + "mgid.py", "pkey.full, 0xFFFFFFFF)", "pkey.full, 0x0FFFFFFF)"),
    Mutation(
        "G5", _WIRE + "mgid.py", "Mgid(group.version, scope, pkey", "Mgid(group.version, 2, pkey"
    ),
    Mutation(
        "B2",
        _PROTO + "groups/link_params.py",
        "return min(DEFAULT_IB_MTU, longest_bytes)",
        "return DEFAULT_IB_MTU",
    ),
    Mutation(
        "B3",
        _PROTO + "groups/link_params.py",
        "if params.qkey & CONTROLLED_QKEY and not may_control():",
        "if False:",
    ),
    Mutation(
        "M6",
        "ipoibu/endpoint/subnet/allmulticast.py",
        'counts["group_join_refused"] += 1',
        'counts["defect"] += 1',
    ),
    Mutation("T1", _WIRE + "encap.py", "return ib_mtu_bytes - ENCAP_LEN", "return ib_mtu_bytes"),
    Mutation(
        "T3", _PROTO + "groups/link_params.py", "if ipv6 and mtu_bytes < IPV6_MIN_MTU:", "if False:"
    ),
    Mutation("R1", _WIRE + "arp.py", "if hardware != HARDWARE_INFINIBAND:", "if False:"),
    Mutation(
        "R2",
        _PROTO + "neigh/arp.py",
        "self._neighbours.note_introduced(now, sender, hwaddr)",
        "message.operation == arp.REQUEST and self._neighbours.note_introduced(now, sender, hwaddr)",
    ),
    Mutation(
        "R3",
        _WIRE + "arp.py",
        "HwAddr.unpack(target[:hwaddr_len])",
        "lladdr.parse_untrusted(target[:hwaddr_len])",
    ),
    Mutation("N1", _WIRE + "ndopt.py", "bytes(2) + hwaddr.pack()", "hwaddr.pack() + bytes(2)"),
    Mutation("N2", _WIRE + "ndisc.py", "if header.hop_limit != _HOP_LIMIT:", "if False:"),
    Mutation("N3", _WIRE + "mgid.py", "int(address) & 0xFFFFFF)", "int(address) & 0xFFFF)"),
    Mutation(
        "N4",
        _WIRE + "ndisc.py",
        "destination=self.source if solicited else ALL_NODES",
        "destination=ALL_NODES",
    ),
    Mutation("I1", "ipoibu/base/addr.py", "+ guid[1:]", "+ guid[:7]"),
    Mutation("I2", "ipoibu/base/addr.py", "guid[0] | 0x02", "guid[0]"),
    Mutation(
        "I3",
        "ipoibu/host/kernel_interface.py",
        "link.addr_gen_mode == self._addr_gen_mode:",
        "False:",
    ),
    Mutation("C3", _PROTO + "rc/policy.py", "self.config.refusal_private().pack()", 'b""'),
    Mutation(
        "C4",
        _WIRE + "cm_private.py",
        "join((0, 8), (self.qpn, 24))",
        "join((1, 8), (self.qpn, 24))",
    ),
    Mutation(
        "C5",
        _PROTO + "rc/connection.py",
        "min(ours, theirs.receive_mtu_bytes) - ENCAP_LEN",
        "theirs.receive_mtu_bytes - ENCAP_LEN",
    ),
    Mutation("C6", _PROTO + "rc/policy.py", "pack() < replace(other", "pack() > replace(other"),
    Mutation("C7", _WIRE + "cm_private.py", "LINUX = 0x10 << 56", "LINUX = 0x11 << 56"),
    Mutation(
        "C13",
        _WIRE + "icmp.py",
        "V4_ERROR_MAX_BYTES: Final = 576",
        "V4_ERROR_MAX_BYTES: Final = 577",
    ),
    Mutation(
        "K2", _PROTO + "neigh/arp.py", "self._ask(_NO_ADDRESS, _v4(", "self._ask(_v4(address), _v4("
    ),
    Mutation(
        "K4",
        _PROTO + "neigh/dad.py",
        "_I.PROBED):     (_S.DUPLICATE,",
        "_I.PROBED):     (_S.TENTATIVE,",
    ),
    Mutation("K7", _PROTO + "neigh/arp.py", "elif self._host.is_ours(target):", "elif False:"),
    Mutation("L1", _PROTO + "neigh/dad.py", "if self._is_joined(address.ip):", "if True:"),
    Mutation(
        "L3",
        _PROTO + "neigh/ndisc.py",
        "is_ours = self._addresses.is_ours(message.target) or",
        "is_ours = message.target in self._addresses or",
    ),
    Mutation(
        "L4",
        _PROTO + "neigh/dad.py",
        "_I.CLAIMED):    (_S.DUPLICATE,",
        "_I.CLAIMED):    (_S.TENTATIVE,",
    ),
    Mutation(
        "N7", _PROTO + "neigh/ndisc.py", "message.lladdr, is_router=True)", "None, is_router=True)"
    ),
    Mutation("N9", _PROTO + "neigh/routers.py", "if router.state is State.SILENT:", "if False:"),
    Mutation(
        "N10",
        _PROTO + "neigh/nud.py",
        "(True, False, Cached.OTHER): Input.DISPUTED",
        "(True, False, Cached.OTHER): Input.REPLACED",
    ),
    Mutation(
        "N11",
        _PROTO + "neigh/ndisc.py",
        "source=_v6(source), override=False)",
        "source=_v6(source), override=True)",
    ),
    Mutation(
        "N12",
        _PROTO + "neigh/nud.py",
        "(_D, Input.TIMEOUT):   (_P, (_A.PROBE,",
        "(_D, Input.TIMEOUT):   (_P, (_A.ASK,",
    ),
    Mutation(
        "U1",
        _PROTO + "neigh/routers.py",
        "if router_s else advertisement.flags & ~_PREFERENCE",
        "",
    ),
    Mutation(
        "U2",
        _PROTO + "neigh/routers.py",
        "with_lifetime(each, left_s(lifetime_s(each)))",
        "each",
    ),
    Mutation("S1", _WIRE + "membership.py", "if kind in _FILTERS:", "if True:"),
    Mutation("S2", _WIRE + "membership.py", "else before - sources", "else before"),
    Mutation("S3", _WIRE + "igmp.py", "Filter.TO_INCLUDE", "Filter.IS_EXCLUDE"),
    Mutation("X1", _WIRE + "cm_setup.py", "(0, 6), (self.rate, 6)", "(self.rate, 6), (0, 6)"),
    Mutation(
        "X2",
        _PROTO + "cm/state.py",
        "(_S.REQ_SENT, _I.TIMEOUT):    (_S.REQ_SENT, (_A.SEND_REQ, _A.ARM))",
        "(_S.REQ_SENT, _I.TIMEOUT):    (_S.REQ_SENT, (_A.ARM,))",
    ),
    Mutation("Q1", _WIRE + "pathrecord.py", "_REVERSIBLE | 1, self.pkey", "1, self.pkey"),
    Mutation("Q2", _WIRE + "mcmember.py", "mask |= bit", "mask |= Component(1)"),
    Mutation("Q3", _WIRE + "notice.py", "ALL_LIDS: Final = 0xFFFF", "ALL_LIDS: Final = 0xFFFE"),
    Mutation(
        "Q4",
        _PROTO + "sa/rmpp.py",
        "if len(self._parts) in (1, self._window_last):",
        "if len(self._parts) == 1:",
    ),
    Mutation(
        "Q5",
        _PROTO + "sa/transaction.py",
        "_I.TIMEOUT):  (_S.WAITING, (_A.ABORT, _A.SEND,",
        "_I.TIMEOUT):  (_S.WAITING, (_A.SEND,",
    ),
    Mutation("B1", _PROTO + "sa/records.py", "qkey=record.qkey or 0", "qkey=0"),
    Mutation(
        "B4",
        "ipoibu/fabric/sa/link.py",
        "await sa.join(group)",
        "await sa.join(group, params=PartitionParams(pkey, 0x0B1B, 2048))",
    ),
    Mutation("B6", _PROTO + "sa/records.py", "path.mtu_bytes - ENCAP_LEN", "path.mtu_bytes"),
    Mutation(
        "M1",
        _SA + "memberships.py",
        "state = JoinState.SEND_ONLY_NON_MEMBER",
        "state = JoinState.FULL_MEMBER",
    ),
    Mutation("M2", _SA + "client.py", "await self._inform(InformInfo(trap))", "pass"),
    Mutation(
        "M3",
        _SA + "client.py",
        "join_state: JoinState = JoinState.FULL_MEMBER,",
        "join_state: JoinState = JoinState.NON_MEMBER,",
    ),
    Mutation(
        "M4",
        _PROTO + "groups/groups.py",
        "(_M.LINGERING, _MI.TIMEOUT): (_M.NONE, (_MA.DETACH,))",
        "(_M.LINGERING, _MI.TIMEOUT): (_M.NONE, ())",
    ),
    Mutation("M5", _PROTO + "sa/path.py", " or entry.state is State.BACKOFF:", ":"),
    Mutation(
        "M7",
        "ipoibu/endpoint/subnet/allmulticast.py",
        "STATE: Final = JoinState.NON_MEMBER",
        "STATE: Final = JoinState.FULL_MEMBER",
    ),
    Mutation(
        "M8",
        _PROTO + "sa/path.py",
        "self._timers.arm(self._look, gid, now + GROUP_SEND_ONLY_IDLE_S)",
        "pass",
    ),
    Mutation(
        "N5",
        _WIRE + "ndisc.py",
        "target = _target_untrusted(fixed)\n            if source.is_unspecified and lladdr:",
        "target = _target_untrusted(fixed)\n            if False:",
    ),
    Mutation(
        "N5",
        _PROTO + "neigh/nud.py",
        "(_R, Input.MOVED):     (_S, (_A.RECORD,",
        "(_R, Input.MOVED):     (_R, (_A.RECORD,",
    ),
    Mutation(
        "L6",
        _PROTO + "neigh/routers.py",
        "self._context.emit(Deliver(ndisc.strip_untrusted(packet, refused)[0]))",
        "self._context.emit(Deliver(packet))",
    ),
    Mutation(
        "C11",
        "ipoibu/base/limits.py",
        "CONNECTION_RETRIES: Final = 0",
        "CONNECTION_RETRIES: Final = 7",
    ),
    Mutation(
        "C10",
        _PROTO + "rc/policy.py",
        "return self.config.idle_s if role",
        "return 1e9 if role",
    ),
    Mutation(
        "C1",
        _PROTO + "rc/policy.py",
        "else TxRoute(bare, TxMode.UD_NOTIFY)",
        "else TxRoute(bare, TxMode.UD)",
    ),
    Mutation("E1", "ext/soft/roce.h", "SOFT_ROCE_UD_SEND = 0x64", "SOFT_ROCE_UD_SEND = 0x44"),
    Mutation(
        "E4",
        _PUMP + "receive/receive.c",
        "if (!(done->flags & IPU_RECEIVED_GRH) || done->byte_len < IPU_GRH_LEN)",
        "if (done->byte_len < IPU_GRH_LEN)",
    ),
    Mutation(
        "E4",
        "ext/verbs/receive.c",
        "wc->wc_flags & IBV_WC_GRH ? IPU_RECEIVED_GRH : 0",
        "IPU_RECEIVED_GRH",
    ),
    Mutation("E6", "ext/verbs/send.c", ".remote_qkey = v->qkey", ".remote_qkey = 0"),
    Mutation(
        "E8",
        _PUMP + "receive/receive.c",
        "memcmp(grh + 8, &pump->fabric->gid, 16) == 0) { /* E8 */",
        "false) {",
    ),
    Mutation(
        "C2",
        _PUMP + "transmit/transmit.c",
        "    if (entry->ah->connection != NULL)\n",
        "    connection = pump->connected.all;\n    if (entry->ah->connection != NULL)\n",
    ),
    Mutation(
        "N6",
        _PUMP + "loop/command.c",
        "    ipu_transmit_enqueue(pump, index, ah, frame, command->len, command->send_frame.source_qpn);\n",
        "    struct ipu_send send = {.cookie = index, .addr = frame, .len = command->len};\n"
        "    if (ah->connection != NULL)\n"
        "        ipu_connection_enqueue(pump, ah->connection, ah, send);\n"
        "    else\n"
        "        ipu_transmit_enqueue(pump, index, ah, frame, command->len, 0);\n",
    ),
    Mutation(
        "C8",
        _PUMP + "receive/connection.c",
        "if (done[i].failed || done[i].connection == NULL)",
        "if (done[i].failed || done[i].connection == NULL || done[i].connection->ah == NULL)",
    ),
    Mutation("C9", _PUMP + "receive/connection.c", "IPU_TYPE_ARP) { /* C9", "0xFFFF) { /* C9"),
    Mutation(
        "C12", _PUMP + "receive/connection.c", "*mtu = ah->connection->mtu;", "*mtu = pump->mtu;"
    ),
    Mutation(
        "D1", _WIRE + "client_id.py", "HTYPE_INFINIBAND: Final = 32", "HTYPE_INFINIBAND: Final = 1"
    ),
    Mutation(
        "H1",
        _PROTO + "ethernet/arp.py",
        "            self._queue_pairs.hwaddr(frame.source),\n",
        "            self._context.hwaddr,\n",
    ),
    Mutation(
        "H2",
        _PROTO + "ethernet/arp.py",
        "message.operation, mac, message.sender_ip",
        "message.operation, self._macs.own, message.sender_ip",
    ),
    Mutation("H3", _PROTO + "ethernet/nd.py", "_PADDING + named.pack()", "named.pack() + _PADDING"),
    Mutation(
        "H4",
        _PROTO + "ethernet/nd.py",
        "§7.2.8, H4).\n            announces = message.override and not message.solicited",
        "§7.2.8, H4).\n            announces = True",
    ),
    Mutation("H5", _PROTO + "dhcp/form.py", "htype=client_id.HTYPE_INFINIBAND", "htype=1"),
    Mutation("H6", _PROTO + "ethernet/dhcp.py", "htype=_HTYPE_ETHERNET", "htype=32"),
    Mutation(
        "D2",
        _PROTO + "dhcp/client.py",
        "flags=0 if is_ours or kind is Kind.DECLINE else dhcp.BROADCAST_FLAG",
        "flags=0",
    ),
    Mutation("D3", _WIRE + "dhcp6.py", 'IPv6Address("ff02::1:2")', 'IPv6Address("ff02::1:3")'),
    Mutation(
        "D4",
        _PROTO + "dhcp/holder.py",
        "self._feed(now, self._terms.conflict if is_duplicate else self._terms.unique)",
        "self._feed(now, self._terms.unique)",
    ),
)
