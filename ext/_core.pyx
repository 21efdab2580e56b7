# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True
"""The Cython face of the C core: fabrics, packet devices and the pump. Types: ipoibu/_core.pyi."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport (
    PyCapsule_GetContext,
    PyCapsule_GetPointer,
    PyCapsule_New,
    PyCapsule_SetContext,
)
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.errno cimport EINVAL, ENOSPC, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

import os

cimport cython

cdef extern from "<netinet/in.h>" nogil:
    struct in6_addr:
        uint8_t s6_addr[16]

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int usec)

cdef extern from "fabric.h" nogil:
    struct ipu_dest:
        in6_addr gid
        uint32_t qpn
        uint32_t flow_label
        uint16_t dlid
        uint8_t sl
        uint8_t static_rate
        uint8_t hop_limit
        uint8_t traffic_class
    struct ipu_fabric:
        in6_addr gid
        uint32_t qpn
        uint32_t mtu

cdef extern from "device.h" nogil:
    struct ipu_device:
        pass
    enum:
        IPU_DEVICE_TCP
        IPU_DEVICE_UDP

cdef extern from "ring.h" nogil:
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

cdef extern from "tun.h" nogil:
    struct ipu_tun:
        ipu_device device
    void ipu_tun_init(ipu_tun *tun, int fd, uint32_t offload)

cdef extern from "queue.h" nogil:
    struct ipu_queue:
        ipu_device device
        ipu_ring to_pump
        ipu_ring from_pump
    int ipu_queue_init(ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes)
    void ipu_queue_free(ipu_queue *queue)

cdef extern from "memory.h" nogil:
    struct ipu_memory_switch:
        pass
    struct ipu_memory_port:
        pass
    struct ipu_memory_config:
        in6_addr gid
        uint32_t qpn
        uint32_t mtu
        bint one_piece
    struct ipu_memory_counters:
        uint64_t tx_packets
        uint64_t tx_too_big
        uint64_t tx_nobody
        uint64_t rx_packets
        uint64_t rx_no_buffer
        uint64_t rx_too_long
        uint64_t rx_broken
    ipu_memory_switch *ipu_memory_switch_create(uint64_t seed)
    void ipu_memory_switch_destroy(ipu_memory_switch *sw)
    ipu_memory_port *ipu_memory_port_create(ipu_memory_switch *sw, const ipu_memory_config *config)
    void ipu_memory_port_destroy(ipu_memory_port *port)
    ipu_fabric *ipu_memory_port_fabric(ipu_memory_port *port)
    const ipu_memory_counters *ipu_memory_port_counters(const ipu_memory_port *port)
    int ipu_memory_attach(ipu_memory_port *port, const in6_addr *mgid)
    int ipu_memory_detach(ipu_memory_port *port, const in6_addr *mgid)
    void ipu_memory_break(ipu_memory_port *port, uint32_t recoveries_to_fail)

cdef extern from "faults.h" nogil:
    struct ipu_faults:
        pass
    struct ipu_faults_config:
        double loss
        double duplicate
        double corrupt
        double reorder
        double delay
        uint32_t delay_min_us
        uint32_t delay_max_us
    struct ipu_faults_counters:
        uint64_t sent
        uint64_t lost
        uint64_t duplicated
        uint64_t corrupted
        uint64_t reordered
        uint64_t delayed
        uint64_t pool_full
    ipu_faults *ipu_faults_create(const ipu_fabric *inner, const ipu_faults_config *config,
                                  uint32_t pool_frames, uint64_t seed)
    void ipu_faults_destroy(ipu_faults *faults)
    ipu_fabric *ipu_faults_fabric(ipu_faults *faults)
    const ipu_faults_counters *ipu_faults_counters_of "ipu_faults_counters" (const ipu_faults *f)

cdef extern from "hca.h" nogil:
    struct soft_hca:
        pass
    struct soft_qp:
        pass
    struct soft_hca_attr:
        char netdev[16]
        unsigned int ifindex
        in6_addr gid
        uint8_t guid[8]
        unsigned int netdev_mtu_bytes
        unsigned int active_mtu_bytes
    enum:
        SOFT_C_COUNT
        SOFT_MAX_PKEYS
    struct soft_hca_counters:
        uint64_t value[SOFT_C_COUNT]
    int soft_hca_open(const char *netdev, soft_hca **out)
    void soft_hca_close(soft_hca *hca)
    void soft_hca_query(const soft_hca *hca, soft_hca_attr *attr)
    int soft_hca_check(soft_hca *hca)
    int soft_hca_set_pkeys(soft_hca *hca, const uint16_t *pkeys, int n)
    void soft_hca_counters_read "soft_hca_counters" (soft_hca *hca, soft_hca_counters *out)
    const char *soft_counter_names[SOFT_C_COUNT]
    int soft_qp_attach_mcast(soft_qp *qp, const in6_addr *mgid)
    int soft_qp_detach_mcast(soft_qp *qp, const in6_addr *mgid)

cdef extern from "soft_fabric.h" nogil:
    struct ipu_soft_fabric:
        ipu_fabric fabric
        soft_qp *qp
    struct ipu_soft_fabric_config:
        uint32_t qkey
        uint16_t pkey_index
        uint32_t send_depth
        uint32_t recv_depth
    int ipu_soft_fabric_init(ipu_soft_fabric *soft, soft_hca **hca,
                             const ipu_soft_fabric_config *config)
    void ipu_soft_fabric_free(ipu_soft_fabric *soft)

cdef extern from "counters.h" nogil:
    enum:
        IPU_COUNTERS_N
    struct ipu_counters:
        pass
    void ipu_counters_read(const ipu_counters *counters, uint64_t *values)
    const char *ipu_counters_names[IPU_COUNTERS_N]

cdef extern from "record.h" nogil:
    struct ipu_command:
        uint32_t type
        uint32_t len
        in6_addr key
        in6_addr via
        ipu_dest dest
        uint32_t forward
        uint32_t mtu
        uint32_t prefix_len
        uint64_t token
    struct ipu_event:
        uint32_t type
        uint32_t len
        uint32_t flags
        uint32_t mtu
        uint32_t src_qpn
        in6_addr key
        in6_addr sgid
        in6_addr dgid
        uint64_t token
    struct ipu_captured:
        uint64_t time_ns
        uint32_t outgoing
        uint32_t wire_len
        uint32_t len
    enum:
        IPU_COMMAND_NEIGH_SET
        IPU_COMMAND_NEIGH_DEL
        IPU_COMMAND_ROUTE_SET
        IPU_COMMAND_ROUTE_DEL
        IPU_COMMAND_SEND_FRAME
        IPU_COMMAND_SEND_PACKET
        IPU_COMMAND_DELIVER
        IPU_COMMAND_CAPTURE
        IPU_COMMAND_SYNC
        IPU_EVENT_MISS
        IPU_EVENT_USED
        IPU_EVENT_UNREACHABLE
        IPU_EVENT_TOO_BIG
        IPU_EVENT_HOST
        IPU_EVENT_FRAME
        IPU_EVENT_FABRIC
        IPU_EVENT_DEVICE
        IPU_EVENT_SYNC
        IPU_EVENT_GRH

cdef extern from "pump.h" nogil:
    struct ipu_pump:
        pass
    struct ipu_pump_config:
        ipu_fabric *fabric
        ipu_device *device
        uint32_t mtu
        uint32_t tx_frames
        uint32_t rx_frames
        uint32_t neigh_max
        uint32_t route_max
        uint32_t path_max
        uint32_t command_bytes
        uint32_t event_bytes
        uint32_t capture_bytes
        uint32_t busy_poll_us
    int ipu_pump_create(const ipu_pump_config *config, ipu_pump **out)
    void ipu_pump_destroy(ipu_pump *pump)
    int ipu_pump_start(ipu_pump *pump)
    void ipu_pump_stop(ipu_pump *pump)
    int ipu_pump_step(ipu_pump *pump, int max)
    ipu_ring *ipu_pump_commands(ipu_pump *pump)
    ipu_ring *ipu_pump_events(ipu_pump *pump)
    ipu_ring *ipu_pump_captured(ipu_pump *pump)
    const ipu_counters *ipu_pump_counters(const ipu_pump *pump)

cdef extern from *:
    """
    #ifdef IPU_HAVE_LIBDEFLATE
    #define CORE_LIBDEFLATE 1
    #else
    #define CORE_LIBDEFLATE 0
    #endif
    """
    int CORE_LIBDEFLATE

cdef const char *FABRIC_CAPSULE = "ipoibu.fabric"
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

FEATURES = {"libdeflate": bool(CORE_LIBDEFLATE)}


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


# ---- fabrics ------------------------------------------------------------------------------------

cdef class SoftHca:
    """The built-in HCA of one net device of this network namespace."""

    cdef soft_hca *hca
    cdef int fabrics  # that are open
    cdef uint16_t pkey_table[SOFT_MAX_PKEYS]  # 0: a hole, which matches nothing
    cdef int pkey_users[SOFT_MAX_PKEYS]
    cdef int pkey_count
    cdef readonly str netdev
    cdef readonly bytes gid
    cdef readonly bytes guid
    cdef readonly unsigned int active_mtu_bytes
    cdef readonly unsigned int netdev_mtu_bytes

    def __cinit__(self, str netdev):
        cdef soft_hca_attr attr
        cdef bytes name = netdev.encode()
        check(soft_hca_open(name, &self.hca), netdev)
        soft_hca_query(self.hca, &attr)
        self.netdev = netdev
        self.gid = raw_address(&attr.gid)
        self.guid = PyBytes_FromStringAndSize(<const char *>attr.guid, 8)
        self.active_mtu_bytes = attr.active_mtu_bytes
        self.netdev_mtu_bytes = attr.netdev_mtu_bytes

    def __dealloc__(self):
        if self.hca != NULL:
            soft_hca_close(self.hca)

    def close(self):
        """Give the UDP port back; after all fabrics were closed. Safe to repeat."""
        if self.fabrics > 0:
            raise ValueError(f"{self.netdev}: a queue pair is still open")
        if self.hca != NULL:
            soft_hca_close(self.hca)
            self.hca = NULL

    cdef int alive(self) except -1:
        if self.hca == NULL:
            raise ValueError(f"{self.netdev}: the HCA is closed")
        return 0

    cdef int take_pkey(self, uint16_t pkey) except -1:
        """The index of this very key, entered if it is new; queue pairs of one partition share it."""
        cdef int i, at = -1
        for i in range(self.pkey_count):
            if self.pkey_table[i] == pkey:
                at = i
                break
            if at < 0 and self.pkey_users[i] == 0:
                at = i
        if at < 0:
            if self.pkey_count == SOFT_MAX_PKEYS:
                check(-ENOSPC, self.netdev)
            at = self.pkey_count
            self.pkey_count += 1
        self.pkey_table[at] = pkey
        self.pkey_users[at] += 1
        check(soft_hca_set_pkeys(self.hca, self.pkey_table, self.pkey_count), self.netdev)
        return at

    cdef void drop_pkey(self, int index) noexcept:
        """After its queue pair: an entry that nobody uses is a hole, the other indices stay."""
        self.pkey_users[index] -= 1
        if self.pkey_users[index] > 0:
            return
        self.pkey_table[index] = 0
        soft_hca_set_pkeys(self.hca, self.pkey_table, self.pkey_count)

    @property
    def pkeys(self):
        """The P_Keys of the table that are in use, in its order."""
        return [self.pkey_table[i] for i in range(self.pkey_count) if self.pkey_users[i] > 0]

    def check(self):
        """0 while the port is active, else the errno of soft_hca_check()."""
        self.alive()
        return -soft_hca_check(self.hca)

    def counters(self):
        cdef soft_hca_counters values
        self.alive()
        soft_hca_counters_read(self.hca, &values)
        return {soft_counter_names[i].decode(): values.value[i] for i in range(SOFT_C_COUNT)}


@cython.no_gc_clear
cdef class SoftFabric:
    """A UD queue pair of the built-in HCA."""

    cdef ipu_soft_fabric soft
    cdef SoftHca hca
    cdef int pkey_index
    cdef bint open

    def __cinit__(self, SoftHca hca, *, uint32_t qkey, uint16_t pkey, uint32_t send_depth=512,
                  uint32_t recv_depth=1024):
        cdef ipu_soft_fabric_config config
        config.qkey = qkey
        config.send_depth = send_depth
        config.recv_depth = recv_depth
        hca.alive()
        self.hca = hca
        self.pkey_index = hca.take_pkey(pkey)
        config.pkey_index = self.pkey_index
        try:
            check(ipu_soft_fabric_init(&self.soft, &hca.hca, &config), hca.netdev)
        except BaseException:
            hca.drop_pkey(self.pkey_index)
            raise
        self.open = True
        hca.fabrics += 1

    @property
    def native(self):
        return lend(&self.soft.fabric, FABRIC_CAPSULE, self)

    def __dealloc__(self):
        self.close()

    @property
    def qpn(self):
        return self.soft.fabric.qpn

    def attach(self, bytes mgid):
        cdef in6_addr gid = address(mgid)
        if self.open:
            check(soft_qp_attach_mcast(self.soft.qp, &gid), "multicast attach")

    def detach(self, bytes mgid):
        cdef in6_addr gid = address(mgid)
        if self.open:
            check(soft_qp_detach_mcast(self.soft.qp, &gid), "multicast detach")

    def close(self):
        """Destroy the queue pair: nothing more is received into the pump's memory."""
        if self.open:
            self.open = False
            self.hca.fabrics -= 1
            ipu_soft_fabric_free(&self.soft)
            self.hca.drop_pkey(self.pkey_index)


