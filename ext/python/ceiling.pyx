# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True, annotation_typing=False
"""The least that IPoIB can cost, as a contender of the benchmark. Types: ipoibu/bench/_ceiling.pyi."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, strerror

import socket

cdef extern from "<netinet/in.h>" nogil:
    struct in6_addr:
        pass

cdef extern from "../bench/ceiling/ceiling.h" nogil:
    struct ceiling:
        uint64_t refused, resent
    ceiling *ceiling_create(int tun, int udp, const in6_addr *ends, uint32_t packet_bytes)
    uint32_t ceiling_mtu(uint32_t packet_bytes)
    int ceiling_step(ceiling *self, uint64_t now_ns)
    int ceiling_run(ceiling *self)


def mtu(uint32_t packet_bytes) -> int:
    """The MTU of the TUN, of which a packet fills a train."""
    return ceiling_mtu(packet_bytes)


cdef class Ceiling:
    """One end: carries the frames of the descriptor `tun` over the connected IPv4 socket `udp`.

    `packet_bytes` is the payload of a packet in connected mode; 0: datagram mode. The caller closes both.
    """

    cdef ceiling *self

    def __cinit__(self, int tun, udp: socket.socket, uint32_t packet_bytes):
        cdef in6_addr ends[2]
        cdef bytes raw
        for i, (address, _) in enumerate((udp.getsockname(), udp.getpeername())):
            raw = bytes(10) + b"\xff\xff" + socket.inet_aton(address)
            memcpy(&ends[i], <const char *>raw, 16)
        self.self = ceiling_create(tun, udp.fileno(), ends, packet_bytes)
        if self.self == NULL:
            raise ValueError(f"packet_bytes {packet_bytes}")

    def __dealloc__(self):
        free(self.self)

    def step(self, uint64_t now_ns) -> int:
        """Move what is there, and return how many frames and trains that was: 0 when it was idle."""
        cdef int moved = ceiling_step(self.self, now_ns)
        if moved < 0:
            raise OSError(-moved, strerror(-moved).decode())
        return moved

    def run(self) -> None:
        """Move frames without the GIL until a descriptor fails: OSError."""
        cdef int error
        with nogil:
            error = ceiling_run(self.self)
        raise OSError(-error, strerror(-error).decode())

    @property
    def trouble(self) -> tuple[int, int]:
        """The packets that this end refused, and the trains that it sent again."""
        return self.self.refused, self.self.resent
