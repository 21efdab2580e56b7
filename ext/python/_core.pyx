# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True
"""The Cython face of the C core: fabrics, packet devices and the pump. Types: ipoibu/_core.pyi."""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport (
    PyCapsule_GetContext,
    PyCapsule_GetPointer,
    PyCapsule_New,
    PyCapsule_SetContext,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EAGAIN, EINVAL, ENOENT, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

import os

cimport cython

include "extern.pxi"

cdef extern from *:
    """
    #ifdef IPU_HAVE_LIBDEFLATE
    #define CORE_LIBDEFLATE 1
    #else
    #define CORE_LIBDEFLATE 0
    #endif
    #ifdef IPU_HAVE_ISAL
    #define CORE_ISAL 1
    #else
    #define CORE_ISAL 0
    #endif
    #ifdef IPU_HAVE_URING
    #define CORE_URING 1
    #else
    #define CORE_URING 0
    #endif
    """
    int CORE_LIBDEFLATE
    int CORE_ISAL
    int CORE_URING

cdef const char *FABRIC_CAPSULE = "ipoibu.fabric"
cdef const char *CONNECTION_CAPSULE = "ipoibu.connection"
cdef const char *DEVICE_CAPSULE = "ipoibu.device"

EVENT_MISS = IPU_EVENT_MISS
EVENT_USED = IPU_EVENT_USED
EVENT_UNREACHABLE = IPU_EVENT_UNREACHABLE
EVENT_TOO_BIG = IPU_EVENT_TOO_BIG
EVENT_HOST = IPU_EVENT_HOST
EVENT_FRAME = IPU_EVENT_FRAME
EVENT_FABRIC = IPU_EVENT_FABRIC
EVENT_DEVICE = IPU_EVENT_DEVICE
EVENT_SYNC = IPU_EVENT_SYNC
EVENT_RC_WANTED = IPU_EVENT_RC_WANTED
EVENT_CONNECTION_BROKEN = IPU_EVENT_CONNECTION_BROKEN
EVENT_CONNECTION_GONE = IPU_EVENT_CONNECTION_GONE
TX_UD = IPU_TX_UD
TX_UD_NOTIFY = IPU_TX_UD_NOTIFY
TX_RC = IPU_TX_RC

FEATURES = {"isal": bool(CORE_ISAL), "libdeflate": bool(CORE_LIBDEFLATE), "uring": bool(CORE_URING)}


cdef void release(object capsule) noexcept:
    Py_DECREF(<object>PyCapsule_GetContext(capsule))


cdef object lend(void *native, const char *name, object owner):
    """A capsule that keeps the owner of what it points to alive, whatever becomes of the owner's
    other users: the collector may clear Python objects in any order, but not a capsule."""
    cdef object capsule = PyCapsule_New(native, name, release)
    PyCapsule_SetContext(capsule, <void *>owner)
    Py_INCREF(owner)
    return capsule


cdef int check(int result, str what) except -1:
    """Turn a negative errno into an OSError that says what failed."""
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")
    return 0


cdef in6_addr address(bytes raw) except *:
    cdef in6_addr out
    if len(raw) != 16:
        raise ValueError(f"an address has 16 bytes, not {len(raw)}")
    memcpy(&out, PyBytes_AS_STRING(raw), 16)
    return out


cdef bytes raw_address(const in6_addr *addr):
    return PyBytes_FromStringAndSize(<const char *>addr, 16)


cdef ipu_dest destination(object dest) except *:
    """From an ipoibu.fabric.base.Destination."""
    cdef ipu_dest out
    memset(&out, 0, sizeof(out))
    out.gid = address(dest.gid.raw)
    out.qpn = dest.qpn
    out.flow_label = dest.flow_label
    out.dlid = dest.dlid
    out.sl = dest.sl
    out.static_rate = dest.static_rate
    out.hop_limit = dest.hop_limit
    out.traffic_class = dest.traffic_class
    return out


include "fabrics.pxi"
include "devices.pxi"
include "pumps.pxi"
