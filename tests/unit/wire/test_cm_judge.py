# SPDX-License-Identifier: BSD-2-Clause
"""An independent judge: tshark reads our messages from RoCEv2 datagrams to queue pair 1.

It knows REQ, REP, RTU, REJ, DREQ and DREP, but not MRA. Of a REQ's flow label and rate it knows the right
bits of the right 32-bit field, but reads too few of the field's bytes (4.0): `test_cm` tests those.
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.wire import cm
from ipoibu.wire.cm_code import About, Reason, Transport
from ipoibu.wire.cm_private import Private
from ipoibu.wire.mad import GSI_QKEY
from tests.doubles import cm_messages

A: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
B: Final = Gid.parse("fe80::215:5dff:fd33:ff0c")
PRIVATE: Final = Private(Qpn(0x48), 65524, 0x10010).pack()
REQ: Final = replace(
    cm_messages.REQ,
    pkey=PKey(0x8001),
    mtu=5,
    primary=replace(cm_messages.REQ.primary, local_gid=A, remote_gid=B),
    alternate=replace(cm_messages.REQ.alternate, local_gid=B, remote_gid=A, subnet_local=True),
    private=PRIVATE,
    transport=Transport.RC,
)
REP: Final = replace(cm_messages.REP, private=PRIVATE)


def judged(tmp_path: Path, messages: list[cm.Spoken], *fields: str) -> list[list[str]]:
    """Return the fields that tshark reads from a capture of the messages, one row for each."""
    file = tmp_path / "cm.pcap"
    file.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        + b"".join(
            struct.pack("<IIII", number, 0, len(frame), len(frame)) + frame
            for number, frame in enumerate(_frame(message) for message in messages)
        )
    )
    command = ["tshark", "-r", str(file), "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    words = [word for field in ("_ws.malformed", *fields) for word in ("-e", field)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == [""] * len(messages)
    return [row[1:] for row in rows]


def _frame(message: cm.Spoken) -> bytes:
    """Ethernet | IPv6 | UDP | BTH | DETH | datagram | ICRC, which tshark does not check."""
    bth = struct.pack("!BBHII", 0x64, 0, 0xFFFF, 1, 0)
    deth = struct.pack("!II", GSI_QKEY, 1)
    roce = bth + deth + cm.pack(0x1122334455667788, message) + bytes(4)
    udp = struct.pack("!HHHH", 0xC000, 4791, 8 + len(roce), 0) + roce
    ipv6 = struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + A.raw + B.raw + udp
    return bytes.fromhex("02155d33ff0c 02155d33ff0b 86dd") + ipv6


def numbers(row: list[str]) -> list[int]:
    return [int(text, 0) for text in row]


REQ_FIELDS: Final = {
    "": REQ.local_id,
    "serviceid": REQ.service_id,
    "localcaguid": REQ.ca_guid,
    "localqkey": REQ.qkey,
    "localqpn": REQ.qpn,
    "responderres": REQ.responder_resources,
    "initdepth": REQ.initiator_depth,
    "remoteresptout": REQ.remote_timeout,
    "transpsvctype": REQ.transport,
    "e2eflowctrl": REQ.flow_control,
    "startpsn": REQ.psn,
    "localresptout": REQ.local_timeout,
    "retrcount": REQ.retries,
    "pkey": REQ.pkey,
    "pppmtu": REQ.mtu,
    "rdcexist": REQ.rdc_exists,
    "rnrretrcount": REQ.rnr_retries,
    "maxcmretr": REQ.cm_retries,
    "srq": REQ.has_srq,
    "ext_transport": 0,
    "prim_locallid": REQ.primary.local_lid,
    "prim_remotelid": REQ.primary.remote_lid,
    "prim_tfcclass": REQ.primary.traffic_class,
    "prim_hoplim": REQ.primary.hop_limit,
    "prim_sl": REQ.primary.sl,
    "prim_subnetlocal": REQ.primary.subnet_local,
    "prim_localacktout": REQ.primary.ack_timeout,
    "alt_locallid": REQ.alternate.local_lid,
    "alt_remotelid": REQ.alternate.remote_lid,
    "alt_tfcclass": REQ.alternate.traffic_class,
    "alt_hoplim": REQ.alternate.hop_limit,
    "alt_sl": REQ.alternate.sl,
    "alt_subnetlocal": REQ.alternate.subnet_local,
    "alt_localacktout": REQ.alternate.ack_timeout,
}


def test_tshark_reads_every_number_of_a_request(tmp_path: Path) -> None:
    names = [f"infiniband.cm.req.{name}".rstrip(".") for name in REQ_FIELDS]
    (row,) = judged(tmp_path, [REQ], *names)
    assert dict(zip(REQ_FIELDS, numbers(row), strict=True)) == REQ_FIELDS


def test_tshark_reads_the_addresses_and_the_private_data_of_a_request(tmp_path: Path) -> None:
    names = ("prim_localgid", "prim_remotegid", "alt_localgid", "alt_remotegid", "private")
    (row,) = judged(tmp_path, [REQ], *(f"infiniband.cm.req.{name}" for name in names))
    local, remote, alt_local, alt_remote, private = row
    assert (local, remote) == (str(A), str(B))
    assert (alt_local, alt_remote) == (B.raw.hex(), A.raw.hex())
    assert private == PRIVATE.ljust(92, b"\0").hex()


def test_tshark_reads_a_reply(tmp_path: Path) -> None:
    expected = {
        "": REP.local_id,
        "remotecommid": REP.remote_id,
        "localqkey": REP.qkey,
        "localqpn": REP.qpn,
        "startpsn": REP.psn,
        "respres": REP.responder_resources,
        "initdepth": REP.initiator_depth,
        "tgtackdelay": REP.ack_delay,
        "failoveracc": REP.failover,
        "e2eflowctrl": REP.flow_control,
        "rnrretrcount": REP.rnr_retries,
        "srq": REP.has_srq,
        "reserved": 0,
        "localcaguid": REP.ca_guid,
    }
    names = [f"infiniband.cm.rep.{name}".rstrip(".") for name in expected]
    _, row = judged(tmp_path, [REQ, REP], *names, "infiniband.cm.rep.private")
    assert dict(zip(expected, numbers(row[:-1]), strict=True)) == expected
    assert row[-1] == PRIVATE.ljust(196, b"\0").hex()


@pytest.mark.parametrize("about", About)
def test_tshark_reads_a_reject(tmp_path: Path, about: About) -> None:
    info = bytes.fromhex("0211223344556677")
    rej = cm.Rej(0x01020304, 0xA1B2C3D4, about, Reason.CONSUMER, info, PRIVATE)
    prefix = "infiniband.cm.rej."
    names = ("localcommid", "remotecommid", "msgrej", "rejinfolen", "reason", "ari", "private")
    (row,) = judged(tmp_path, [rej], *(prefix + name for name in names))
    assert numbers(row[:5]) == [0x01020304, 0xA1B2C3D4, about, 8, 28]
    assert row[5:] == [info.ljust(72, b"\0").hex(), PRIVATE.ljust(148, b"\0").hex()]


def test_tshark_reads_the_short_messages(tmp_path: Path) -> None:
    messages: list[cm.Spoken] = [
        cm.Rtu(0xA1B2C3D4, 0x01020304),
        cm.Dreq(0xA1B2C3D4, 0x01020304, Qpn(0x654321)),
        cm.Drep(0x01020304, 0xA1B2C3D4),
    ]
    names = ("rtu.localcommid", "rtu.remotecommid", "dreq.localcommid", "dreq.remotecommid")
    others = ("req.remoteqpneecn", "drsp.localcommid", "drsp.remotecommid")
    fields = [f"infiniband.cm.{name}" for name in names + others]
    rtu, dreq, drep = judged(tmp_path, messages, *fields)
    assert numbers(rtu[:2]) == [0xA1B2C3D4, 0x01020304]
    assert numbers(dreq[2:5]) == [0xA1B2C3D4, 0x01020304, 0x654321]
    assert numbers(drep[5:]) == [0x01020304, 0xA1B2C3D4]


def test_tshark_names_every_kind(tmp_path: Path) -> None:
    messages: list[cm.Spoken] = [
        REQ,
        REP,
        cm.Mra(1, 2, About.REQ, 20),
        cm.Rej(1, 2, About.REQ, Reason.NO_RESOURCES),
        cm.Rtu(1, 2),
        cm.Dreq(1, 2, Qpn(3)),
        cm.Drep(1, 2),
    ]
    fields = ("infiniband.mad.mgmtclass", "infiniband.mad.attributeid", "infiniband.deth.q_key")
    rows = judged(tmp_path, messages, *fields)
    assert [numbers(row) for row in rows] == [
        [7, attribute, GSI_QKEY] for attribute in (0x10, 0x13, 0x11, 0x12, 0x14, 0x15, 0x16)
    ]
