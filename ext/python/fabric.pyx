# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True, annotation_typing=False
"""Fabrics: the built-in HCA, the in-process fabric and the fault injector. Types: fabric.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EAGAIN, EINVAL, ENOENT, ENOSPC, errno
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from native cimport *

cdef extern from "fabric/memory.h" nogil:
    struct ipu_memory_switch:
        pass
    struct ipu_memory_port:
        pass
    struct ipu_memory_config:
        in6_addr gid
        uint32_t qpn
        uint32_t mtu
        bint one_piece
        bint bare_unicast
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

cdef extern from "fabric/faults.h" nogil:
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
        uint64_t too_big
        uint64_t pool_full
    ipu_faults *ipu_faults_create(const ipu_fabric *inner, const ipu_faults_config *config,
                                  uint32_t pool_frames, uint64_t seed)
    void ipu_faults_destroy(ipu_faults *faults)
    ipu_fabric *ipu_faults_fabric(ipu_faults *faults)
    const ipu_faults_counters *ipu_faults_counters_of "ipu_faults_counters" (const ipu_faults *f)

cdef extern from "unicast/unicast.h" nogil:
    struct ipu_unicast:
        pass
    struct ipu_unicast_config:
        in6_addr broadcast
        uint32_t peers_max
        uint8_t hop_limit
    enum:
        IPU_UNICAST_COUNTERS_N
    ipu_unicast *ipu_unicast_create(const ipu_fabric *inner, const ipu_unicast_config *config)
    void ipu_unicast_destroy(ipu_unicast *unicast)
    ipu_fabric *ipu_unicast_fabric(ipu_unicast *unicast)
    int ipu_unicast_add(ipu_unicast *unicast, uint64_t id, const in6_addr *gid, uint32_t qpn)
    void ipu_unicast_remove(ipu_unicast *unicast, uint64_t id)
    void ipu_unicast_groups(ipu_unicast *unicast, uint64_t id, const in6_addr *mgids, int n)
    void ipu_unicast_group(ipu_unicast *unicast, uint64_t id, const in6_addr *mgid, bint is_in)
    bint ipu_unicast_is_peer(ipu_unicast *unicast, const in6_addr *gid, uint32_t qpn)
    void ipu_unicast_counters(const ipu_unicast *unicast, uint64_t *values)
    const char *ipu_unicast_counter_names[IPU_UNICAST_COUNTERS_N]

cdef extern from "rails/rails.h" nogil:
    struct ipu_rails:
        pass
    enum:
        IPU_RAILS_MAX
        IPU_RAILS_COUNTERS_N
        IPU_RAILS_TRAFFIC_N
    struct ipu_rails_config:
        const ipu_fabric *inner[IPU_RAILS_MAX]
        uint32_t count
        uint32_t up
        uint32_t active
        uint32_t peers_max
        ipu_dest broadcast
    struct ipu_rails_peer:
        in6_addr gid
        uint32_t qpn
        uint32_t usable
        uint32_t reached
    ipu_rails *ipu_rails_create(const ipu_rails_config *config)
    void ipu_rails_destroy(ipu_rails *rails)
    ipu_fabric *ipu_rails_fabric(ipu_rails *rails)
    void ipu_rails_set(ipu_rails *rails, uint32_t up, uint32_t active)
    void ipu_rails_assign(const ipu_rails *rails, ipu_connection *connection, uint32_t rail)
    uint32_t ipu_rails_peers(ipu_rails *rails, ipu_rails_peer *peers, uint32_t max)
    void ipu_rails_counters(const ipu_rails *rails, uint64_t *values)
    void ipu_rails_traffic(const ipu_rails *rails, uint32_t rail, uint64_t *values)
    const char *ipu_rails_counter_names[IPU_RAILS_COUNTERS_N]
    const char *ipu_rails_traffic_names[IPU_RAILS_TRAFFIC_N]

cdef extern from "soft/hca.h" nogil:
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
        unsigned int datagram_bytes
    enum:
        SOFT_C_COUNT
        SOFT_MAX_PKEYS
    struct soft_hca_counters:
        uint64_t value[SOFT_C_COUNT]
    enum soft_gid_kind:
        pass
    enum soft_route:
        pass
    struct soft_hca_options:
        soft_gid_kind kind
        in6_addr gid
        int adopted_fd
    int soft_hca_fd(const soft_hca *hca)
    int soft_hca_open(const char *netdev, const soft_hca_options *options, soft_hca **out)
    int soft_hca_open_tx_queue(soft_hca *hca, uint16_t pkey, soft_hca **out)
    void soft_hca_close(soft_hca *hca)
    void soft_hca_query(const soft_hca *hca, soft_hca_attr *attr)
    int soft_hca_check(soft_hca *hca, unsigned int datagram_bytes)
    unsigned int soft_hca_netdev_mtu(soft_hca *hca)
    int soft_hca_restore_route(soft_hca *hca, soft_route route)
    unsigned int soft_hca_needed_mtu(const soft_hca *hca, unsigned int datagram_bytes)
    int soft_hca_next_gid(soft_hca *hca, in6_addr *gid)
    int soft_hca_set_pkeys(soft_hca *hca, const uint16_t *pkeys, int n)
    void soft_hca_counters_read "soft_hca_counters" (soft_hca *hca, soft_hca_counters *out)
    bint soft_hca_drop_source(soft_hca *hca, int why, in6_addr *source)
    const char *soft_counter_names[SOFT_C_COUNT]
    uint64_t soft_qp_retransmits(const soft_qp *qp)
    int soft_qp_add_number(soft_qp *qp, uint32_t wanted, uint32_t *qpn)
    int soft_qp_attach_mcast(soft_qp *qp, const in6_addr *mgid)
    int soft_qp_detach_mcast(soft_qp *qp, const in6_addr *mgid)

    struct soft_ah_attr:
        pass
    struct soft_rc_attr:
        soft_ah_attr path
        uint32_t dest_qpn
        uint32_t rq_psn
        unsigned int path_mtu_bytes
        uint8_t min_rnr_timer
        uint32_t sq_psn
        uint8_t timeout
        uint8_t retry_count
        uint8_t rnr_retry

cdef extern from "fabric/soft_work.h" nogil:
    soft_ah_attr ipu_soft_work_path(const ipu_dest *dest)

cdef extern from "fabric/soft_connected.h" nogil:
    struct ipu_soft_connected:
        pass
    struct ipu_soft_connection:
        ipu_connection connection
        soft_qp *qp
    int ipu_soft_connection_open(ipu_soft_connected *all, ipu_soft_connection *connection,
                                 uint16_t pkey_index)
    int ipu_soft_connection_program(ipu_soft_connection *connection, const soft_rc_attr *attr)
    void ipu_soft_connection_stop(ipu_soft_connection *connection)
    void ipu_soft_connection_close(ipu_soft_connection *connection)

cdef extern from "fabric/soft_gsi.h" nogil:
    enum:
        IPU_SOFT_GSI_MAD_LEN
    struct ipu_soft_gsi:
        pass
    struct ipu_soft_mad:
        in6_addr sgid
        uint32_t src_qpn
        uint16_t pkey
        uint8_t data[256]
    int ipu_soft_gsi_init(ipu_soft_gsi *gsi, soft_hca **hca)
    void ipu_soft_gsi_free(ipu_soft_gsi *gsi)
    int ipu_soft_gsi_send(ipu_soft_gsi *gsi, const ipu_dest *dest, uint32_t qkey, uint16_t pkey,
                          const uint8_t *mad)
    int ipu_soft_gsi_receive(ipu_soft_gsi *gsi, ipu_soft_mad *mad)
    int ipu_soft_gsi_wait_ms(const ipu_soft_gsi *gsi)
    int ipu_soft_gsi_fd(const ipu_soft_gsi *gsi)
    void ipu_soft_gsi_arm(ipu_soft_gsi *gsi)

cdef extern from "fabric/soft_fabric.h" nogil:
    struct ipu_soft_fabric:
        ipu_fabric fabric
        soft_qp *qp
        uint32_t qkey
        bint needs_lid
        ipu_soft_connected connected
    struct ipu_soft_fabric_config:
        uint32_t qkey
        uint16_t pkey_index
        uint32_t send_depth
        uint32_t recv_depth
        bint needs_lid
        uint32_t connected_depth
        uint32_t source_qpn
        uint32_t qpn
    int ipu_soft_fabric_init(ipu_soft_fabric *soft, soft_hca **hca,
                             const ipu_soft_fabric_config *config)
    void ipu_soft_fabric_free(ipu_soft_fabric *soft)

cdef extern from "soft/crc32.h" nogil:
    enum soft_crc32:
        SOFT_CRC32_ISAL
        SOFT_CRC32_DEFLATE
    soft_crc32 soft_crc32_used()

cdef soft_crc32 _crc32 = soft_crc32_used()
FABRIC_FEATURES = {"isal": _crc32 == SOFT_CRC32_ISAL, "libdeflate": _crc32 == SOFT_CRC32_DEFLATE}  #: dict[str, bool]


cdef class SoftHca:
    """The built-in HCA of one net device of this network namespace. `kind` is a value of enum soft_gid_kind;
    with a `gid`, the device has to have that one. With a `socket_fd`, the descriptor of an earlier HCA's
    socket, the HCA goes on with a duplicate of that."""

    cdef soft_hca *hca
    cdef int fabrics # number of open fabrics
    cdef set tx_queues # the open TX queues
    cdef soft_hca_counters retired  # counters of closed TX queues
    cdef uint16_t pkey_table[SOFT_MAX_PKEYS]  # 0: a hole, which matches nothing
    cdef int pkey_users[SOFT_MAX_PKEYS]
    cdef int pkey_count
    cdef readonly str netdev
    cdef readonly bytes gid
    cdef readonly bytes guid
    cdef readonly unsigned int active_mtu_bytes
    cdef readonly unsigned int datagram_bytes
    cdef readonly unsigned int netdev_mtu_bytes

    def __cinit__(self, str netdev, *, int kind=0, bytes gid=None, int socket_fd=0):
        cdef soft_hca_attr attr
        cdef soft_hca_options options
        cdef bytes name = netdev.encode()
        self.tx_queues = set()
        memset(&self.retired, 0, sizeof(self.retired))
        memset(&options, 0, sizeof(options))
        options.kind = <soft_gid_kind>kind
        if gid is not None:
            options.gid = address(gid)
        options.adopted_fd = socket_fd
        check(soft_hca_open(name, &options, &self.hca), netdev)
        soft_hca_query(self.hca, &attr)
        self.netdev = netdev
        self.gid = raw_address(&attr.gid)
        self.guid = PyBytes_FromStringAndSize(<const char *>attr.guid, 8)
        self.active_mtu_bytes = attr.active_mtu_bytes
        self.datagram_bytes = attr.datagram_bytes
        self.netdev_mtu_bytes = attr.netdev_mtu_bytes

    def __dealloc__(self):
        if self.hca != NULL:
            soft_hca_close(self.hca)

    def close(self) -> None:
        """Give the UDP port back, after the end of all fabrics. Safe to repeat."""
        if self.fabrics > 0:
            raise ValueError(f"{self.netdev}: a queue pair is still open")
        if self.hca != NULL:
            soft_hca_close(self.hca)
            self.hca = NULL

    cdef int alive(self) except -1:
        if self.hca == NULL:
            raise ValueError(f"{self.netdev}: the HCA is closed")
        return 0

    @property
    def socket_fd(self) -> int:
        """The descriptor of the UDP socket, which the HCA keeps."""
        self.alive()
        return soft_hca_fd(self.hca)

    cdef int take_pkey(self, uint16_t pkey) except -1:
        """Return the index of this key, which the table gets if it lacks it; queue pairs of one partition
        share the index."""
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
        """Give a key back, after its queue pair: an unused entry becomes a hole, the other indices stay."""
        self.pkey_users[index] -= 1
        if self.pkey_users[index] > 0:
            return
        self.pkey_table[index] = 0
        soft_hca_set_pkeys(self.hca, self.pkey_table, self.pkey_count)

    @property
    def pkeys(self) -> list[int]:
        """The used P_Keys of the table, in its order."""
        return [self.pkey_table[i] for i in range(self.pkey_count) if self.pkey_users[i] > 0]

    def check(self, unsigned int datagram_bytes=0) -> int:
        """Return 0 while the port is active and carries such datagrams, else the errno of soft_hca_check()."""
        self.alive()
        return -soft_hca_check(self.hca, datagram_bytes)

    def next_gid(self) -> bytes | None:
        """Return the address that the net device has in place of the GID, one of its kind; None without one."""
        cdef in6_addr gid
        self.alive()
        if soft_hca_next_gid(self.hca, &gid) < 0:
            return None
        return (<char *>&gid)[:16]

    def restore_route(self, int route) -> int:
        """Restore a route of the net device, a value of enum soft_route, if it is lost.

        Return 1 if it was, 0 if not, and a negative errno if this fails."""
        self.alive()
        return soft_hca_restore_route(self.hca, <soft_route>route)

    def netdev_mtu_now(self) -> int:
        """Return the net device's present MTU, 0 if the device is gone."""
        self.alive()
        return soft_hca_netdev_mtu(self.hca)

    def needed_mtu(self, unsigned int datagram_bytes=0) -> int:
        """Return the least MTU of the net device with which `check` finds the port active."""
        self.alive()
        return soft_hca_needed_mtu(self.hca, datagram_bytes)

    def counters(self) -> dict[str, int]:
        """Return the counters of the whole HCA, with its TX queues."""
        cdef soft_hca_counters values
        cdef SoftTxQueue tx_queue
        self.alive()
        soft_hca_counters_read(self.hca, &values)
        add_counters(&values, &self.retired)
        for tx_queue in self.tx_queues:
            tx_queue.add_to(&values)
        return {soft_counter_names[i].decode(): values.value[i] for i in range(SOFT_C_COUNT)}

    def drop_sources(self) -> dict[str, bytes]:
        """Return who sent the last packet that the HCA dropped, by counter: its claimed GID."""
        cdef in6_addr source
        self.alive()
        sources = {}
        for why in range(SOFT_C_COUNT):
            if soft_hca_drop_source(self.hca, why, &source):
                sources[soft_counter_names[why].decode()] = (<uint8_t *> &source)[:sizeof(source)]
        return sources


