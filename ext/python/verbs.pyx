# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True, annotation_typing=False
"""The verbs fabric (ext/verbs, ext/mesh). It does not import pyverbs. Types: ipoibu/_verbs.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport ENOTCONN
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, strerror
from native cimport *

cdef extern from "<infiniband/verbs.h>" nogil:
    union ibv_gid:
        uint8_t raw[16]
    struct ibv_context:
        int async_fd
    struct ibv_qp:
        ibv_context *context
        uint32_t qp_num
    enum ibv_qp_type:
        IBV_QPT_UD
        IBV_QPT_RC
    int ibv_attach_mcast(ibv_qp *qp, const ibv_gid *gid, uint16_t lid)
    int ibv_detach_mcast(ibv_qp *qp, const ibv_gid *gid, uint16_t lid)

cdef extern from "python/pyverbs_qp.h":
    struct ipu_pyverbs_qp_expected:
        uint32_t qp_num
        int cmd_fd
        ibv_qp_type qp_type
    ibv_qp *ipu_pyverbs_qp_find(object qp, const ipu_pyverbs_qp_expected *expected,
                                const char **why)

cdef extern from "verbs/verbs.h" nogil:
    struct ipu_verbs:
        pass
    struct ipu_verbs_config:
        ibv_qp *qp
        in6_addr gid
        uint32_t mtu
        uint32_t qkey
        uint32_t max_ah
        uint16_t pkey_index
        uint8_t port
        uint8_t sgid_index
        bint resolves
        bint owns_events
        ipu_verbs *leader
    enum:
        IPU_VERBS_COUNTERS_N
        IPU_VERBS_PORT_DOWN
        IPU_VERBS_PORT_CHANGED
        IPU_VERBS_FATAL
        IPU_VERBS_PKEYS_CHANGED
        IPU_VERBS_SUBNET_CHANGED
    int ipu_verbs_create(const ipu_verbs_config *config, ipu_verbs **out)
    void ipu_verbs_free(ipu_verbs *verbs)
    void ipu_verbs_destroy(ipu_verbs *verbs)
    ipu_fabric *ipu_verbs_fabric(ipu_verbs *verbs)
    void ipu_verbs_rebind(ipu_verbs *verbs, const in6_addr *gid, uint8_t sgid_index)
    void ipu_verbs_break(ipu_verbs *verbs)
    unsigned int ipu_verbs_events(ipu_verbs *verbs)
    void ipu_verbs_counters(const ipu_verbs *verbs, uint64_t *values)
    const char *const ipu_verbs_counter_names[IPU_VERBS_COUNTERS_N]

cdef extern from "verbs/connected.h" nogil:
    struct ipu_verbs_connection:
        ipu_connection connection
    int ipu_verbs_connect(ipu_verbs *verbs, const ibv_qp *pattern, bint loses)
    int ipu_verbs_connection_init(ipu_verbs_connection *connection, ipu_verbs *verbs, ibv_qp *qp)
    void ipu_verbs_connection_program(ipu_verbs_connection *connection, uint32_t receive_psn,
                                      uint32_t path_mtu)
    void ipu_verbs_connection_end(ipu_verbs_connection *connection)
    void ipu_verbs_connection_free(ipu_verbs_connection *connection)

cdef extern from "mesh/mesh.h" nogil:
    struct ipu_mesh:
        pass
    struct ipu_mesh_config:
        const ibv_qp *pattern
        in6_addr gid
        uint32_t qpn
        uint32_t mtu
        uint32_t peers_max
        in6_addr broadcast
    struct ipu_mesh_event:
        uint64_t id
        int type
        uint32_t len
        uint8_t *message
    enum:
        IPU_MESH_WINDOW
        IPU_MESH_SLACK
        IPU_MESH_CONTROL_MAX
        IPU_MESH_READY
        IPU_MESH_CONTROL
        IPU_MESH_BROKEN
        IPU_MESH_GONE
        IPU_MESH_COUNTERS_N
    int ipu_mesh_create(const ipu_mesh_config *config, ipu_mesh **out)
    void ipu_mesh_free(ipu_mesh *mesh)
    void ipu_mesh_destroy(ipu_mesh *mesh)
    ipu_fabric *ipu_mesh_fabric(ipu_mesh *mesh)
    int ipu_mesh_add(ipu_mesh *mesh, uint64_t id, ibv_qp *qp)
    int ipu_mesh_name(ipu_mesh *mesh, uint64_t id, const in6_addr *gid, uint32_t qpn,
                      uint32_t window, bint may_send)
    int ipu_mesh_groups(ipu_mesh *mesh, uint64_t id, const in6_addr *mgids, int n)
    int ipu_mesh_group(ipu_mesh *mesh, uint64_t id, const in6_addr *mgid, bint is_in)
    int ipu_mesh_send_control(ipu_mesh *mesh, uint64_t id, const void *message, size_t len)
    int ipu_mesh_remove(ipu_mesh *mesh, uint64_t id)
    int ipu_mesh_forget(ipu_mesh *mesh, uint64_t id)
    bint ipu_mesh_next_event(ipu_mesh *mesh, ipu_mesh_event *event)
    int ipu_mesh_event_fd(const ipu_mesh *mesh)
    void ipu_mesh_counters(const ipu_mesh *mesh, uint64_t *values)
    const char *const ipu_mesh_counter_names[IPU_MESH_COUNTERS_N]

cdef extern from "soft/membership.h" nogil:
    struct soft_membership:
        pass
    int soft_membership_open(soft_membership *m, unsigned int ifindex)
    void soft_membership_close(soft_membership *m)
    int soft_membership_join(soft_membership *m, const in6_addr *group)
    void soft_membership_leave(soft_membership *m, const in6_addr *group, int number)

PORT_DOWN = IPU_VERBS_PORT_DOWN
PORT_CHANGED = IPU_VERBS_PORT_CHANGED
FATAL = IPU_VERBS_FATAL
PKEYS_CHANGED = IPU_VERBS_PKEYS_CHANGED
SUBNET_CHANGED = IPU_VERBS_SUBNET_CHANGED

MESH_READY = IPU_MESH_READY
MESH_CONTROL = IPU_MESH_CONTROL
MESH_BROKEN = IPU_MESH_BROKEN
MESH_GONE = IPU_MESH_GONE
MESH_WINDOW = IPU_MESH_WINDOW
MESH_RECEIVES = IPU_MESH_WINDOW + IPU_MESH_SLACK
MESH_CONTROL_BYTES = IPU_MESH_CONTROL_MAX


cdef dict named(const char *const *names, const uint64_t *values, int n):
    return {names[i].decode(): values[i] for i in range(n)}


cdef ibv_qp *inside(object qp, ibv_qp_type qp_type, int cmd_fd) except NULL:
    """Return the queue pair inside a QP object of pyverbs; `LayoutError` if it is not in the expected
    place."""
    cdef ipu_pyverbs_qp_expected expected
    cdef const char *why = NULL
    cdef ibv_qp *raw
    expected.qp_num = qp.qp_num
    expected.cmd_fd = cmd_fd
    expected.qp_type = qp_type
    raw = ipu_pyverbs_qp_find(qp, &expected, &why)
    if raw == NULL:
        raise LayoutError(why.decode())
    return raw


class LayoutError(Exception):
    """A QP object of this pyverbs has an unknown layout."""


@cython.no_gc_clear
cdef class VerbsFabric:
    """Posts and polls on a UD queue pair of pyverbs, and keeps that object alive."""

    cdef ipu_verbs *verbs
    cdef ibv_qp *raw
    cdef object qp
    cdef int async_fd  # -1: another object reads the events
    cdef VerbsFabric leader  # of a TX queue
    cdef bint open

    def __cinit__(self, qp: _QueuePair, *, int cmd_fd, bytes gid, uint8_t sgid_index, uint8_t port,
                  uint16_t pkey_index, uint32_t qkey, uint32_t mtu_bytes, uint32_t max_ah,
                  bint resolves, bint owns_events, VerbsFabric leader=None):
        cdef ipu_verbs_config config
        config.leader = leader.verbs if leader is not None else NULL
        config.qp = inside(qp, IBV_QPT_UD, cmd_fd)
        config.gid = address(gid)
        config.sgid_index = sgid_index
        config.port = port
        config.pkey_index = pkey_index
        config.qkey = qkey
        config.mtu = mtu_bytes
        config.max_ah = max_ah
        config.resolves = resolves
        config.owns_events = owns_events
        check(ipu_verbs_create(&config, &self.verbs), "queue pair")
        self.raw = config.qp
        self.async_fd = config.qp.context.async_fd if owns_events else -1
        self.qp = qp
        self.leader = leader
        self.open = True

    def __dealloc__(self):
        if self.verbs != NULL:
            ipu_verbs_destroy(self.verbs)

    @property
    def native(self) -> object:
        return lend(ipu_verbs_fabric(self.verbs), IPU_FABRIC_CAPSULE, self)

    @property
    def qpn(self) -> int:
        return ipu_verbs_fabric(self.verbs).qpn

    def connect(self, pattern: _QueuePair, *, int cmd_fd, bint loses_receives) -> None:
        """Allow connections from now on: RC queue pairs with the queues of `pattern`.

        With `loses_receives` the device never completes the receive of a message that its queue pair
        did not finish; the fabric finds such receives."""
        check(ipu_verbs_connect(self.verbs, inside(pattern, IBV_QPT_RC, cmd_fd), loses_receives),
              "connected mode")

    def attach(self, bytes mgid, uint16_t mlid) -> None:
        """Receive the group's datagrams; `Membership` has the IP-level membership.

        `mlid` is the group's LID on InfiniBand, 0 elsewhere."""
        cdef ibv_gid gid
        cdef int error = ENOTCONN
        address(mgid)
        memcpy(gid.raw, PyBytes_AS_STRING(mgid), 16)
        if self.open:
            with nogil:
                error = ibv_attach_mcast(self.raw, &gid, mlid)
        check(-abs(error), "multicast attach")

    def detach(self, bytes mgid, uint16_t mlid) -> None:
        cdef ibv_gid gid
        cdef int error = 0
        address(mgid)
        memcpy(gid.raw, PyBytes_AS_STRING(mgid), 16)
        if self.open:
            with nogil:
                error = ibv_detach_mcast(self.raw, &gid, mlid)
        check(-abs(error), "multicast detach")

    def rebind(self, bytes gid, uint8_t sgid_index) -> None:
        """Send from this new address of the port from now on."""
        cdef in6_addr new = address(gid)
        ipu_verbs_rebind(self.verbs, &new, sgid_index)

    def break_queue_pair(self) -> None:
        """Break the queue pair as a completion error does; the pump recovers it."""
        ipu_verbs_break(self.verbs)

    @property
    def event_fd(self) -> int | None:
        """A descriptor that is readable while `events` has events; None where another object reads them, or
        after `close`."""
        return self.async_fd if self.open and self.async_fd >= 0 else None

    def events(self) -> int:
        """Return the device's events since the last call: PORT_DOWN .. SUBNET_CHANGED, or'ed."""
        return ipu_verbs_events(self.verbs)

    def counters(self) -> dict[str, int]:
        cdef uint64_t values[IPU_VERBS_COUNTERS_N]
        ipu_verbs_counters(self.verbs, values)
        return named(ipu_verbs_counter_names, values, IPU_VERBS_COUNTERS_N)

    def close(self) -> None:
        """Give back address handles and memory, after the end of queue pair and pump."""
        if self.open:
            self.open = False
            with nogil:
                ipu_verbs_free(self.verbs)
            self.qp = None


