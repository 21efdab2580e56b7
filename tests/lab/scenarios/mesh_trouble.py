# SPDX-License-Identifier: BSD-2-Clause
"""Trouble for a host of an iWARP mesh: peers that send garbage, a thousand connections, leaks."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import time
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

from pyverbs.device import Context
from pyverbs.enums import (
    IBV_ACCESS_LOCAL_WRITE,
    IBV_SEND_SIGNALED,
    IBV_WC_SUCCESS,
    IBV_WR_SEND,
)
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP
from pyverbs.wr import SGE, SendWR

from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.base.limits import MESH_MTU_MAX, MESH_PORT
from ipoibu.fabric.cm.librdmacm import CmEvent, CmEventType, EventChannel, SocketAddress
from ipoibu.fabric.verbs.objects import VerbsDevice
from ipoibu.lab.machines.inside.meeting import SHARE
from ipoibu.wire.mesh import Greeting

CONNECTS = 1000
WAIT_S = 20
SEND_S = 0.5
MESSAGE_MAX = 4096
UNKNOWN_OPERATION = b"\x88\xb5\0\0\x07\0\0\0"
UNFINISHED_LIST = b"\x88\xb5\0\0\x02\0\0\0" + bytes(17)  # JOIN, and no whole number of groups
GREETING = Greeting(
    HwAddr(Qpn(0x424242), Gid.parse("fe80::bad")), MESH_MTU_MAX, 32, PKey(0xFFFF), 9
).pack()


def _held(pid: str) -> dict[str, int]:
    """Return a daemon's descriptors, threads and memory, and all RDMA objects of the kernel."""
    command = ["rdma", "-j", "resource", "show"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    device = json.loads(out)[0]
    held = {key: device[key] for key in ("qp", "cq", "cm_id", "mr", "pd") if key in device}
    held["fds"] = len(os.listdir(f"/proc/{pid}/fd"))
    status = Path(f"/proc/{pid}/status").read_text()
    held["threads"] = int(status.partition("Threads:")[2].split()[0])
    held["rss_kb"] = int(status.partition("VmRSS:")[2].split()[0])
    return held


def before(pid: str) -> None:
    Path("/tmp/held").write_text(json.dumps(_held(pid)))


def after(pid: str) -> None:
    """Write the resources of before and of now for the test, when the connections are gone."""
    was = json.loads(Path("/tmp/held").read_text())
    for _ in range(50):
        held = _held(pid)
        if held["qp"] <= was["qp"] and held["cm_id"] <= was["cm_id"]:
            break
        time.sleep(0.2)
    (SHARE / "held.json").write_text(json.dumps([was, held]))


class _Asker:
    """Asks for connections with any greeting, one after the other."""

    def __init__(self, host: str) -> None:
        self._target = SocketAddress(ip_address(host), MESH_PORT)
        self._context = Context(name="siw0")
        self._pd = PD(self._context)
        self._device = VerbsDevice("siw0", context=self._context, pd=self._pd, is_iwarp=True)
        self._memory = MR(self._pd, MESSAGE_MAX, IBV_ACCESS_LOCAL_WRITE)
        self._objects = self._device.create_mesh(64, 64)
        self._channel = EventChannel()

    def ask(
        self, greeting: bytes, messages: Sequence[bytes] = (), linger_s: float = 0.0
    ) -> CmEventType:
        """Return the last event of the connection; an established one first sends the messages, and lets
        the host read for `linger_s`."""
        connection = self._channel.create()
        qp = self._device.create_rc(self._objects, 16, 0, 16)
        try:
            connection.resolve_address(self._target, 2000)
            while True:
                event = self._next()
                if event.type is CmEventType.ADDR_RESOLVED:
                    connection.resolve_route(2000)
                elif event.type is CmEventType.ROUTE_RESOLVED:
                    self._device.raise_rc(qp, 1, 0)
                    qpn = Qpn(qp.qp_num)
                    connection.connect(qpn, greeting, retries=0, rnr_retries=0, has_srq=False)
                else:
                    break
            for message in messages:
                if not self._send(qp, message):
                    return CmEventType.DISCONNECTED
            time.sleep(linger_s)
            return event.type
        finally:
            self._device.fail(qp)
            connection.close()
            self._device.destroy(qp)

    def _send(self, qp: QP, message: bytes) -> bool:
        """Return whether the send completed; siw reports nothing after the peer has disconnected."""
        self._memory.write(message, len(message))
        piece = SGE(self._memory.buf, len(message), self._memory.lkey)
        qp.post_send(
            SendWR(num_sge=1, sg=[piece], opcode=IBV_WR_SEND, send_flags=IBV_SEND_SIGNALED)
        )
        deadline = time.monotonic() + SEND_S
        while time.monotonic() < deadline:
            count, done = self._objects.send_cq.poll()
            if count:
                return bool(done[0].status == IBV_WC_SUCCESS)
            time.sleep(0.001)
        return False

    def _next(self) -> CmEvent:
        while (event := self._channel.event()) is None:
            assert select.select([self._channel], [], [], WAIT_S)[0], "rdma_cm is silent"
        return event


def garbage(host: str) -> None:
    """Send no greeting or wrong ones, then a valid greeting with invalid messages."""
    rng = random.Random(1)
    asker = _Asker(host)
    events = []
    for greeting in [b"", b"ipom", rng.randbytes(36), GREETING[:-1], b"ipom\x02" + GREETING[5:]]:
        events.append(asker.ask(greeting).name)
    for _ in range(20):
        spoiled = bytearray(GREETING)
        spoiled[rng.randrange(5)] ^= 1 << rng.randrange(8)
        events.append(asker.ask(bytes(spoiled)).name)
    (SHARE / "garbage.json").write_text(json.dumps(events))
    chatter = []
    for _ in range(20):
        messages = [_nonsense(rng) for _ in range(20)]
        chatter.append(asker.ask(GREETING, messages).name)
    # Of the random messages the host may read few before the connection ends.
    for message in [UNKNOWN_OPERATION, UNFINISHED_LIST] * 5:
        chatter.append(asker.ask(GREETING, [message], linger_s=0.1).name)
    flood = [b"\x08\x00\0\0" + bytes(60)] * 200  # more than its credits allow
    chatter.append(asker.ask(GREETING, flood).name)
    (SHARE / "chatter.json").write_text(json.dumps(chatter))


def _nonsense(rng: random.Random) -> bytes:
    """Return a message of any type and length: control, IP, ARP or unknown."""
    kind = rng.choice(
        [b"\x88\xb5", b"\x88\xb5", b"\x88\xb5", b"\x08\0", b"\x08\x06", b"\x86\xdd", b"??"]
    )
    body = rng.randbytes(rng.randrange(0, 3000))
    if kind == b"\x88\xb5":
        body = bytes((rng.randrange(8),)) + body
    return (kind + b"\0\0" + body)[: rng.choice([1, 3, 4, 8, 20, 4000])]


def connects(host: str) -> None:
    """Make and drop a thousand connections."""
    asker = _Asker(host)
    events: dict[str, int] = {}
    for _ in range(CONNECTS):
        name = asker.ask(GREETING).name
        events[name] = events.get(name, 0) + 1
    (SHARE / "connects.json").write_text(json.dumps(events))