cdef void add_counters(soft_hca_counters *to, const soft_hca_counters *more) noexcept:
    for i in range(SOFT_C_COUNT):
        to.value[i] += more.value[i]


@cython.no_gc_clear
cdef class SoftFabric:
    """A UD queue pair of the built-in HCA."""

    cdef ipu_soft_fabric soft
    cdef SoftHca hca
    cdef int pkey_index
    cdef int connections # number of open connections
    cdef bint open

    def __cinit__(self, SoftHca hca not None, *, uint32_t qkey, uint16_t pkey, uint32_t send_depth=512,
                  uint32_t recv_depth=256, uint32_t connected_depth=0, bint needs_lid=False,
                  uint32_t qpn=0):
        cdef ipu_soft_fabric_config config
        config.qkey = qkey
        config.send_depth = send_depth
        config.recv_depth = recv_depth
        config.connected_depth = connected_depth
        config.needs_lid = needs_lid
        config.source_qpn = 0
        config.qpn = qpn
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
    def native(self) -> object:
        return lend(&self.soft.fabric, IPU_FABRIC_CAPSULE, self)

    def __dealloc__(self):
        self.close()

    @property
    def qpn(self) -> int:
        return self.soft.fabric.qpn

    def add_numbers(self, int count) -> list[int]:
        """Give the queue pair further numbers, if possible those behind its own, and return them: peers see
        as many more queue pairs, whose packets come to this one."""
        cdef uint32_t number
        numbers = []
        for at in range(count):
            check(soft_qp_add_number(self.soft.qp, self.soft.fabric.qpn + 1 + at, &number),
                  "queue pair number")
            numbers.append(number)
        return numbers

    def attach(self, bytes mgid) -> None:
        cdef in6_addr gid = address(mgid)
        if self.open:
            check(soft_qp_attach_mcast(self.soft.qp, &gid), "multicast attach")

    def detach(self, bytes mgid) -> None:
        cdef in6_addr gid = address(mgid)
        if self.open:
            check(soft_qp_detach_mcast(self.soft.qp, &gid), "multicast detach")

    def close(self) -> None:
        """Destroy the queue pair: the HCA writes no more to the pump's memory."""
        if self.connections > 0:
            raise ValueError(f"{self.hca.netdev}: a connection is still open")
        if self.open:
            self.open = False
            self.hca.fabrics -= 1
            ipu_soft_fabric_free(&self.soft)
            self.hca.drop_pkey(self.pkey_index)