@cython.no_gc_clear
cdef class VerbsConnection:
    """An RC queue pair of pyverbs as the pump sees it; keeps queue pair and fabric alive."""

    cdef ipu_verbs_connection connection
    cdef VerbsFabric fabric
    cdef object qp

    def __cinit__(self, VerbsFabric fabric not None, qp: _QueuePair, *, int cmd_fd):
        self.fabric = fabric
        self.qp = qp
        check(ipu_verbs_connection_init(&self.connection, fabric.verbs, inside(qp, IBV_QPT_RC, cmd_fd)),
              "connected queue pair")

    def __dealloc__(self):
        ipu_verbs_connection_free(&self.connection)

    @property
    def native(self) -> object:
        return lend(&self.connection.connection, IPU_CONNECTION_CAPSULE, self)

    @property
    def qpn(self) -> int:
        return self.connection.connection.qpn

    def program(self, uint32_t receive_psn, uint32_t path_mtu_bytes) -> None:
        """Tell the peer's first PSN and the path MTU, before the queue pair goes to RTR."""
        ipu_verbs_connection_program(&self.connection, receive_psn, path_mtu_bytes)

    def end(self) -> None:
        """Tell that the queue pair, which the pump has released, is destroyed. Safe to repeat."""
        with nogil:
            ipu_verbs_connection_end(&self.connection)


