# SPDX-License-Identifier: BSD-2-Clause
"""Native multicast over rxe as in IPoIB: a receiver must join at the IP level besides attaching.

Two machines. `program` is the compiled multicast.c.
"""

import socket
import struct
import subprocess
import time

from ipoibu.lab.machines.inside.links import link_up, rdma_up
from ipoibu.lab.machines.inside.meeting import meet

MGID = "ff12:401b:ffff::ffff:ffff"  # the IPv4 broadcast group, RFC 4391 §4
QUIET_S = 0.5  # a datagram that is going to come takes well under a millisecond


def receive(program: str) -> None:
    """Attach, let the other machine send, join at the IP level, let it send again; print the datagrams."""
    _device()
    with subprocess.Popen([program, "receive", MGID], stdout=subprocess.PIPE) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == b"ready\n"
        meet("attached")
        meet("sent to the attached")
        time.sleep(QUIET_S)
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as member:
            group = socket.inet_pton(socket.AF_INET6, MGID)
            membership = group + struct.pack("@I", socket.if_nametoindex("vec0"))
            member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
            meet("joined")
            meet("sent to the joined")
            time.sleep(QUIET_S)
        receiver.terminate()
        print(receiver.stdout.read().decode(), end="")


def send(program: str) -> None:
    """Send one datagram to a receiver that is attached only, another one when it has joined."""
    _device()
    for state in ("attached", "joined"):
        meet(state)
        subprocess.run([program, "send", MGID, f"to-the-{state}"], check=True, timeout=10)
        meet(f"sent to the {state}")


def _device() -> None:
    link_up("vec0")
    rdma_up("rxe0", "rxe", "vec0")
