# SPDX-License-Identifier: BSD-2-Clause
# Fabrics over others, as fabric.pyx includes them: faults, unicast links, rails.

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
