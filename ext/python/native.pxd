# SPDX-License-Identifier: BSD-2-Clause
"""The common part of the extension modules: C types that cross them, capsules, addresses, errors.

A capsule carries a C pointer from one extension module to another. Everything here is inline: each
module compiles its own copy.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetContext, PyCapsule_New, PyCapsule_SetContext
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset, strerror

cdef extern from "<netinet/in.h>" nogil:
    struct in6_addr:
        uint8_t s6_addr[16]

cdef extern from "fabric/fabric.h" nogil:
    struct ipu_dest:
        in6_addr gid
        uint32_t qpn
        uint32_t flow_label
        uint16_t dlid
        uint8_t sl
        uint8_t static_rate
        uint8_t hop_limit
        uint8_t traffic_class
    struct ipu_send:
        const void *addr
        uint32_t len
        uint32_t qpn
        void *ah
        uint64_t cookie
    struct ipu_recv:
        void *addr
        uint32_t len
        uint64_t cookie
    struct ipu_received:
        uint64_t cookie
        uint32_t byte_len
        uint32_t src_qpn
        uint32_t flags
    enum:
        IPU_RECEIVED_GRH
        IPU_RECEIVED_FAILED
    struct ipu_fabric_ops:
        int (*memory)(void *self, void *base, size_t len)
        void *(*ah_create)(void *self, const ipu_dest *dest)
        void (*ah_destroy)(void *self, void *ah)
        int (*send)(void *self, const ipu_send *sends, int n)
        int (*post)(void *self, const ipu_recv *recvs, int n)
        int (*sent)(void *self, uint64_t *cookies, int max)
        int (*received)(void *self, ipu_received *done, int max)
        int (*arm)(void *self)
        int (*arm_sends)(void *self)
        int (*fd)(void *self)
        int (*recover)(void *self)
        int64_t (*deadline_ns)(void *self)
    struct ipu_connection:
        uint32_t qpn
        uint64_t tx_messages
        uint64_t tx_bytes
        uint64_t rx_messages
        uint64_t rx_bytes
    struct ipu_connection_sent:
        uint64_t cookie
        ipu_connection *connection
        bint failed
    struct ipu_connection_received:
        uint64_t cookie
        ipu_connection *connection
        uint32_t byte_len
        bint failed
    struct ipu_connected_ops:
        int (*add)(void *self, ipu_connection *connection)
        void (*remove)(void *self, ipu_connection *connection)
        int (*send)(void *self, ipu_connection *connection, const ipu_send *sends, int n)
        int (*post)(void *self, const ipu_recv *recvs, int n)
        int (*sent)(void *self, ipu_connection_sent *sent, int max)
        int (*received)(void *self, ipu_connection_received *done, int max)
    struct ipu_fabric:
        const ipu_fabric_ops *ops
        void *self
        const ipu_connected_ops *connected
        void *connected_self
        in6_addr gid
        uint32_t qpn
        uint32_t mtu
        uint32_t min_recv
        uint32_t max_recv
    enum:
        IPU_TX_QUEUES_MAX
    int ipu_fabric_add_tx_queue(ipu_fabric *fabric, uint32_t qpn)

cdef extern from "device/device.h" nogil:
    struct ipu_device:
        pass
    enum:
        IPU_DEVICE_TCP
        IPU_DEVICE_UDP

cdef extern from "core/ring.h" nogil:
    struct ipu_ring:
        pass
    void *ipu_ring_reserve(ipu_ring *ring, uint32_t len)
    void ipu_ring_commit(ipu_ring *ring, uint32_t len)
    void ipu_ring_wake(ipu_ring *ring)
    void *ipu_ring_peek(ipu_ring *ring, uint32_t *len)
    void ipu_ring_release(ipu_ring *ring)
    int ipu_ring_arm(ipu_ring *ring)
    void ipu_ring_disarm(ipu_ring *ring)
    int ipu_ring_fd(const ipu_ring *ring)
    uint32_t ipu_ring_max_bytes(const ipu_ring *ring)

cdef extern from *:
    """
    #define IPU_FABRIC_CAPSULE "ipoibu.fabric"
    #define IPU_CONNECTION_CAPSULE "ipoibu.connection"
    #define IPU_DEVICE_CAPSULE "ipoibu.device"
    """
    const char *IPU_FABRIC_CAPSULE
    const char *IPU_CONNECTION_CAPSULE
    const char *IPU_DEVICE_CAPSULE


cdef inline void release(object capsule) noexcept:
    Py_DECREF(<object>PyCapsule_GetContext(capsule))


cdef inline object lend(void *native, const char *name, object owner):
    """Return a capsule that keeps the owner of `native` alive, whatever happens to the owner's other
    references: the collector may clear Python objects in any order, but not a capsule."""
    cdef object capsule = PyCapsule_New(native, name, release)
    PyCapsule_SetContext(capsule, <void *>owner)
    Py_INCREF(owner)
    return capsule


cdef inline int check(int result, str what) except -1:
    """Turn a negative errno into an OSError that names the failed action."""
    if result < 0:
        raise OSError(-result, f"{what}: {strerror(-result).decode()}")
    return 0


cdef inline in6_addr address(bytes raw) except *:
    cdef in6_addr out
    if len(raw) != 16:
        raise ValueError(f"an address has 16 bytes, not {len(raw)}")
    memcpy(&out, PyBytes_AS_STRING(raw), 16)
    return out


cdef inline bytes raw_address(const in6_addr *addr):
    return PyBytes_FromStringAndSize(<const char *>addr, 16)


cdef inline ipu_dest destination(object dest) except *:
    """From an ipoibu.base.ib.Destination."""
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