@cython.no_gc_clear
cdef class SoftTxQueue:
    """A further pump sends by this queue, with the fabric's QP number and a socket of its own."""

    cdef ipu_soft_fabric soft
    cdef soft_hca *tx_hca
    cdef SoftHca hca
    cdef SoftFabric fabric

    def __cinit__(self, SoftFabric fabric not None, *, uint32_t send_depth=512):
        cdef ipu_soft_fabric_config config
        cdef SoftHca hca = fabric.hca
        if not fabric.open:
            raise ValueError(f"{hca.netdev}: the fabric is closed")
        check(soft_hca_open_tx_queue(hca.hca, hca.pkey_table[fabric.pkey_index], &self.tx_hca),
              hca.netdev)
        memset(&config, 0, sizeof(config))
        config.qkey = fabric.soft.qkey
        config.send_depth = send_depth
        config.recv_depth = 1
        config.needs_lid = fabric.soft.needs_lid
        config.source_qpn = fabric.soft.fabric.qpn
        try:
            check(ipu_soft_fabric_init(&self.soft, &self.tx_hca, &config), hca.netdev)
        except BaseException:
            soft_hca_close(self.tx_hca)
            self.tx_hca = NULL
            raise
        self.fabric = fabric
        self.hca = hca
        hca.fabrics += 1
        hca.tx_queues.add(self)

    @property
    def native(self) -> object:
        return lend(&self.soft.fabric, IPU_FABRIC_CAPSULE, self)

    cdef void add_to(self, soft_hca_counters *values) noexcept:
        cdef soft_hca_counters own
        soft_hca_counters_read(self.tx_hca, &own)
        add_counters(values, &own)

    def close(self) -> None:
        """Give the socket back, before the fabric's end. Safe to repeat."""
        if self.tx_hca == NULL:
            return
        ipu_soft_fabric_free(&self.soft)
        self.add_to(&self.hca.retired)
        soft_hca_close(self.tx_hca)
        self.tx_hca = NULL
        if self.hca.tx_queues is not None:  # None: the collector came first
            self.hca.tx_queues.discard(self)
        self.hca.fabrics -= 1
        self.fabric = None

    def __dealloc__(self):
        self.close()


