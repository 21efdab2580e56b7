# SPDX-License-Identifier: BSD-2-Clause
# The pump, and what it says.

cdef class Event:
    """One word from the pump; the fields that its type uses are set (ext/pump/pump_abi.h)."""

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
    cdef dict connections  # by number: capsules, while the pump knows them
    cdef ipu_command command
    cdef bint running
    cdef readonly uint64_t commands_dropped

    def __cinit__(self, object fabric, object device, *, uint32_t mtu, uint32_t device_mtu=0,
                  uint32_t tx_frames=0, uint32_t rx_frames=1024, uint32_t connected_frames=0, uint32_t neigh_max=131072, uint32_t route_max=131072,
                  uint32_t ah_max=16384, uint32_t command_bytes=1 << 20,
                  uint32_t event_bytes=1 << 20, uint32_t capture_bytes=1 << 22,
                  object busy_poll_us=None):
        cdef ipu_pump_config config
        memset(&config, 0, sizeof(config))
        self.fabric = fabric.native
        self.device = device.native
        config.fabric = <ipu_fabric *>PyCapsule_GetPointer(self.fabric, FABRIC_CAPSULE)
        config.device = <ipu_device *>PyCapsule_GetPointer(self.device, DEVICE_CAPSULE)
        config.mtu = mtu
        config.device_mtu = device_mtu
        config.connected_frames = connected_frames
        self.connections = {}
        config.tx_frames = tx_frames
        config.rx_frames = rx_frames
        config.neigh_max = neigh_max
        config.route_max = route_max
        config.ah_max = ah_max
        config.command_bytes = command_bytes
        config.event_bytes = event_bytes
        config.capture_bytes = capture_bytes
        config.adaptive = busy_poll_us is None
        config.busy_poll_us = 0 if busy_poll_us is None else busy_poll_us
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
            self.connections.clear()

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

    def connection_add(self, uint64_t number, object capsule, bint superframes):
        """Messages of the connection are received from now on; with vnet headers or without."""
        self.fresh()
        self.command.token = number
        self.command.native = <ipu_connection *>PyCapsule_GetPointer(capsule, CONNECTION_CAPSULE)
        self.command.forward = superframes
        self.connections[number] = capsule
        self.put(IPU_COMMAND_CONNECTION_ADD, None, True)

    def connection_del(self, uint64_t number):
        """The pump lets go of the connection, which is in the error state; EVENT_CONNECTION_GONE."""
        self.fresh()
        self.command.token = number
        self.put(IPU_COMMAND_CONNECTION_DEL, None, True)

    def tx_mode_set(self, object dest, int mode, uint64_t number=0, uint32_t mtu=0,
                 uint32_t superframe_bytes=0):
        """Packets to the destination leave by TX_UD, TX_UD_NOTIFY or TX_RC from now on."""
        self.fresh()
        self.command.dest = destination(dest)
        self.command.forward = mode
        self.command.token = number
        self.command.mtu = mtu
        self.command.superframe_bytes = superframe_bytes
        self.put(IPU_COMMAND_TX_MODE, None, True)

    def connection_counters(self, uint64_t number):
        """Messages and bytes of IP sent, then received, or None if the pump does not know it."""
        capsule = self.connections.get(number)
        if capsule is None:
            return None
        cdef ipu_connection *c = <ipu_connection *>PyCapsule_GetPointer(
            capsule, CONNECTION_CAPSULE)
        return (c.tx_messages, c.tx_bytes, c.rx_messages, c.rx_bytes)

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
            if event.type == IPU_EVENT_CONNECTION_GONE:
                self.connections.pop(event.token, None)
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
        """Every counter of ext/pump/counters.h by name."""
        cdef uint64_t values[IPU_COUNTERS_N]
        ipu_counters_read(ipu_pump_counters(self.live()), values)
        return {ipu_counters_names[i].decode(): values[i] for i in range(IPU_COUNTERS_N)}
