# SPDX-License-Identifier: BSD-2-Clause
"""Prepares a machine with rxe0; every verbs scenario begins with this."""

import fcntl
import hashlib
import json
import os
import struct
import subprocess
import time
from ipaddress import ip_address

from ipoibu.lab.machines.inside.links import link_up, rdma_up, veth_pair
from ipoibu.lab.machines.inside.meeting import SHARE

RNDADDENTROPY = 0x40085203  # <linux/random.h>
DEVICE = "rxe0"


def seed() -> None:
    """Give the machine's kernel entropy, without which getrandom(2) and os.urandom block."""
    entropy = hashlib.sha512(f"{time.time_ns()} {os.environ['LAB_NAME']}".encode()).digest()
    with open("/dev/random", "wb", buffering=0) as pool:
        fcntl.ioctl(
            pool, RNDADDENTROPY, struct.pack("ii", 8 * len(entropy), len(entropy)) + entropy
        )


def on_the_wire(mtu: int = 9000) -> None:
    """Make rxe0 on vec0, the wire to the other machines."""
    seed()
    link_up("vec0", mtu)
    rdma_up(DEVICE, "rxe", "vec0")


def on_a_veth(mtu: int | str = 9000) -> None:
    """Make rxe0 on va, the other end of vb, in a machine without others."""
    seed()
    veth_pair("va", "vb", int(mtu))
    rdma_up(DEVICE, "rxe", "va")


def resources() -> dict[str, int]:
    """Return the counts of `rdma resource` on rxe0 (qp, mr, cq, pd), with the kernel's own."""
    command = ["rdma", "-j", "resource", "show"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for device in json.loads(out):
        if device["ifname"] == DEVICE:
            return {k: v for k, v in device.items() if isinstance(v, int) and k != "ifindex"}
    raise AssertionError(f"rdma resource knows no {DEVICE}: {out}")


def report(value: object) -> None:
    """Write `value` as JSON for the test."""
    path = SHARE / f"report-{os.environ['LAB_NAME']}.json"
    path.write_text(json.dumps(value))


def ipv4(source: str, target: str, payload: bytes) -> bytes:
    """Return an IPv4 packet of an experimental protocol (RFC 3692: 253)."""
    addresses = ip_address(source).packed + ip_address(target).packed
    size = 20 + len(payload)
    return struct.pack(">BBHHHBBH", 0x45, 0, size, 0, 0, 64, 253, 0) + addresses + payload
