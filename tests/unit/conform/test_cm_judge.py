# SPDX-License-Identifier: BSD-2-Clause
"""The tester's own layouts of communication management: tshark reads from each what we have put there.

Every field of a message has another value. tshark does not know MRA, the reserved fields and the private
data of IPoIB; of a flow label and a rate it reads too few bytes (4.0).
"""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path
from typing import Final

import pytest

from ipoibu.conform.headers import cm
from ipoibu.conform.layout import Layout
from ipoibu.conform.packet import Layer, Packet, build, parse_untrusted

GIDS: Final = [bytes.fromhex("fe80000000000000021122334455660" + digit) for digit in "12"]
QKEY: Final = 0x80010000
_PATH: Final = {
    "local_lid": "locallid",
    "remote_lid": "remotelid",
    "traffic_class": "tfcclass",
    "hop_limit": "hoplim",
    "sl": "sl",
    "subnet_local": "subnetlocal",
    "ack_timeout": "localacktout",
}
NAMES: Final[dict[Layout, dict[str, str]]] = {
    cm.MAD: {
        "base_version": "mad.baseversion",
        "status": "mad.status",
        "class_specific": "mad.classspecific",
        "tid": "mad.transactionid",
        "modifier": "mad.attributemodifier",
    },
    cm.REQ: {
        "local_id": "cm.req",
        "service_id": "cm.req.serviceid",
        "ca_guid": "cm.req.localcaguid",
        "local_qkey": "cm.req.localqkey",
        "qpn": "cm.req.localqpn",
        "responder_resources": "cm.req.responderres",
        "eecn": "cm.req.localeecn",
        "initiator_depth": "cm.req.initdepth",
        "remote_eecn": "cm.req.remoteeecn",
        "remote_response_timeout": "cm.req.remoteresptout",
        "transport": "cm.req.transpsvctype",
        "flow_control": "cm.req.e2eflowctrl",
        "psn": "cm.req.startpsn",
        "local_response_timeout": "cm.req.localresptout",
        "retries": "cm.req.retrcount",
        "pkey": "cm.req.pkey",
        "path_mtu": "cm.req.pppmtu",
        "rdc_exists": "cm.req.rdcexist",
        "rnr_retries": "cm.req.rnrretrcount",
        "cm_retries": "cm.req.maxcmretr",
        "srq": "cm.req.srq",
        "extended_transport": "cm.req.ext_transport",
        **{f"primary_{ours}": f"cm.req.prim_{name}" for ours, name in _PATH.items()},
        **{f"alternate_{ours}": f"cm.req.alt_{name}" for ours, name in _PATH.items()},
    },
    cm.REP: {
        "local_id": "cm.rep",
        "remote_id": "cm.rep.remotecommid",
        "local_qkey": "cm.rep.localqkey",
        "qpn": "cm.rep.localqpn",
        "eecn": "cm.rep.localeecn",
        "psn": "cm.rep.startpsn",
        "responder_resources": "cm.rep.respres",
        "initiator_depth": "cm.rep.initdepth",
        "ack_delay": "cm.rep.tgtackdelay",
        "failover": "cm.rep.failoveracc",
        "flow_control": "cm.rep.e2eflowctrl",
        "rnr_retries": "cm.rep.rnrretrcount",
        "srq": "cm.rep.srq",
        "ca_guid": "cm.rep.localcaguid",
    },
    cm.REJ: {
        "local_id": "cm.rej.localcommid",
        "remote_id": "cm.rej.remotecommid",
        "about": "cm.rej.msgrej",
        "info_length": "cm.rej.rejinfolen",
        "reason": "cm.rej.reason",
    },
    cm.RTU: {"local_id": "cm.rtu.localcommid", "remote_id": "cm.rtu.remotecommid"},
    cm.DREQ: {
        "local_id": "cm.dreq.localcommid",
        "remote_id": "cm.dreq.remotecommid",
        "remote_qpn": "cm.req.remoteqpneecn",
    },
    cm.DREP: {"local_id": "cm.drsp.localcommid", "remote_id": "cm.drsp.remotecommid"},
    cm.MRA: {},
}
MESSAGES: Final = [it for it in NAMES if it not in (cm.MAD, cm.MRA)]


def message(layout: Layout, seed: int) -> Packet:
    """Return a message each of whose named fields has a value of its own."""
    values = random.Random(seed)
    head = Layer(cm.MAD, {"tid": values.getrandbits(64), "modifier": values.getrandbits(32)})
    given = {name: values.getrandbits(layout.fields[name].bits) for name in NAMES[layout]}
    if layout is cm.REQ:
        given |= {"primary_subnet_local": 1, "alternate_subnet_local": 0}
        given |= {"primary_flow_label": 0xABCDE, "primary_rate": 0x2A}
    body = Layer(layout, given)
    private = {cm.REQ: cm.req_private, cm.REP: cm.rep_private}.get(layout)
    if private is None:
        return head / body
    return head / body / private(qpn=0x123456, receive_mtu=65524)


def frame(mad: bytes) -> bytes:
    """Return Ethernet, IPv6, UDP and RoCEv2 in front of a datagram to queue pair 1; no right ICRC behind."""
    roce = struct.pack("!BBHIIII", 0x64, 0, 0xFFFF, 1, 0, QKEY, 1) + mad + bytes(4)
    udp = struct.pack("!HHHH", 0xC000, 4791, 8 + len(roce), 0) + roce
    ipv6 = struct.pack("!IHBB", 6 << 28, len(udp), 17, 64) + b"".join(GIDS) + udp
    return bytes.fromhex("020000000002 020000000001 86dd") + ipv6


@pytest.mark.parametrize("layout", [*MESSAGES, cm.MRA], ids=lambda it: it.name)
def test_a_message_has_256_bytes_and_reads_back(layout: Layout) -> None:
    raw = build(message(layout, 1))
    assert len(raw) == 256
    found = parse_untrusted(raw, cm.MAD)
    assert [it.layout for it in found.layers[:2]] == [cm.MAD, layout]
    assert build(found) == raw


@pytest.mark.parametrize("layout", MESSAGES, ids=lambda it: it.name)
def test_tshark_reads_each_field(tmp_path: Path, layout: Layout) -> None:
    packets = [message(layout, seed) for seed in (1, 2)]
    file = tmp_path / "cm.pcap"
    frames = [frame(build(it)) for it in packets]
    file.write_bytes(
        struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
        + b"".join(
            struct.pack("<IIII", number, 0, len(it), len(it)) + it
            for number, it in enumerate(frames)
        )
    )
    wanted = [(it, name) for it in (cm.MAD, layout) for name in NAMES[it].items()]
    fields = ["_ws.malformed", *(f"infiniband.{theirs}" for _, (_, theirs) in wanted)]
    command = ["tshark", "-r", str(file), "-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    words = [word for field in fields for word in ("-e", field)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True)
    for packet, line in zip(packets, done.stdout.splitlines(), strict=True):
        malformed, *texts = line.split("|")
        assert malformed == ""
        found = parse_untrusted(build(packet), cm.MAD)
        ours = {it.layout: it.values for it in found.layers}
        expected = {theirs: ours[of][name] for of, (name, theirs) in wanted}
        read = dict(zip((theirs for _, (_, theirs) in wanted), texts, strict=True))
        assert {name: int(text, 0) for name, text in read.items()} == expected