cdef class MemorySwitch:
    """An in-process fabric for tests and simulations; MemoryPort plugs into it."""

    cdef ipu_memory_switch *switch

    def __cinit__(self, uint64_t seed=0):
        self.switch = ipu_memory_switch_create(seed)
        if self.switch == NULL:
            check(-errno, "memory switch")

    def __dealloc__(self):
        if self.switch != NULL:
            ipu_memory_switch_destroy(self.switch)


@cython.no_gc_clear
cdef class MemoryPort:
    """One UD queue pair on a MemorySwitch."""

    cdef ipu_memory_port *port
    cdef MemorySwitch switch

    def __cinit__(self, MemorySwitch switch, bytes gid, *, uint32_t qpn=0, uint32_t mtu_bytes=2048,
                  bint one_piece=False):
        cdef ipu_memory_config config
        memset(&config, 0, sizeof(config))
        config.gid = address(gid)
        config.qpn = qpn
        config.mtu = mtu_bytes
        config.one_piece = one_piece
        self.switch = switch
        self.port = ipu_memory_port_create(switch.switch, &config)
        if self.port == NULL:
            check(-errno, "memory port")

    @property
    def native(self):
        return lend(ipu_memory_port_fabric(self.port), FABRIC_CAPSULE, self)

    def __dealloc__(self):
        if self.port != NULL:
            ipu_memory_port_destroy(self.port)

    @property
    def qpn(self):
        return ipu_memory_port_fabric(self.port).qpn

    def attach(self, bytes mgid):
        cdef in6_addr gid = address(mgid)
        check(ipu_memory_attach(self.port, &gid), "multicast attach")

    def detach(self, bytes mgid):
        cdef in6_addr gid = address(mgid)
        check(ipu_memory_detach(self.port, &gid), "multicast detach")

    def break_queue_pair(self):
        """Fail as after a completion error; the pump recovers it."""
        ipu_memory_break(self.port, 0)

    def counters(self):
        cdef const ipu_memory_counters *c = ipu_memory_port_counters(self.port)
        return {"tx_packets": c.tx_packets, "tx_too_big": c.tx_too_big, "tx_nobody": c.tx_nobody,
                "rx_packets": c.rx_packets, "rx_no_buffer": c.rx_no_buffer,
                "rx_too_long": c.rx_too_long, "rx_broken": c.rx_broken}


