# SPDX-License-Identifier: BSD-2-Clause
"""A guest with rxe0, ready for endpoints: what every verbs scenario starts from."""

import fcntl
import hashlib
import json
import os
import struct
import subprocess
import time
from ipaddress import ip_address

from ipoibu.lab.guests.inside.links import link_up, rdma_up, veth_pair
from ipoibu.lab.guests.inside.meeting import SHARE

RNDADDENTROPY = 0x40085203  # <linux/random.h>
DEVICE = "rxe0"


def seed() -> None:
    """Let getrandom(2) answer, as os.urandom does too: the guest's kernel knows nothing random."""
    words = hashlib.sha512(f"{time.time_ns()} {os.environ['LAB_NAME']}".encode()).digest()
    with open("/dev/random", "wb", buffering=0) as pool:
        fcntl.ioctl(pool, RNDADDENTROPY, struct.pack("ii", 8 * len(words), len(words)) + words)


def on_the_wire(mtu: int = 9000) -> None:
    """Make rxe0 on vec0, which leads to the other guests."""
    seed()
    link_up("vec0", mtu)
    rdma_up(DEVICE, "rxe", "vec0")


def on_a_veth(mtu: int | str = 9000) -> None:
    """Make rxe0 on va, of which vb is the other end, in a guest that is alone."""
    seed()
    veth_pair("va", "vb", int(mtu))
    rdma_up(DEVICE, "rxe", "va")


def resources() -> dict[str, int]:
    """What `rdma resource` counts on rxe0: qp, mr, cq, pd and others; the kernel's own included."""
    words = ["rdma", "-j", "resource", "show"]
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    for device in json.loads(out):
        if device["ifname"] == DEVICE:
            return {k: v for k, v in device.items() if isinstance(v, int) and k != "ifindex"}
    raise AssertionError(f"rdma resource knows no {DEVICE}: {out}")


def report(value: object) -> None:
    """Hand `value` to the test, as JSON."""
    path = SHARE / f"report-{os.environ['LAB_NAME']}.json"
    path.write_text(json.dumps(value))


def ipv4(source: str, target: str, payload: bytes) -> bytes:
    """An IPv4 packet of an experimental protocol (RFC 3692: 253)."""
    addresses = ip_address(source).packed + ip_address(target).packed
    size = 20 + len(payload)
    return struct.pack(">BBHHHBBH", 0x45, 0, size, 0, 0, 64, 253, 0) + addresses + payload
