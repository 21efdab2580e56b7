# SPDX-License-Identifier: BSD-2-Clause
"""A traffic generator and an echo, both in C, on two endpoints of one process.

Run: sh docs/examples/c-device/build.sh DIRECTORY; python docs/examples/c-device/traffic.py DIRECTORY
"""

from __future__ import annotations

import ctypes
import sys
import time
from pathlib import Path

from ipoibu import CDevice, Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

PACKETS = 10_000
DEVICE = b"ipoibu.packet_device.v1"  # a capsule's name must outlive it
QUEUE = b"ipoibu.packet_queue.v1"


class Library:
    """The functions of a library in C that take and return pointers."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def pointer(self, name: str, *args: object) -> ctypes.c_void_p:
        function = self._library[name]
        function.restype = ctypes.c_void_p
        return ctypes.c_void_p(function(*args))

    def count(self, name: str, *args: object) -> int:
        function = self._library[name]
        function.restype = ctypes.c_uint64
        return int(function(*args))


def capsule(pointer: ctypes.c_void_p, name: bytes) -> object:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = (
        ctypes.py_object,
        [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
    )
    return new(pointer, name, None)


def pointer_of(capsule: object, name: bytes) -> ctypes.c_void_p:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(get(capsule, name))


def main(directory: Path) -> None:
    echoing, generating = Library(directory / "echo.so"), Library(directory / "generator.so")
    echo = echoing.pointer("echo_create")  # the device is the first member of the struct
    switch = MemorySwitch()
    ports = [MemoryPort(switch, Gid.parse(f"fe80::{number}")) for number in (1, 2)]
    alice = Endpoint(EndpointConfig("alice", "memory"), port=ports[0])
    bob = Endpoint(
        EndpointConfig("bob", "memory"), port=ports[1], device=CDevice(capsule(echo, DEVICE))
    )
    queue = alice.c_queue()  # holds the memory, so it lives until the threads have ended
    with alice, bob:
        alice.address_added("10.0.0.1/24")
        bob.address_added("10.0.0.2/24")
        for host in (alice, bob):
            host.wait_up(timeout=30)
        ends = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2))
        generator = generating.pointer(
            "generator_start", pointer_of(queue, QUEUE), *ends, ctypes.c_uint16(7), 64
        )
        while generating.count("generator_received", generator) < PACKETS:
            time.sleep(0.01)
        sent = generating.count("generator_sent", generator)
        generating.pointer("generator_stop", generator)
    assert PACKETS <= echoing.count("echo_count", echo) <= sent
    echoing.pointer("echo_destroy", echo)
    print(f"{PACKETS} packets came back")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