@cython.no_gc_clear
cdef class FaultyFabric:
    """A fabric around a fabric that loses, repeats, delays, reorders and corrupts what is sent."""

    cdef ipu_faults *faults
    cdef object inner

    def __cinit__(self, object inner, *, double loss=0, double duplicate=0, double corrupt=0,
                  double reorder=0, double delay=0, uint32_t delay_min_us=1000,
                  uint32_t delay_max_us=10000, uint64_t seed=0):
        cdef ipu_faults_config config
        memset(&config, 0, sizeof(config))
        config.loss = loss
        config.duplicate = duplicate
        config.corrupt = corrupt
        config.reorder = reorder
        config.delay = delay
        config.delay_min_us = delay_min_us
        config.delay_max_us = delay_max_us
        self.inner = inner.native
        self.faults = ipu_faults_create(
            <ipu_fabric *>PyCapsule_GetPointer(self.inner, FABRIC_CAPSULE), &config, 0, seed)
        if self.faults == NULL:
            check(-errno, "fault injection")

    @property
    def native(self):
        return lend(ipu_faults_fabric(self.faults), FABRIC_CAPSULE, self)

    def __dealloc__(self):
        if self.faults != NULL:
            ipu_faults_destroy(self.faults)

    def counters(self):
        cdef const ipu_faults_counters *c = ipu_faults_counters_of(self.faults)
        return {"sent": c.sent, "lost": c.lost, "duplicated": c.duplicated,
                "corrupted": c.corrupted, "reordered": c.reordered, "delayed": c.delayed,
                "pool_full": c.pool_full}


