# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True, annotation_typing=False
"""The pump: its commands, events, captures and counters. Types: pump.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from native cimport *

cdef extern from "<unistd.h>" nogil:
    int usleep(unsigned int usec)

cdef extern from "pump/records/counters.h" nogil:
    enum:
        IPU_COUNTERS_N
    struct ipu_counters:
        pass
    void ipu_counters_read(const ipu_counters *counters, uint64_t *values)
    const char *ipu_counters_names[IPU_COUNTERS_N]

cdef extern from "pump/records/pump_abi.h" nogil:
    struct ipu_neigh_set:
        in6_addr next_hop
        ipu_dest dest
        uint32_t action
        uint32_t mtu
    struct ipu_neigh_del:
        in6_addr next_hop
    struct ipu_route_set:
        in6_addr prefix
        in6_addr gateway
        uint32_t prefix_len
        uint32_t kind
        uint32_t fields
    struct ipu_own_set:
        in6_addr ip
        uint32_t ours
    struct ipu_guest_set:
        in6_addr ip
        uint8_t mac[6]
        uint8_t firm
    struct ipu_guest_del:
        in6_addr ip
    struct ipu_guest_qpn_set:
        uint8_t mac[6]
        uint32_t qpn
    struct ipu_mac_set:
        uint8_t mac[6]
    struct ipu_host_mac_set:
        in6_addr gid
        uint32_t qpn
        uint8_t mac[6]
    struct ipu_host_mac_del:
        in6_addr gid
        uint32_t qpn
    struct ipu_route_del:
        in6_addr prefix
        uint32_t prefix_len
    struct ipu_route_answer_set:
        in6_addr gateway
        uint32_t kind
        uint32_t hops
        uint32_t send
    struct ipu_send_frame:
        ipu_dest dest
        uint32_t source_qpn
    struct ipu_busy_poll_set:
        uint32_t busy_poll_us
        uint32_t adaptive
    struct ipu_capture_set:
        uint32_t snap_len
    struct ipu_sync:
        uint64_t token
    struct ipu_connection_add:
        uint64_t id
        ipu_connection *native
        uint32_t superframes
    struct ipu_connection_del:
        uint64_t id
    struct ipu_tx_mode_set:
        ipu_dest dest
        uint32_t mode
        uint32_t mtu
        uint32_t superframe_bytes
        uint64_t id
    struct ipu_command:
        uint32_t type
        uint32_t len
        ipu_neigh_set neigh_set
        ipu_neigh_del neigh_del
        ipu_route_set route_set
        ipu_route_del route_del
        ipu_own_set own_set
        ipu_guest_set guest_set
        ipu_guest_del guest_del
        ipu_guest_qpn_set guest_qpn_set
        ipu_mac_set mac_set
        ipu_host_mac_set host_mac_set
        ipu_host_mac_del host_mac_del
        ipu_route_answer_set route_answer
        ipu_send_frame send_frame
        ipu_capture_set capture
        ipu_busy_poll_set busy_poll
        ipu_sync sync
        ipu_connection_add connection_add
        ipu_connection_del connection_del
        ipu_tx_mode_set tx_mode_set
    struct ipu_neigh_refused:
        in6_addr next_hop
        uint32_t error
    struct ipu_too_big:
        in6_addr next_hop
        uint32_t mtu
    struct ipu_frame_received:
        in6_addr sgid
        in6_addr dgid
        uint32_t src_qpn
        uint32_t has_grh
    struct ipu_fabric_state:
        uint32_t working
    struct ipu_device_failed:
        uint32_t error
    struct ipu_rc_wanted:
        in6_addr gid
        uint32_t qpn
    struct ipu_connection_event:
        uint64_t id
    struct ipu_frame_dropped:
        ipu_frame_received frame
        uint32_t counter
    struct ipu_connection_dropped:
        ipu_connection_event connection
        uint32_t counter
    struct ipu_event:
        uint32_t type
        uint32_t len
        in6_addr next_hop
        ipu_neigh_refused neigh_refused
        ipu_too_big too_big
        ipu_frame_received frame
        ipu_fabric_state fabric
        ipu_device_failed device
        ipu_sync sync
        ipu_rc_wanted rc_wanted
        ipu_connection_event connection
        ipu_frame_dropped frame_dropped
        ipu_connection_dropped connection_dropped
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
        IPU_COMMAND_OWN_SET
        IPU_COMMAND_GUEST_SET
        IPU_COMMAND_GUEST_DEL
        IPU_COMMAND_GUEST_QPN_SET
        IPU_COMMAND_MAC_SET
        IPU_COMMAND_HOST_MAC_SET
        IPU_COMMAND_HOST_MAC_DEL
        IPU_COMMAND_ROUTE_ANSWER
        IPU_COMMAND_SEND_FRAME
        IPU_COMMAND_SEND_PACKET
        IPU_COMMAND_FORWARD
        IPU_COMMAND_DELIVER
        IPU_COMMAND_CAPTURE
        IPU_COMMAND_BUSY_POLL
        IPU_COMMAND_DHCP_WATCH
        IPU_COMMAND_SYNC
        IPU_COMMAND_CONNECTION_ADD
        IPU_COMMAND_CONNECTION_DEL
        IPU_COMMAND_TX_MODE_SET
        IPU_EVENT_TYPES
        IPU_EVENT_CONNECTION_GONE
        IPU_EVENT_OF_next_hop
        IPU_EVENT_OF_too_big
        IPU_EVENT_OF_frame
        IPU_EVENT_OF_frame_dropped
        IPU_EVENT_OF_connection
        IPU_EVENT_OF_connection_dropped
        IPU_EVENT_OF_neigh_refused
        IPU_EVENT_OF_rc_wanted
        IPU_EVENT_OF_fabric
        IPU_EVENT_OF_device
        IPU_EVENT_OF_sync
        IPU_TX_UD
        IPU_TX_UD_NOTIFY
        IPU_TX_RC
        IPU_TX_UD_CONNECTING
    struct ipu_event_kind:
        const char *name
        int member
    const ipu_event_kind ipu_event_kinds[]

cdef extern from "pump/packets/flow_key.h" nogil:
    enum:
        IPU_ROUTE_FIELD_SOURCE
        IPU_ROUTE_FIELD_TOS
        IPU_ROUTE_FIELD_PORTS

cdef extern from "pump/tables/neigh.h" nogil:
    enum:
        IPU_NEIGH_SEND
        IPU_NEIGH_NOTIFY
        IPU_NEIGH_HOLD
        IPU_NEIGH_UNREACHABLE

cdef extern from "pump/tables/route.h" nogil:
    enum:
        IPU_ROUTE_ON_LINK
        IPU_ROUTE_GATEWAY
        IPU_ROUTE_BROADCAST
        IPU_ROUTE_UNREACHABLE
        IPU_ROUTE_MULTIPATH
        IPU_ROUTE_ASK
    struct ipu_hop:
        in6_addr gateway
        uint32_t weight
        uint32_t on_link

cdef extern from "pump/loop/pump.h" nogil:
    struct ipu_pump:
        pass
    struct ipu_pump_config:
        ipu_fabric *fabric
        ipu_device *device
        uint32_t mtu
        uint32_t device_mtu
        uint32_t tcp_packet_bytes
        uint32_t tx_frames
        uint32_t rx_frames
        uint32_t connected_frames
        uint32_t frames_halved
        uint32_t neigh_max
        uint32_t route_max
        uint32_t route_answer_max
        uint32_t ah_max
        uint32_t resolution_parts
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


# Each line of IPU_EVENTS in pump_abi.h: its number by its name, and EVENT_ with its name.
EVENTS = {ipu_event_kinds[number].name.decode(): number  #: dict[str, int]
          for number in range(1, IPU_EVENT_TYPES)}
globals().update({f"EVENT_{name}": number for name, number in EVENTS.items()})
TX_UD = IPU_TX_UD
TX_UD_NOTIFY = IPU_TX_UD_NOTIFY
TX_RC = IPU_TX_RC
TX_UD_CONNECTING = IPU_TX_UD_CONNECTING
NEIGH_SEND = IPU_NEIGH_SEND
NEIGH_NOTIFY = IPU_NEIGH_NOTIFY
NEIGH_HOLD = IPU_NEIGH_HOLD
NEIGH_UNREACHABLE = IPU_NEIGH_UNREACHABLE
ROUTE_ON_LINK = IPU_ROUTE_ON_LINK
ROUTE_GATEWAY = IPU_ROUTE_GATEWAY
ROUTE_BROADCAST = IPU_ROUTE_BROADCAST
ROUTE_UNREACHABLE = IPU_ROUTE_UNREACHABLE
ROUTE_MULTIPATH = IPU_ROUTE_MULTIPATH
ROUTE_ASK = IPU_ROUTE_ASK
ROUTE_FIELD_SOURCE = IPU_ROUTE_FIELD_SOURCE
ROUTE_FIELD_TOS = IPU_ROUTE_FIELD_TOS
ROUTE_FIELD_PORTS = IPU_ROUTE_FIELD_PORTS

cdef class Event:
    """One event of the pump. `type` says which of the other fields are set (ext/pump/records/pump_abi.h)."""

    cdef readonly int type
    cdef readonly bytes data
    # Of each field: the members of the union that set it.
    cdef readonly bytes next_hop  # next_hop, too_big, neigh_refused
    cdef readonly int mtu  # too_big: largest packet of the next hop, bytes
    cdef readonly int src_qpn  # frame, frame_dropped
    cdef readonly bytes sgid  #: bytes | None; frame, frame_dropped: None without a GRH
    cdef readonly bytes dgid  #: bytes | None; as `sgid`
    cdef readonly bint working  # fabric: false when the queue pair broke
    cdef readonly int error  # device, neigh_refused: errno
    cdef readonly uint64_t token  # sync
    cdef readonly int qpn  # rc_wanted: with `gid` the destination
    cdef readonly bytes gid  # rc_wanted
    cdef readonly uint64_t connection  # connection, connection_dropped
    cdef readonly str counter  # frame_dropped, connection_dropped: where the pump counted the message


cdef void decode_origin(Event event, const ipu_frame_received *frame):
    event.src_qpn = frame.src_qpn
    if frame.has_grh:
        event.sgid = raw_address(&frame.sgid)
        event.dgid = raw_address(&frame.dgid)


cdef void decode(Event event, const ipu_event *record):
    """Set the fields that the record's member of the union has."""
    event.type = record.type
    cdef int member = ipu_event_kinds[record.type].member
    if member == IPU_EVENT_OF_next_hop:
        event.next_hop = raw_address(&record.next_hop)
    elif member == IPU_EVENT_OF_neigh_refused:
        event.next_hop = raw_address(&record.neigh_refused.next_hop)
        event.error = record.neigh_refused.error
    elif member == IPU_EVENT_OF_too_big:
        event.next_hop = raw_address(&record.too_big.next_hop)
        event.mtu = record.too_big.mtu
    elif member == IPU_EVENT_OF_frame:
        decode_origin(event, &record.frame)
    elif member == IPU_EVENT_OF_frame_dropped:
        decode_origin(event, &record.frame_dropped.frame)
        event.counter = ipu_counters_names[record.frame_dropped.counter].decode()
    elif member == IPU_EVENT_OF_connection_dropped:
        event.connection = record.connection_dropped.connection.id
        event.counter = ipu_counters_names[record.connection_dropped.counter].decode()
    elif member == IPU_EVENT_OF_fabric:
        event.working = record.fabric.working != 0
    elif member == IPU_EVENT_OF_device:
        event.error = record.device.error
    elif member == IPU_EVENT_OF_sync:
        event.token = record.sync.token
    elif member == IPU_EVENT_OF_rc_wanted:
        event.qpn = record.rc_wanted.qpn
        event.gid = raw_address(&record.rc_wanted.gid)
    elif member == IPU_EVENT_OF_connection:
        event.connection = record.connection.id