@cython.no_gc_clear
cdef class SoftConnection:
    """An RC queue pair of the built-in HCA, in INIT, on the receive queue that its fabric's connections
    share."""

    cdef ipu_soft_connection soft
    cdef SoftFabric fabric

    def __cinit__(self, SoftFabric fabric not None):
        if not fabric.open:
            raise ValueError(f"{fabric.hca.netdev}: the fabric is closed")
        check(ipu_soft_connection_open(&fabric.soft.connected, &self.soft, fabric.pkey_index),
              "connected queue pair")
        self.fabric = fabric
        fabric.connections += 1

    @property
    def qpn(self) -> int:
        return self.soft.connection.qpn

    @property
    def native(self) -> object:
        return lend(&self.soft.connection, IPU_CONNECTION_CAPSULE, self)

    def program(self, attributes: RcAttributes) -> None:
        """Move the queue pair to RTR and RTS, with the attributes of an ipoibu.base.ib.RcAttributes."""
        cdef soft_rc_attr attr
        cdef ipu_dest dest = destination(attributes.destination)
        memset(&attr, 0, sizeof(attr))
        attr.path = ipu_soft_work_path(&dest)
        attr.dest_qpn = dest.qpn
        attr.path_mtu_bytes = attributes.path_mtu_bytes
        attr.rq_psn = attributes.receive_psn
        attr.sq_psn = attributes.send_psn
        attr.timeout = attributes.ack_timeout
        attr.retry_count = attributes.retries
        attr.rnr_retry = attributes.rnr_retries
        attr.min_rnr_timer = attributes.rnr_timer
        if self.fabric is not None:
            check(ipu_soft_connection_program(&self.soft, &attr), "connected queue pair")

    @property
    def retries(self) -> int:
        """The number of packets sent again."""
        return soft_qp_retransmits(self.soft.qp) if self.fabric is not None else 0

    def stop(self) -> None:
        """Move the queue pair to the error state: posted work fails."""
        if self.fabric is not None:
            ipu_soft_connection_stop(&self.soft)

    def close(self) -> None:
        """Destroy the queue pair, which the pump has released. Safe to repeat."""
        if self.fabric is not None:
            ipu_soft_connection_close(&self.soft)
            self.fabric.connections -= 1
            self.fabric = None

    def __dealloc__(self):
        self.close()


