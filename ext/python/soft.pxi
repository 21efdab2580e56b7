# SPDX-License-Identifier: BSD-2-Clause
# The built-in HCA, as fabric.pyx includes it.

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
        SOFT_CRC32_VECTORS
        SOFT_CRC32_ISAL
        SOFT_CRC32_DEFLATE
    soft_crc32 soft_crc32_used()

cdef soft_crc32 _crc32 = soft_crc32_used()
#: dict[str, bool]
FABRIC_FEATURES = {  #: dict[str, bool]
    "isal": _crc32 == SOFT_CRC32_ISAL,
    "libdeflate": _crc32 == SOFT_CRC32_DEFLATE,
    "vpclmulqdq": _crc32 == SOFT_CRC32_VECTORS,
}


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