# ---- packet devices -----------------------------------------------------------------------------

cdef class TunDevice:
    """A TUN by its descriptor, which stays the caller's to close, after the pump.

    `offload` names what it was set up with (ipoibu/host/tun.py): super-frames then come and go.
    """

    cdef ipu_tun tun
    cdef readonly int fd
    cdef readonly tuple offload

    def __cinit__(self, int fd, object offload=()):
        cdef uint32_t kinds = 0
        self.fd = fd
        self.offload = tuple(offload)
        if "tso4" in self.offload:
            kinds |= IPU_DEVICE_TCP
        if "uso4" in self.offload:
            kinds |= IPU_DEVICE_UDP
        ipu_tun_init(&self.tun, fd, kinds)

    @property
    def native(self):
        return lend(&self.tun.device, DEVICE_CAPSULE, self)


cdef class QueueDevice:
    """The application as packet device: batches of IP packets each way.

    One thread at a time may send and one may receive; neither call blocks.
    """

    cdef ipu_queue *queue
    offload = ()

    def __cinit__(self, uint32_t to_pump_bytes=1 << 22, uint32_t from_pump_bytes=1 << 22):
        self.queue = <ipu_queue *>aligned_alloc(64, (sizeof(ipu_queue) + 63) & ~<size_t>63)
        if self.queue == NULL:
            raise MemoryError
        cdef int error = ipu_queue_init(self.queue, to_pump_bytes, from_pump_bytes)
        if error < 0:
            free(self.queue)
            self.queue = NULL
            check(error, "packet queue")

    @property
    def native(self):
        return lend(&self.queue.device, DEVICE_CAPSULE, self)

    def __dealloc__(self):
        if self.queue != NULL:
            ipu_queue_free(self.queue)
            free(self.queue)

    def send(self, packets):
        """Queue IP packets in order; how many found room."""
        cdef int done = 0
        cdef const unsigned char[::1] view
        cdef void *slot
        for packet in packets:
            view = packet
            if view.shape[0] == 0:
                raise ValueError("an IP packet is not empty")
            slot = ipu_ring_reserve(&self.queue.to_pump, <uint32_t>view.shape[0])
            if slot == NULL:
                break
            memcpy(slot, &view[0], view.shape[0])
            ipu_ring_commit(&self.queue.to_pump, <uint32_t>view.shape[0])
            done += 1
        ipu_ring_wake(&self.queue.to_pump)
        return done

    def recv(self, int max):
        """At most `max` received IP packets, perhaps none."""
        cdef list out = []
        cdef uint32_t length
        cdef void *packet
        while len(out) < max:
            packet = ipu_ring_peek(&self.queue.from_pump, &length)
            if packet == NULL:
                break
            out.append(PyBytes_FromStringAndSize(<const char *>packet, length))
            ipu_ring_release(&self.queue.from_pump)
        return out

    @property
    def fd(self):
        """Readable after `arm` answered False and a packet came."""
        return ipu_ring_fd(&self.queue.from_pump)

    def arm(self):
        """True: packets are there; False: wait for `fd`, then `disarm`."""
        return ipu_ring_arm(&self.queue.from_pump) != 0

    def disarm(self):
        ipu_ring_disarm(&self.queue.from_pump)