@cython.no_gc_clear
cdef class SoftGsi:
    """Queue pair 1 of the built-in HCA; one for each HCA, one thread at a time."""

    cdef ipu_soft_gsi gsi
    cdef SoftHca hca

    def __cinit__(self, SoftHca hca not None):
        hca.alive()
        check(ipu_soft_gsi_init(&self.gsi, &hca.hca), f"{hca.netdev}: queue pair 1")
        self.hca = hca
        hca.fabrics += 1

    @property
    def fd(self) -> int:
        return ipu_soft_gsi_fd(&self.gsi)

    def arm(self) -> None:
        ipu_soft_gsi_arm(&self.gsi)

    def wait_ms(self) -> int | None:
        """After a `receive` of None: the ms until another `receive` may find a datagram though `fd` is not
        readable, because a flood has used up the buffers of the queue pair."""
        cdef int wait_ms = ipu_soft_gsi_wait_ms(&self.gsi)
        return None if wait_ms < 0 else wait_ms

    def send(self, dest: Destination, uint32_t qkey, uint16_t pkey, bytes mad) -> bool:
        """Send a datagram of 256 bytes in the partition of `pkey`. False: the datagram is lost, because
        too many are under way, the destination is no address, or we are not in the partition."""
        cdef ipu_dest where = destination(dest)
        cdef int error
        if len(mad) != IPU_SOFT_GSI_MAD_LEN:
            raise ValueError(f"a management datagram has 256 bytes, not {len(mad)}")
        error = ipu_soft_gsi_send(&self.gsi, &where, qkey, pkey,
                                  <const uint8_t *>PyBytes_AS_STRING(mad))
        if error in (-EAGAIN, -EINVAL, -ENOENT):
            return False
        check(error, "queue pair 1")
        return True

    def receive(self) -> tuple[bytes, int, int, bytes] | None:
        """Return (source GID, source QPN, our P_Key of its partition, 256 bytes) of the next datagram, or
        None."""
        cdef ipu_soft_mad mad
        if not ipu_soft_gsi_receive(&self.gsi, &mad):
            return None
        return (raw_address(&mad.sgid), mad.src_qpn, mad.pkey,
                PyBytes_FromStringAndSize(<const char *>mad.data, IPU_SOFT_GSI_MAD_LEN))

    def close(self) -> None:
        if self.hca is not None:
            ipu_soft_gsi_free(&self.gsi)
            self.hca.fabrics -= 1
            self.hca = None

    def __dealloc__(self):
        self.close()


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

    def __cinit__(self, MemorySwitch switch not None, bytes gid, *, uint32_t qpn=0, uint32_t mtu_bytes=2048,
                  bint one_piece=False, bint bare_unicast=False):
        cdef ipu_memory_config config
        memset(&config, 0, sizeof(config))
        config.gid = address(gid)
        config.qpn = qpn
        config.mtu = mtu_bytes
        config.one_piece = one_piece
        config.bare_unicast = bare_unicast
        self.switch = switch
        self.port = ipu_memory_port_create(switch.switch, &config)
        if self.port == NULL:
            check(-errno, "memory port")

    @property
    def native(self) -> object:
        return lend(ipu_memory_port_fabric(self.port), IPU_FABRIC_CAPSULE, self)

    def __dealloc__(self):
        if self.port != NULL:
            ipu_memory_port_destroy(self.port)

    @property
    def qpn(self) -> int:
        return ipu_memory_port_fabric(self.port).qpn

    def attach(self, bytes mgid) -> None:
        cdef in6_addr gid = address(mgid)
        check(ipu_memory_attach(self.port, &gid), "multicast attach")

    def detach(self, bytes mgid) -> None:
        cdef in6_addr gid = address(mgid)
        check(ipu_memory_detach(self.port, &gid), "multicast detach")

    def add_tx_queue(self, uint32_t qpn) -> None:
        """Note that this queue pair, on a port with our GID, sends for us: our pump drops its echo. Not
        while the pump runs."""
        check(ipu_fabric_add_tx_queue(ipu_memory_port_fabric(self.port), qpn), "TX queue")

    def break_queue_pair(self) -> None:
        """Break the queue pair as a completion error does; the pump recovers it."""
        ipu_memory_break(self.port, 0)

    def counters(self) -> dict[str, int]:
        cdef const ipu_memory_counters *c = ipu_memory_port_counters(self.port)
        return {"tx_packets": c.tx_packets, "tx_too_big": c.tx_too_big, "tx_nobody": c.tx_nobody,
                "rx_packets": c.rx_packets, "rx_no_buffer": c.rx_no_buffer,
                "rx_too_long": c.rx_too_long, "rx_broken": c.rx_broken}


