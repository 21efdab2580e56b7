# SPDX-License-Identifier: BSD-2-Clause
# What the C headers declare, as far as the Cython face uses it.

cdef extern from "<netinet/in.h>" nogil:
    struct in6_addr:
        uint8_t s6_addr[16]

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int usec)

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
    struct ipu_connection:
        uint32_t qpn
        uint64_t tx_messages
        uint64_t tx_bytes
        uint64_t rx_messages
        uint64_t rx_bytes
    struct ipu_fabric:
        in6_addr gid
        uint32_t qpn
        uint32_t mtu
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

cdef extern from "device/tun.h" nogil:
    struct ipu_tun:
        ipu_device device
    int ipu_tun_init(ipu_tun *tun, const int *fds, uint32_t count, uint32_t offload)

cdef extern from "core/syscall_cost.h" nogil:
    const uint64_t IPU_SYSCALL_DEAR_NS
    uint64_t ipu_syscall_cost_ns()

cdef extern from "device/tun_ring.h" nogil:
    struct ipu_tun_ring:
        pass
    int ipu_tun_ring_create(const int *fds, uint32_t count, uint32_t offload, bint always,
                            ipu_tun_ring **out)
    void ipu_tun_ring_destroy(ipu_tun_ring *tun)
    ipu_device *ipu_tun_ring_device(ipu_tun_ring *tun)

cdef extern from "device/loan.h" nogil:
    const uint32_t IPU_INDEX_NONE
    struct ipu_index_ring:
        pass
    struct ipu_loan:
        uint32_t packet_bytes
        ipu_index_ring returned
    void ipu_index_ring_push(ipu_index_ring *ring, uint32_t index)
    void ipu_loan_hold(ipu_loan *loan)
    void ipu_loan_drop(ipu_loan *loan)
    uint32_t ipu_loan_reserve(ipu_loan *loan)
    void ipu_loan_cancel(ipu_loan *loan, uint32_t index)
    uint8_t *ipu_loan_tx_packet(const ipu_loan *loan, uint32_t index)

cdef extern from "device/queue.h" nogil:
    struct ipu_queue:
        ipu_device device
        ipu_ring to_pump
        ipu_ring from_pump
        ipu_loan *loan
    bint ipu_queue_send(ipu_queue *queue, const void *packet, uint32_t len)
    bint ipu_queue_send_frame(ipu_queue *queue, uint32_t index, uint32_t len)
    const uint8_t *ipu_queue_peek(ipu_queue *queue, uint32_t *index, uint32_t *len)
    void ipu_queue_detach(ipu_queue *queue)
    int ipu_queue_init(ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes)
    void ipu_queue_free(ipu_queue *queue)

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
    enum:
        SOFT_C_COUNT
        SOFT_MAX_PKEYS
    struct soft_hca_counters:
        uint64_t value[SOFT_C_COUNT]
    int soft_hca_open(const char *netdev, soft_hca **out)
    int soft_hca_open_tx_queue(soft_hca *hca, uint16_t pkey, soft_hca **out)
    void soft_hca_close(soft_hca *hca)
    void soft_hca_query(const soft_hca *hca, soft_hca_attr *attr)
    int soft_hca_check(soft_hca *hca)
    int soft_hca_set_pkeys(soft_hca *hca, const uint16_t *pkeys, int n)
    void soft_hca_counters_read "soft_hca_counters" (soft_hca *hca, soft_hca_counters *out)
    const char *soft_counter_names[SOFT_C_COUNT]
    uint64_t soft_qp_retransmits(const soft_qp *qp)
    int soft_qp_attach_mcast(soft_qp *qp, const in6_addr *mgid)
    int soft_qp_detach_mcast(soft_qp *qp, const in6_addr *mgid)

    struct soft_ah_attr:
        in6_addr dgid
        uint32_t flow_label
        uint8_t traffic_class
        uint8_t hop_limit
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
    int ipu_soft_fabric_init(ipu_soft_fabric *soft, soft_hca **hca,
                             const ipu_soft_fabric_config *config)
    void ipu_soft_fabric_free(ipu_soft_fabric *soft)

cdef extern from "pump/counters.h" nogil:
    enum:
        IPU_COUNTERS_N
    struct ipu_counters:
        pass
    void ipu_counters_read(const ipu_counters *counters, uint64_t *values)
    const char *ipu_counters_names[IPU_COUNTERS_N]

cdef extern from "pump/pump_abi.h" nogil:
    struct ipu_command:
        uint32_t type
        uint32_t len
        in6_addr key
        in6_addr via
        ipu_dest dest
        uint32_t forward
        uint32_t mtu
        uint32_t prefix_len
        uint32_t superframe_bytes
        uint64_t token
        ipu_connection *native
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
        IPU_COMMAND_CONNECTION_ADD
        IPU_COMMAND_CONNECTION_DEL
        IPU_COMMAND_TX_MODE
        IPU_TX_UD
        IPU_TX_UD_NOTIFY
        IPU_TX_RC
        IPU_EVENT_MISS
        IPU_EVENT_USED
        IPU_EVENT_UNREACHABLE
        IPU_EVENT_TOO_BIG
        IPU_EVENT_HOST
        IPU_EVENT_FRAME
        IPU_EVENT_FABRIC
        IPU_EVENT_DEVICE
        IPU_EVENT_SYNC
        IPU_EVENT_RC_WANTED
        IPU_EVENT_CONNECTION_BROKEN
        IPU_EVENT_CONNECTION_GONE
        IPU_EVENT_GRH

cdef extern from "pump/pump.h" nogil:
    struct ipu_pump:
        pass
    struct ipu_pump_config:
        ipu_fabric *fabric
        ipu_device *device
        uint32_t mtu
        uint32_t device_mtu
        uint32_t tx_frames
        uint32_t rx_frames
        uint32_t connected_frames
        uint32_t neigh_max
        uint32_t route_max
        uint32_t ah_max
        uint32_t command_bytes
        uint32_t event_bytes
        uint32_t capture_bytes
        uint32_t busy_poll_us
        bint adaptive
    int ipu_pump_create(const ipu_pump_config *config, ipu_pump **out)
    void ipu_pump_destroy(ipu_pump *pump)
    int ipu_pump_start(ipu_pump *pump)
    void ipu_pump_stop(ipu_pump *pump)
    int ipu_pump_step(ipu_pump *pump, int max)
    ipu_ring *ipu_pump_commands(ipu_pump *pump)
    ipu_ring *ipu_pump_events(ipu_pump *pump)
    ipu_ring *ipu_pump_captured(ipu_pump *pump)
    const ipu_counters *ipu_pump_counters(const ipu_pump *pump)

cdef extern from "device/relay.h" nogil:
    int ipu_relay_run(int first, int second)