@cython.no_gc_clear
cdef class VerbsMesh:
    """A fabric of datagrams over RC queue pairs of pyverbs (ext/verbs/mesh.h)."""

    cdef ipu_mesh *mesh
    cdef dict qps
    cdef bint open

    def __cinit__(self, pattern: _QueuePair, *, int cmd_fd, bytes gid, uint32_t qpn, uint32_t mtu_bytes,
                  uint32_t peers_max, bytes broadcast):
        cdef ipu_mesh_config config
        config.pattern = inside(pattern, IBV_QPT_RC, cmd_fd)
        config.gid = address(gid)
        config.qpn = qpn
        config.mtu = mtu_bytes
        config.peers_max = peers_max
        config.broadcast = address(broadcast)
        check(ipu_mesh_create(&config, &self.mesh), "mesh")
        self.qps = {}
        self.open = True

    def __dealloc__(self):
        if self.mesh != NULL:
            ipu_mesh_destroy(self.mesh)

    @property
    def native(self) -> object:
        return lend(ipu_mesh_fabric(self.mesh), IPU_FABRIC_CAPSULE, self)

    @property
    def event_fd(self) -> int:
        """A descriptor that is readable while `next_event` has events."""
        return ipu_mesh_event_fd(self.mesh)

    def add(self, uint64_t peer, qp: _QueuePair, *, int cmd_fd) -> None:
        """Post receives for a queue pair in INIT; MESH_READY follows."""
        check(ipu_mesh_add(self.mesh, peer, inside(qp, IBV_QPT_RC, cmd_fd)), "peer")
        self.qps[peer] = qp

    def name(self, uint64_t peer, bytes gid, uint32_t qpn, uint32_t window, bint may_send) -> None:
        """Set the peer's address, its window of messages, and whether we may send first."""
        cdef in6_addr peer_gid = address(gid)
        check(ipu_mesh_name(self.mesh, peer, &peer_gid, qpn, window, may_send), "peer")

    def groups(self, uint64_t peer, mgids: list[bytes]) -> None:
        """Replace the set of groups that the peer is in."""
        cdef bytes raw = b"".join(mgids)
        if len(raw) != 16 * len(mgids):
            raise ValueError("a group has 16 bytes")
        check(ipu_mesh_groups(self.mesh, peer, <const in6_addr *>PyBytes_AS_STRING(raw),
                              <int>len(mgids)), "groups")

    def group(self, uint64_t peer, bytes mgid, bint is_in) -> None:
        cdef in6_addr group = address(mgid)
        check(ipu_mesh_group(self.mesh, peer, &group, is_in), "group")

    def send_control(self, uint64_t peer, bytes message) -> None:
        """Send a control message, in order, as soon as there is room."""
        check(ipu_mesh_send_control(self.mesh, peer, PyBytes_AS_STRING(message), len(message)),
              "message")

    def remove(self, uint64_t peer) -> None:
        """Send nothing more to the peer: after MESH_GONE the caller destroys its queue pair, then calls
        `forget`."""
        check(ipu_mesh_remove(self.mesh, peer), "peer")

    def forget(self, uint64_t peer) -> None:
        """Take the buffers back, after the caller has destroyed the queue pair."""
        self.qps.pop(peer, None)
        check(ipu_mesh_forget(self.mesh, peer), "peer")

    def next_event(self) -> tuple[int, int, bytes] | None:
        """Return the next event as (peer, kind, message), or None."""
        cdef ipu_mesh_event event
        if not ipu_mesh_next_event(self.mesh, &event):
            return None
        return event.id, event.type, PyBytes_FromStringAndSize(<char *>event.message, event.len)

    def counters(self) -> dict[str, int]:
        cdef uint64_t values[IPU_MESH_COUNTERS_N]
        ipu_mesh_counters(self.mesh, values)
        return named(ipu_mesh_counter_names, values, IPU_MESH_COUNTERS_N)

    def close(self) -> None:
        """Give memory back, after the end of queue pairs and pump."""
        if self.open:
            self.open = False
            ipu_mesh_free(self.mesh)
            self.qps.clear()


cdef class Membership:
    """IPv6 group memberships of a net device in the network namespace of the opening thread."""

    cdef soft_membership membership
    cdef bint open

    def __cinit__(self, unsigned int ifindex):
        check(soft_membership_open(&self.membership, ifindex), "group membership")
        self.open = True

    def __dealloc__(self):
        self.close()

    def join(self, bytes group) -> int:
        """Join a group; return a number for `leave`."""
        cdef in6_addr addr = address(group)
        cdef int number
        if not self.open:
            raise OSError(ENOTCONN, strerror(ENOTCONN).decode())
        with nogil:
            number = soft_membership_join(&self.membership, &addr)
        check(number, "group membership")
        return number

    def leave(self, bytes group, int number) -> None:
        cdef in6_addr addr = address(group)
        if self.open:
            with nogil:
                soft_membership_leave(&self.membership, &addr, number)

    def close(self) -> None:
        if self.open:
            self.open = False
            soft_membership_close(&self.membership)