@cython.no_gc_clear
cdef class FaultyFabric:
    """A fabric that wraps another, and loses, repeats, delays, reorders and corrupts its sends."""

    cdef ipu_faults *faults
    cdef object inner

    def __cinit__(self, inner: _Native, *, double loss=0, double duplicate=0, double corrupt=0,
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
            <ipu_fabric *>PyCapsule_GetPointer(self.inner, IPU_FABRIC_CAPSULE), &config, 0, seed)
        if self.faults == NULL:
            check(-errno, "fault injection")

    @property
    def native(self) -> object:
        return lend(ipu_faults_fabric(self.faults), IPU_FABRIC_CAPSULE, self)

    def __dealloc__(self):
        if self.faults != NULL:
            ipu_faults_destroy(self.faults)

    def counters(self) -> dict[str, int]:
        cdef const ipu_faults_counters *c = ipu_faults_counters_of(self.faults)
        return {"sent": c.sent, "lost": c.lost, "duplicated": c.duplicated,
                "corrupted": c.corrupted, "reordered": c.reordered, "delayed": c.delayed,
                "too_big": c.too_big, "pool_full": c.pool_full}


@cython.no_gc_clear
cdef class UnicastLink:
    """A wrapper around a fabric: sends multicast to the peers in the group, and drops other hosts' packets.
    Any thread may call the methods."""

    cdef ipu_unicast *unicast
    cdef object inner

    def __cinit__(self, inner: _Native, *, bytes broadcast, uint32_t peers_max, uint8_t hop_limit=0):
        cdef ipu_unicast_config config
        config.broadcast = address(broadcast)
        config.peers_max = peers_max
        config.hop_limit = hop_limit
        self.inner = inner.native
        self.unicast = ipu_unicast_create(
            <ipu_fabric *>PyCapsule_GetPointer(self.inner, IPU_FABRIC_CAPSULE), &config)
        if self.unicast == NULL:
            check(-errno, "peers")

    @property
    def native(self) -> object:
        return lend(ipu_unicast_fabric(self.unicast), IPU_FABRIC_CAPSULE, self)

    def __dealloc__(self):
        if self.unicast != NULL:
            ipu_unicast_destroy(self.unicast)

    def add(self, uint64_t peer, bytes gid, uint32_t qpn) -> None:
        """Accept the peer's datagrams; the peer gets the messages of its groups once they are known.
        `FileExistsError`: another peer has this address; `OSError`: there is no room."""
        cdef in6_addr raw = address(gid)
        check(ipu_unicast_add(self.unicast, peer, &raw, qpn), "peer")

    def remove(self, uint64_t peer) -> None:
        ipu_unicast_remove(self.unicast, peer)

    def groups(self, uint64_t peer, mgids: list[bytes]) -> None:
        """Replace the set of groups that the peer is in."""
        cdef bytes raw = b"".join(mgids)
        if len(raw) != 16 * len(mgids):
            raise ValueError("an MGID has 16 bytes")
        ipu_unicast_groups(self.unicast, peer, <const in6_addr *>PyBytes_AS_STRING(raw), <int>len(mgids))

    def group(self, uint64_t peer, bytes mgid, bint is_in) -> None:
        cdef in6_addr raw = address(mgid)
        ipu_unicast_group(self.unicast, peer, &raw, is_in)

    def is_peer(self, bytes gid, uint32_t qpn) -> bool:
        """Return whether this address is a peer's."""
        cdef in6_addr raw = address(gid)
        return ipu_unicast_is_peer(self.unicast, &raw, qpn)

    def counters(self) -> dict[str, int]:
        cdef uint64_t values[IPU_UNICAST_COUNTERS_N]
        ipu_unicast_counters(self.unicast, values)
        return {ipu_unicast_counter_names[i].decode(): values[i] for i in range(IPU_UNICAST_COUNTERS_N)}


