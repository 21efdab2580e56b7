# SPDX-License-Identifier: BSD-2-Clause
# The in-process fabric, as fabric.pyx includes it.

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