cdef class CapturedFrame:
    """One captured frame: `data` is GRH, encapsulation header and payload, perhaps cut short."""

    cdef readonly uint64_t time_ns
    cdef readonly bint outgoing
    cdef readonly int wire_len
    cdef readonly bytes data


cdef bytes encoded_hops(list hops):
    """The records ipu_hop of (gateway, weight) pairs; without a gateway the hop is on the link."""
    cdef ipu_hop hop
    cdef bytes data = b""
    for via, weight in hops or ():
        hop.gateway = address(via if via is not None else bytes(16))
        hop.on_link = via is None
        hop.weight = weight
        data += PyBytes_FromStringAndSize(<char *>&hop, sizeof(hop))
    return data


cdef int put_mac(uint8_t *at, bytes mac) except -1:
    if len(mac) != 6:
        raise ValueError(f"a MAC has 6 bytes, not {len(mac)}")
    memcpy(at, PyBytes_AS_STRING(mac), 6)
    return 0


@cython.no_gc_clear
cdef class Pump:
    """Moves packets between a device and a fabric on a C thread that never takes the GIL.

    Commands and `events`: one thread at a time, the engine's. `counters`: any thread.
    """

    cdef ipu_pump *pump
    cdef object fabric  # capsules: their objects live as long as the pump
    cdef object device
    cdef dict connections  # by number: capsules, while the pump knows them
    cdef ipu_command command
    cdef bint running
    cdef readonly uint64_t commands_dropped

    def __cinit__(self, fabric: _Native, device: _Native, *, uint32_t mtu, uint32_t device_mtu=0,
                  uint32_t tcp_packet_bytes=0, uint32_t tx_frames=0, uint32_t rx_frames=1024,
                  uint32_t connected_frames=0, uint32_t frames_halved=0,
                  uint32_t neigh_max=131072, uint32_t route_max=131072, uint32_t ah_max=16384,
                  uint32_t route_answer_max=65536, uint32_t resolution_parts=1,
                  uint32_t command_bytes=1 << 20, uint32_t event_bytes=1 << 20,
                  uint32_t capture_bytes=1 << 22, busy_poll_us: int | None = None):
        cdef ipu_pump_config config
        memset(&config, 0, sizeof(config))
        self.fabric = fabric.native
        self.device = device.native
        config.fabric = <ipu_fabric *>PyCapsule_GetPointer(self.fabric, IPU_FABRIC_CAPSULE)
        config.device = <ipu_device *>PyCapsule_GetPointer(self.device, IPU_DEVICE_CAPSULE)
        config.mtu = mtu
        config.device_mtu = device_mtu
        config.tcp_packet_bytes = tcp_packet_bytes
        config.connected_frames = connected_frames
        self.connections = {}
        config.tx_frames = tx_frames
        config.rx_frames = rx_frames
        config.frames_halved = frames_halved
        config.neigh_max = neigh_max
        config.route_max = route_max
        config.route_answer_max = route_answer_max
        config.ah_max = ah_max
        config.resolution_parts = resolution_parts
        config.command_bytes = command_bytes
        config.event_bytes = event_bytes
        config.capture_bytes = capture_bytes
        config.adaptive = busy_poll_us is None
        config.busy_poll_us = 0 if busy_poll_us is None else busy_poll_us
        cdef int error
        with nogil:  # a device in C may wait for a thread that needs it
            error = ipu_pump_create(&config, &self.pump)
        check(error, "pump")

    def __dealloc__(self):
        if self.pump != NULL:
            with nogil:
                ipu_pump_destroy(self.pump)

    cdef ipu_pump *live(self) except NULL:
        if self.pump == NULL:
            raise ValueError("the pump is closed")
        return self.pump

    def close(self) -> None:
        """End the thread and free everything, after the end of the fabric. Safe to repeat."""
        if self.pump != NULL:
            with nogil:
                ipu_pump_destroy(self.pump)
            self.pump = NULL
            self.running = False
            self.fabric = self.device = None
            self.connections.clear()

    def start(self) -> None:
        check(ipu_pump_start(self.live()), "pump thread")
        self.running = True

    def stop(self) -> None:
        cdef ipu_pump *pump = self.live()
        with nogil:
            ipu_pump_stop(pump)
        self.running = False

    def step(self, int max=64) -> int:
        """Make one round by hand while no thread runs; return the amount of work done."""
        cdef ipu_pump *pump = self.live()
        cdef int done
        with nogil:
            done = ipu_pump_step(pump, max)
        check(done, "pump step")
        return done

    cdef bint put(self, uint32_t type, bytes data, bint must) except -1:
        """Queue self.command. With a full ring, a packet is lost, and a table write waits for room."""
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

    def neigh_set(self, bytes next_hop, int action, dest: Destination | None, uint32_t mtu) -> None:
        """Set the `action` (NEIGH_...) for packets to the next hop: go to `dest`, in at most `mtu` bytes,
        or wait."""
        self.command.neigh_set.next_hop = address(next_hop)
        self.command.neigh_set.action = action
        self.command.neigh_set.mtu = mtu
        if dest is not None:
            self.command.neigh_set.dest = destination(dest)
        self.put(IPU_COMMAND_NEIGH_SET, None, True)

    def own_set(self, bytes ip, bint ours) -> None:
        """Note that the address is ours, or no longer: the pump passes ARP and ND about our addresses up.
        0.0.0.0 stands for all IPv4 addresses."""
        self.command.own_set.ip = address(ip)
        self.command.own_set.ours = ours
        self.put(IPU_COMMAND_OWN_SET, None, True)

    def guest_set(self, bytes ip, bytes mac, bint firm) -> None:
        """Have packets of the link to `ip` go to the guest `mac`; `firm`: no other may send from there."""
        self.command.guest_set.ip = address(ip)
        put_mac(self.command.guest_set.mac, mac)
        self.command.guest_set.firm = firm
        self.put(IPU_COMMAND_GUEST_SET, None, True)

    def guest_del(self, bytes ip) -> None:
        self.command.guest_del.ip = address(ip)
        self.put(IPU_COMMAND_GUEST_DEL, None, True)

    def guest_qpn_set(self, bytes mac, uint32_t qpn) -> None:
        """Give the guest a queue pair of its own: its packets come from there, and what comes there is the
        guest's; 0: it shares the interface's again."""
        put_mac(self.command.guest_qpn_set.mac, mac)
        self.command.guest_qpn_set.qpn = qpn
        self.put(IPU_COMMAND_GUEST_QPN_SET, None, True)

    def mac_set(self, bytes mac) -> None:
        """Set the MAC from which guests receive packets of hosts that have none."""
        put_mac(self.command.mac_set.mac, mac)
        self.put(IPU_COMMAND_MAC_SET, None, True)

    def host_mac_set(self, bytes gid, uint32_t qpn, bytes mac) -> None:
        """Have guests receive the packets of a host of the link from this MAC."""
        self.command.host_mac_set.gid = address(gid)
        self.command.host_mac_set.qpn = qpn
        put_mac(self.command.host_mac_set.mac, mac)
        self.put(IPU_COMMAND_HOST_MAC_SET, None, True)

    def host_mac_del(self, bytes gid, uint32_t qpn) -> None:
        self.command.host_mac_del.gid = address(gid)
        self.command.host_mac_del.qpn = qpn
        self.put(IPU_COMMAND_HOST_MAC_DEL, None, True)

    def neigh_del(self, bytes next_hop) -> None:
        self.command.neigh_del.next_hop = address(next_hop)
        self.put(IPU_COMMAND_NEIGH_DEL, None, True)

    def route_set(self, bytes prefix, uint32_t prefix_len, int kind, gateway: bytes | None = None,
                  hops: list[tuple[bytes | None, int]] | None = None, uint32_t fields=0) -> None:
        """A route of a kind ROUTE_...; `prefix_len` counts 96 more for IPv4.

        ROUTE_MULTIPATH has `hops`, at most IPU_HOPS_MAX: gateway (None: on-link) and weight of each.
        ROUTE_ASK makes the pump forget all answers; its flows differ in `fields` (ROUTE_FIELD_...).
        """
        cdef bytes data = encoded_hops(hops)
        self.command.route_set.prefix = address(prefix)
        self.command.route_set.gateway = address(gateway if gateway is not None else bytes(16))
        self.command.route_set.prefix_len = prefix_len
        self.command.route_set.kind = kind
        self.command.route_set.fields = fields
        self.put(IPU_COMMAND_ROUTE_SET, data if data else None, True)

    def route_answer(self, bytes packet, int kind, gateway: bytes | None = None,
                     hops: list[tuple[bytes | None, int]] | None = None, bint send=True) -> bool:
        """Answer EVENT_ROUTE_ASK with the route of the packet's flow; `send`: send the packet by it.

        False: the ring is full, and the packet is dropped.
        """
        self.command.route_answer.gateway = address(gateway if gateway is not None else bytes(16))
        self.command.route_answer.kind = kind
        self.command.route_answer.hops = len(hops) if hops is not None else 0
        self.command.route_answer.send = send
        return self.put(IPU_COMMAND_ROUTE_ANSWER, encoded_hops(hops) + packet, False)

    def route_del(self, bytes prefix, uint32_t prefix_len) -> None:
        self.command.route_del.prefix = address(prefix)
        self.command.route_del.prefix_len = prefix_len
        self.put(IPU_COMMAND_ROUTE_DEL, None, True)

    def connection_add(self, uint64_t number, capsule: object, bint superframes) -> None:
        """Receive the connection's messages from now on; with vnet headers or without."""
        self.command.connection_add.id = number
        self.command.connection_add.native = <ipu_connection *>PyCapsule_GetPointer(
            capsule, IPU_CONNECTION_CAPSULE)
        self.command.connection_add.superframes = superframes
        self.connections[number] = capsule
        self.put(IPU_COMMAND_CONNECTION_ADD, None, True)

    def connection_del(self, uint64_t number) -> None:
        """Forget the connection, which is in the error state; EVENT_CONNECTION_GONE answers."""
        self.command.connection_del.id = number
        self.put(IPU_COMMAND_CONNECTION_DEL, None, True)

    def tx_mode_set(self, dest: Destination, int mode, uint64_t number=0, uint32_t mtu=0,
                    uint32_t superframe_bytes=0) -> None:
        """Have packets to the destination leave by TX_UD, TX_UD_NOTIFY, TX_UD_CONNECTING or TX_RC from now
        on."""
        self.command.tx_mode_set.dest = destination(dest)
        self.command.tx_mode_set.mode = mode
        self.command.tx_mode_set.mtu = mtu
        self.command.tx_mode_set.superframe_bytes = superframe_bytes
        self.command.tx_mode_set.id = number
        self.put(IPU_COMMAND_TX_MODE_SET, None, True)

    def send_frame(self, dest: Destination, bytes frame, uint32_t source_qpn=0) -> bool:
        """Send a frame, from the encapsulation header on, from a guest's queue pair, if one is given; False:
        the ring is full, and the frame is lost."""
        self.command.send_frame.dest = destination(dest)
        self.command.send_frame.source_qpn = source_qpn
        return self.put(IPU_COMMAND_SEND_FRAME, frame, False)

    def send_packet(self, bytes packet) -> bool:
        """Send an IP packet as if the device had brought it; a miss is a drop. False: the packet is
        lost."""
        return self.put(IPU_COMMAND_SEND_PACKET, packet, False)

    def forward(self, bytes packet) -> bool:
        """Send an IP packet as if the device had brought it; a miss is an EVENT_MISS. False: the packet is
        lost."""
        return self.put(IPU_COMMAND_FORWARD, packet, False)

    def deliver(self, bytes packet) -> bool:
        """Write an IP packet to the device; False: the packet is lost."""
        return self.put(IPU_COMMAND_DELIVER, packet, False)

    def capture(self, uint32_t snap_len) -> None:
        """Capture the first `snap_len` bytes (at least 44) of every frame; 0 ends the capture."""
        if 0 < snap_len < 44:
            raise ValueError("a capture keeps at least the 44 bytes of GRH and header")
        self.command.capture.snap_len = snap_len
        self.put(IPU_COMMAND_CAPTURE, None, True)

    def busy_poll(self, busy_poll_us: int | None) -> None:
        """Poll for so long after the last packet, before the pump sleeps; None: adaptively."""
        self.command.busy_poll.adaptive = busy_poll_us is None
        self.command.busy_poll.busy_poll_us = 0 if busy_poll_us is None else busy_poll_us
        self.put(IPU_COMMAND_BUSY_POLL, None, True)

    def dhcp_watch(self) -> None:
        """Pass DHCP requests to one server up, too (EVENT_HOST), and replies of DHCP and DHCPv6
        (EVENT_DHCP_REPLY)."""
        self.put(IPU_COMMAND_DHCP_WATCH, None, True)

    def sync(self, uint64_t token) -> None:
        """Ask for an EVENT_SYNC with this token, after everything queued before."""
        self.command.sync.token = token
        self.put(IPU_COMMAND_SYNC, None, True)

    def connection_counters(self, uint64_t number) -> tuple[int, int, int, int] | None:
        """Return messages and bytes of IP sent, then received; None if the pump does not know the
        connection."""
        capsule = self.connections.get(number)
        if capsule is None:
            return None
        cdef ipu_connection *c = <ipu_connection *>PyCapsule_GetPointer(
            capsule, IPU_CONNECTION_CAPSULE)
        return (c.tx_messages, c.tx_bytes, c.rx_messages, c.rx_bytes)

    @property
    def event_fd(self) -> int:
        """A descriptor that is readable after `arm_events` returned False and an event came."""
        return ipu_ring_fd(ipu_pump_events(self.live()))

    def arm_events(self) -> bool:
        return ipu_ring_arm(ipu_pump_events(self.live())) != 0

    def disarm_events(self) -> None:
        ipu_ring_disarm(ipu_pump_events(self.live()))

    def events(self, int max=256) -> list[Event]:
        """Return at most `max` events, oldest first."""
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
            decode(event, record)
            event.data = PyBytes_FromStringAndSize(
                <const char *>record + sizeof(ipu_event), record.len)
            ipu_ring_release(ring)
            if event.type == IPU_EVENT_CONNECTION_GONE:
                self.connections.pop(event.connection, None)
            out.append(event)
        return out

    @property
    def capture_fd(self) -> int:
        return ipu_ring_fd(ipu_pump_captured(self.live()))

    def arm_captured(self) -> bool:
        return ipu_ring_arm(ipu_pump_captured(self.live())) != 0

    def disarm_captured(self) -> None:
        ipu_ring_disarm(ipu_pump_captured(self.live()))

    def captured(self, int max=256) -> list[CapturedFrame]:
        """Return at most `max` captured frames, oldest first."""
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

    def counters(self) -> dict[str, int]:
        """Return every counter of ext/pump/records/counters.h by name."""
        cdef uint64_t values[IPU_COUNTERS_N]
        ipu_counters_read(ipu_pump_counters(self.live()), values)
        return {ipu_counters_names[i].decode(): values[i] for i in range(IPU_COUNTERS_N)}