# ---- the pump -----------------------------------------------------------------------------------

cdef class Event:
    """One word from the pump; the fields that its type uses are set (ext/record.h)."""

    cdef readonly int type
    cdef readonly bytes key
    cdef readonly bytes data
    cdef readonly int mtu
    cdef readonly int src_qpn
    cdef readonly bytes sgid  # None without a GRH
    cdef readonly bytes dgid
    cdef readonly uint64_t token


cdef class CapturedFrame:
    """One captured frame: `data` is GRH, encapsulation header and payload, perhaps cut short."""

    cdef readonly uint64_t time_ns
    cdef readonly bint outgoing
    cdef readonly int wire_len
    cdef readonly bytes data


@cython.no_gc_clear
cdef class Pump:
    """Moves packets between a device and a fabric on a C thread that never takes the GIL.

    Commands and `events`: one thread at a time, the engine's. `counters`: any thread.
    """

    cdef ipu_pump *pump
    cdef object fabric  # capsules: what they point to lives as long as the pump
    cdef object device
    cdef ipu_command command
    cdef bint running
    cdef readonly uint64_t commands_dropped

    def __cinit__(self, object fabric, object device, *, uint32_t mtu, uint32_t tx_frames=0,
                  uint32_t rx_frames=1024, uint32_t neigh_max=131072, uint32_t route_max=131072,
                  uint32_t path_max=16384, uint32_t command_bytes=1 << 20,
                  uint32_t event_bytes=1 << 20, uint32_t capture_bytes=1 << 22,
                  uint32_t busy_poll_us=0):
        cdef ipu_pump_config config
        memset(&config, 0, sizeof(config))
        self.fabric = fabric.native
        self.device = device.native
        config.fabric = <ipu_fabric *>PyCapsule_GetPointer(self.fabric, FABRIC_CAPSULE)
        config.device = <ipu_device *>PyCapsule_GetPointer(self.device, DEVICE_CAPSULE)
        config.mtu = mtu
        config.tx_frames = tx_frames
        config.rx_frames = rx_frames
        config.neigh_max = neigh_max
        config.route_max = route_max
        config.path_max = path_max
        config.command_bytes = command_bytes
        config.event_bytes = event_bytes
        config.capture_bytes = capture_bytes
        config.busy_poll_us = busy_poll_us
        check(ipu_pump_create(&config, &self.pump), "pump")

    def __dealloc__(self):
        if self.pump != NULL:
            with nogil:
                ipu_pump_destroy(self.pump)

    cdef ipu_pump *live(self) except NULL:
        if self.pump == NULL:
            raise ValueError("the pump is closed")
        return self.pump

    def close(self):
        """End the thread and free everything; after the fabric was closed. Safe to repeat."""
        if self.pump != NULL:
            with nogil:
                ipu_pump_destroy(self.pump)
            self.pump = NULL
            self.running = False
            self.fabric = self.device = None

    def start(self):
        check(ipu_pump_start(self.live()), "pump thread")
        self.running = True

    def stop(self):
        cdef ipu_pump *pump = self.live()
        with nogil:
            ipu_pump_stop(pump)
        self.running = False

    def step(self, int max=64):
        """One round by hand while no thread runs; the amount of work done."""
        cdef ipu_pump *pump = self.live()
        cdef int done
        with nogil:
            done = ipu_pump_step(pump, max)
        check(done, "pump step")
        return done

    cdef bint put(self, uint32_t type, bytes data, bint must) except -1:
        """Queue self.command; packets may be lost to a full ring, table writes wait for room."""
        cdef ipu_ring *ring = ipu_pump_commands(self.live())
        cdef uint32_t length = 0 if data is None else <uint32_t>len(data)
        cdef uint32_t total = <uint32_t>sizeof(ipu_command) + length
        cdef int waits = 0
        cdef void *slot = ipu_ring_reserve(ring, total)
        while slot == NULL and must and self.running and waits < 20000:
            with nogil:
                usleep(100)
            waits += 1
            slot = ipu_ring_reserve(ring, total)
        if slot == NULL:
            if must:
                raise BufferError("the pump does not take commands")
            self.commands_dropped += 1
            return False
        self.command.type = type
        self.command.len = length
        memcpy(slot, &self.command, sizeof(ipu_command))
        if length:
            memcpy(<char *>slot + sizeof(ipu_command), PyBytes_AS_STRING(data), length)
        ipu_ring_commit(ring, total)
        ipu_ring_wake(ring)
        return True

    cdef void fresh(self):
        memset(&self.command, 0, sizeof(self.command))

    def neigh_set(self, bytes key, int forward, object dest, uint32_t mtu):
        self.fresh()
        self.command.key = address(key)
        self.command.forward = forward
        self.command.mtu = mtu
        if dest is not None:
            self.command.dest = destination(dest)
        self.put(IPU_COMMAND_NEIGH_SET, None, True)

    def neigh_del(self, bytes key):
        self.fresh()
        self.command.key = address(key)
        self.put(IPU_COMMAND_NEIGH_DEL, None, True)

    def route_set(self, bytes prefix, uint32_t prefix_len, int kind, bytes gateway=None):
        self.fresh()
        self.command.key = address(prefix)
        self.command.prefix_len = prefix_len
        self.command.forward = kind
        if gateway is not None:
            self.command.via = address(gateway)
        self.put(IPU_COMMAND_ROUTE_SET, None, True)

    def route_del(self, bytes prefix, uint32_t prefix_len):
        self.fresh()
        self.command.key = address(prefix)
        self.command.prefix_len = prefix_len
        self.put(IPU_COMMAND_ROUTE_DEL, None, True)

    def send_frame(self, object dest, bytes frame):
        self.fresh()
        self.command.dest = destination(dest)
        return self.put(IPU_COMMAND_SEND_FRAME, frame, False)

    def send_packet(self, bytes packet):
        self.fresh()
        return self.put(IPU_COMMAND_SEND_PACKET, packet, False)

    def deliver(self, bytes packet):
        self.fresh()
        return self.put(IPU_COMMAND_DELIVER, packet, False)

    def capture(self, uint32_t snap_len):
        """Keep the first `snap_len` bytes (at least 44) of every frame; 0 ends it."""
        if 0 < snap_len < 44:
            raise ValueError("a capture keeps at least the 44 bytes of GRH and header")
        self.fresh()
        self.command.mtu = snap_len
        self.put(IPU_COMMAND_CAPTURE, None, True)

    def sync(self, uint64_t token):
        """Ask for an EVENT_SYNC with this token, after everything queued before."""
        self.fresh()
        self.command.token = token
        self.put(IPU_COMMAND_SYNC, None, True)

    @property
    def event_fd(self):
        """Readable after `arm_events` answered False and an event came."""
        return ipu_ring_fd(ipu_pump_events(self.live()))

    def arm_events(self):
        return ipu_ring_arm(ipu_pump_events(self.live())) != 0

    def disarm_events(self):
        ipu_ring_disarm(ipu_pump_events(self.live()))

    def events(self, int max=256):
        """At most `max` events, oldest first."""
        cdef ipu_ring *ring = ipu_pump_events(self.live())
        cdef list out = []
        cdef uint32_t length
        cdef ipu_event *record
        cdef Event event
        while len(out) < max:
            record = <ipu_event *>ipu_ring_peek(ring, &length)
            if record == NULL:
                break
            event = Event.__new__(Event)
            event.type = record.type
            event.key = raw_address(&record.key)
            event.mtu = record.mtu
            event.src_qpn = record.src_qpn
            event.token = record.token
            if record.flags & IPU_EVENT_GRH:
                event.sgid = raw_address(&record.sgid)
                event.dgid = raw_address(&record.dgid)
            event.data = PyBytes_FromStringAndSize(
                <const char *>record + sizeof(ipu_event), record.len)
            ipu_ring_release(ring)
            out.append(event)
        return out

    @property
    def capture_fd(self):
        return ipu_ring_fd(ipu_pump_captured(self.live()))

    def arm_captured(self):
        return ipu_ring_arm(ipu_pump_captured(self.live())) != 0

    def disarm_captured(self):
        ipu_ring_disarm(ipu_pump_captured(self.live()))

    def captured(self, int max=256):
        """At most `max` captured frames, oldest first."""
        cdef ipu_ring *ring = ipu_pump_captured(self.live())
        cdef list out = []
        cdef uint32_t length
        cdef ipu_captured *record
        cdef CapturedFrame frame
        while len(out) < max:
            record = <ipu_captured *>ipu_ring_peek(ring, &length)
            if record == NULL:
                break
            frame = CapturedFrame.__new__(CapturedFrame)
            frame.time_ns = record.time_ns
            frame.outgoing = record.outgoing != 0
            frame.wire_len = record.wire_len
            frame.data = PyBytes_FromStringAndSize(
                <const char *>record + sizeof(ipu_captured), record.len)
            ipu_ring_release(ring)
            out.append(frame)
        return out

    def counters(self):
        """Every counter of ext/counters.h by name."""
        cdef uint64_t values[IPU_COUNTERS_N]
        ipu_counters_read(ipu_pump_counters(self.live()), values)
        return {ipu_counters_names[i].decode(): values[i] for i in range(IPU_COUNTERS_N)}
