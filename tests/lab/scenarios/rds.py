# SPDX-License-Identifier: BSD-2-Clause
"""RDS between two machines: machine 2 asks, machine 1 answers. Python knows such sockets by number only."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess

from ipoibu.lab.machines.inside.meeting import meet

AF_RDS = 21
PORT = 4000
LIBC = ctypes.CDLL(None, use_errno=True)


def sockaddr(ipv4: str) -> bytes:
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H4s8x", PORT, socket.inet_aton(ipv4))


def call(name: str, *args: object) -> int:
    result = int(getattr(LIBC, name)(*args))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def ask_and_answer(first: str, second: str) -> None:
    """Exchange one message each between the machines' addresses; a reliable connection carries them."""
    is_first = os.environ["LAB_INDEX"] == "1"
    own, peer = (sockaddr(it) for it in ((first, second) if is_first else (second, first)))
    descriptor = call("socket", AF_RDS, socket.SOCK_SEQPACKET, 0)
    call("bind", descriptor, own, len(own))
    meet("bound")
    text = os.read(descriptor, 100)[::-1] if is_first else b"over RDS"
    call("sendto", descriptor, text, len(text), 0, peer, len(peer))
    if not is_first:
        assert os.read(descriptor, 100) == text[::-1]
    shown = ["rdma", "resource", "show", "qp"]
    pairs = subprocess.run(shown, capture_output=True, text=True, check=True).stdout
    assert "type RC state RTS" in pairs, pairs
    meet("answered")
    os.close(descriptor)