RAILS_MAX = IPU_RAILS_MAX


@cython.no_gc_clear
cdef class RailsLink:
    """A wrapper around the fabrics of several rails, None for an absent one: one of them is active, and flows
    to hosts that have several rails, too, go by all that are `up` (a bit for each). Any thread may call the
    methods."""

    cdef ipu_rails *rails
    cdef list inner
    cdef uint32_t peers_max

    def __cinit__(self, inner: list[_Native | None], *, uint32_t up, uint32_t active, uint32_t peers_max,
                  broadcast: Destination):
        cdef ipu_rails_config config
        memset(&config, 0, sizeof(config))
        if len(inner) > IPU_RAILS_MAX:
            raise ValueError(f"{len(inner)} rails, {IPU_RAILS_MAX} at most")
        self.inner = [fabric.native if fabric is not None else None for fabric in inner]
        self.peers_max = peers_max
        for i, capsule in enumerate(self.inner):
            if capsule is not None:
                config.inner[i] = <ipu_fabric *>PyCapsule_GetPointer(capsule, IPU_FABRIC_CAPSULE)
        config.count = <uint32_t>len(inner)
        config.up = up
        config.active = active
        config.peers_max = peers_max
        config.broadcast = destination(broadcast)
        self.rails = ipu_rails_create(&config)
        if self.rails == NULL:
            check(-errno, "rails")

    @property
    def native(self) -> object:
        return lend(ipu_rails_fabric(self.rails), IPU_FABRIC_CAPSULE, self)

    def __dealloc__(self):
        if self.rails != NULL:
            ipu_rails_destroy(self.rails)

    def set(self, uint32_t up, uint32_t active) -> None:
        """Set the rails that carry traffic, and the active one; read their GIDs again."""
        ipu_rails_set(self.rails, up, active)

    def assign(self, connection: object, uint32_t rail) -> None:
        """Make a connection, a capsule that the pump does not know yet, one of the rail whose fabric has made
        it."""
        ipu_rails_assign(
            self.rails,
            <ipu_connection *>PyCapsule_GetPointer(connection, IPU_CONNECTION_CAPSULE),
            rail)

    def peers(self) -> list[tuple[bytes, int, int, int]]:
        """Return GID and queue pair number of each host with several rails, the rails (a bit for each) by
        which flows go there, and those on which it has ever answered."""
        cdef uint32_t size = max(self.peers_max, 1)
        cdef ipu_rails_peer *found = <ipu_rails_peer *>calloc(size, sizeof(ipu_rails_peer))
        if found == NULL:
            raise MemoryError("rails")
        cdef uint32_t n = ipu_rails_peers(self.rails, found, size)
        peers = [
            (raw_address(&found[i].gid), found[i].qpn, found[i].usable, found[i].reached)
            for i in range(n)
        ]
        free(found)
        return peers

    def counters(self) -> dict[str, int]:
        cdef uint64_t values[IPU_RAILS_COUNTERS_N]
        ipu_rails_counters(self.rails, values)
        return {ipu_rails_counter_names[i].decode(): values[i] for i in range(IPU_RAILS_COUNTERS_N)}

    def traffic(self, uint32_t rail) -> dict[str, int]:
        """Return the packets and bytes of one rail, from the encapsulation header on."""
        cdef uint64_t values[IPU_RAILS_TRAFFIC_N]
        if rail >= len(self.inner):
            raise IndexError(rail)
        ipu_rails_traffic(self.rails, rail, values)
        return {ipu_rails_traffic_names[i].decode(): values[i] for i in range(IPU_RAILS_TRAFFIC_N)}
