# SPDX-License-Identifier: BSD-2-Clause
# Single datagrams and messages on a fabric without a pump, as fabric.pyx includes it.

cdef extern from "core/slab.h" nogil:
    struct ipu_slab:
        void *base
        size_t len
        uint32_t frames
    const uint32_t IPU_SLAB_NONE
    int ipu_slab_init(ipu_slab *slab, uint32_t frames, uint32_t frame_bytes)
    void ipu_slab_free(ipu_slab *slab)
    uint32_t ipu_slab_get(ipu_slab *slab)
    void ipu_slab_put(ipu_slab *slab, uint32_t index)
    uint8_t *ipu_slab_at(const ipu_slab *slab, uint32_t index)

cdef extern from "core/frame.h":
    const uint32_t IPU_GRH_LEN


cdef ipu_connection *connection_in(object connection) except NULL:
    """`connection` is a queue pair of a connection, with `native`."""
    return <ipu_connection *>PyCapsule_GetPointer(connection.native, IPU_CONNECTION_CAPSULE)


@cython.no_gc_clear
cdef class RawFace:
    """Sends and receives single datagrams on a fabric that no pump uses, and with `message_bytes` messages of
    up to so many bytes on its connections.

    One thread uses it. `sends`, `receives` and `messages` (in each direction) are the numbers of frames.
    """

    cdef object capsule
    cdef ipu_fabric *fabric
    cdef ipu_slab tx, rx, tx_messages, rx_messages
    cdef uint64_t *posted  # the cookie of the message in each frame of tx_messages, 0: none
    cdef ipu_connection **owners  # its connection
    cdef uint64_t last_cookie
    cdef uint32_t receive_bytes, message_bytes
    cdef bint broken
    cdef readonly int failed_messages  # sends on connections that failed

    def __cinit__(self, inner: _Native, *, uint32_t sends, uint32_t receives, uint32_t messages=0,
                  uint32_t message_bytes=0):
        self.capsule = inner.native
        self.fabric = <ipu_fabric *>PyCapsule_GetPointer(self.capsule, IPU_FABRIC_CAPSULE)
        if message_bytes > 0 and self.fabric.connected == NULL:
            check(-EOPNOTSUPP, "connections")
        if self.fabric.max_recv > 0:
            receives = min(receives, self.fabric.max_recv)
        self.receive_bytes = max(self.fabric.mtu + IPU_GRH_LEN, self.fabric.min_recv)
        self.message_bytes = message_bytes
        self.register(&self.tx, sends, self.fabric.mtu)
        self.register(&self.rx, receives, self.receive_bytes)
        if message_bytes > 0:
            self.register(&self.tx_messages, messages, message_bytes)
            self.register(&self.rx_messages, messages, message_bytes)
            self.posted = <uint64_t *>calloc(messages, sizeof(self.posted[0]))
            self.owners = <ipu_connection **>calloc(messages, sizeof(self.owners[0]))
            if self.posted == NULL or self.owners == NULL:
                raise MemoryError()
        self.post()

    cdef int register(self, ipu_slab *slab, uint32_t frames, uint32_t frame_bytes) except -1:
        check(ipu_slab_init(slab, frames, frame_bytes), "frames")
        return check(self.fabric.ops.memory(self.fabric.self, slab.base, slab.len), "memory")

    def __dealloc__(self):
        self.close()

    def close(self) -> None:
        """Free everything, after the end of the fabric. Safe to repeat."""
        self.fabric = NULL
        ipu_slab_free(&self.tx)
        ipu_slab_free(&self.rx)
        ipu_slab_free(&self.tx_messages)
        ipu_slab_free(&self.rx_messages)
        free(self.posted)
        free(self.owners)
        self.posted = NULL
        self.owners = NULL

    cdef ipu_fabric *live(self) except NULL:
        if self.fabric == NULL:
            raise ValueError("the queue pair is closed")
        return self.fabric

    # Datagrams

    @property
    def mtu_bytes(self) -> int:
        """The longest datagram, with its encapsulation header."""
        return self.live().mtu

    def send(self, dest: Destination, bytes frame not None) -> bool:
        """Send a datagram; return False if there is no room before `poll` has found ended sends."""
        cdef ipu_fabric *fabric = self.live()
        cdef ipu_dest to = destination(dest)
        cdef ipu_send wanted
        cdef uint32_t index
        cdef int taken, error
        if len(frame) > <Py_ssize_t>fabric.mtu:
            check(-EMSGSIZE, "datagram")
        self.poll()
        if self.broken:
            check(-EIO, "queue pair")
        index = ipu_slab_get(&self.tx)
        if index == IPU_SLAB_NONE:
            return False
        memset(&wanted, 0, sizeof(wanted))
        wanted.addr = ipu_slab_at(&self.tx, index)
        wanted.len = <uint32_t>len(frame)
        wanted.qpn = to.qpn
        wanted.cookie = index
        memcpy(ipu_slab_at(&self.tx, index), PyBytes_AS_STRING(frame), len(frame))
        errno = 0
        wanted.ah = fabric.ops.ah_create(fabric.self, &to)
        if wanted.ah == NULL:
            error = errno
            ipu_slab_put(&self.tx, index)
            check(-(error if error > 0 else EIO), "address handle")
        taken = fabric.ops.send(fabric.self, &wanted, 1)
        fabric.ops.ah_destroy(fabric.self, wanted.ah)
        if taken <= 0:
            ipu_slab_put(&self.tx, index)
            self.broken = taken < 0
            check(taken, "datagram")
        return taken > 0

    def receive(self) -> tuple[bytes, int, bytes | None] | None:
        """Return the next datagram: the frame, its sender's queue pair number, and its GRH of 40 bytes if it has
        one; None if there is none now."""
        cdef ipu_fabric *fabric = self.live()
        cdef ipu_received done
        cdef uint8_t *frame
        cdef int n
        self.poll()
        while True:
            n = fabric.ops.received(fabric.self, &done, 1)
            if n <= 0:
                self.broken |= n < 0
                self.mend()  # it needs all receives back
                return None
            result = None
            if (not done.flags & IPU_RECEIVED_FAILED
                    and IPU_GRH_LEN <= done.byte_len <= self.receive_bytes):
                frame = ipu_slab_at(&self.rx, <uint32_t>done.cookie)
                grh = frame[:IPU_GRH_LEN] if done.flags & IPU_RECEIVED_GRH else None
                result = frame[IPU_GRH_LEN:done.byte_len], done.src_qpn, grh
            ipu_slab_put(&self.rx, <uint32_t>done.cookie)
            if result is not None:
                return result

    # Connections

    def add(self, connection: _Native) -> None:
        """Begin to use a connection's queue pair."""
        cdef ipu_fabric *fabric = self.live()
        check(fabric.connected.add(fabric.connected_self, connection_in(connection)), "connection")

    def has_sends(self, connection: _Native) -> bool:
        """Return whether messages on the connection are under way."""
        cdef ipu_connection *wanted = connection_in(connection)
        cdef uint32_t index
        self.poll()
        for index in range(self.tx_messages.frames):
            if self.owners[index] == wanted:
                return True
        return False

    def remove(self, connection: _Native) -> None:
        """Cease to use the queue pair. Its sends have ended, or never will."""
        cdef ipu_fabric *fabric = self.live()
        fabric.connected.remove(fabric.connected_self, connection_in(connection))

    def forget(self, connection: _Native) -> None:
        """Take back the frames of a connection whose queue pair is destroyed."""
        cdef ipu_connection *wanted = connection_in(connection)
        cdef uint32_t index
        for index in range(self.tx_messages.frames):
            if self.owners[index] == wanted:
                self.take_back(index)

    cdef void take_back(self, uint32_t index) noexcept:
        self.posted[index] = 0
        self.owners[index] = NULL
        ipu_slab_put(&self.tx_messages, index)

    def send_message(self, connection: _Native, bytes message not None) -> bool:
        """Send a message; return False if there is no room before `poll` has found ended sends."""
        cdef ipu_fabric *fabric = self.live()
        cdef ipu_connection *to = connection_in(connection)
        cdef ipu_send wanted
        cdef uint32_t index
        cdef int taken
        if len(message) > <Py_ssize_t>self.message_bytes:
            check(-EMSGSIZE, "message")
        self.poll()
        index = ipu_slab_get(&self.tx_messages)
        if index == IPU_SLAB_NONE:
            return False
        memcpy(ipu_slab_at(&self.tx_messages, index), PyBytes_AS_STRING(message), len(message))
        # A late report of a connection that is gone must not free the frame of another one.
        self.last_cookie += self.tx_messages.frames
        memset(&wanted, 0, sizeof(wanted))
        wanted.addr = ipu_slab_at(&self.tx_messages, index)
        wanted.len = <uint32_t>len(message)
        wanted.cookie = self.last_cookie + index
        self.posted[index] = wanted.cookie
        self.owners[index] = to
        taken = fabric.connected.send(fabric.connected_self, to, &wanted, 1)
        if taken <= 0:
            self.take_back(index)
            check(taken, "message")
        return taken > 0

    def receive_message(self) -> tuple[bytes, int] | None:
        """Return the next message, and the number of our queue pair to which it came; None if there is none
        now."""
        cdef ipu_fabric *fabric = self.live()
        cdef ipu_connection_received done
        self.poll()
        while fabric.connected.received(fabric.connected_self, &done, 1) > 0:
            result = None
            if not done.failed and done.connection != NULL and done.byte_len <= self.message_bytes:
                message = ipu_slab_at(&self.rx_messages, <uint32_t>done.cookie)[:done.byte_len]
                result = message, done.connection.qpn
            ipu_slab_put(&self.rx_messages, <uint32_t>done.cookie)
            if result is not None:
                return result
        return None

    # Waiting

    def poll(self) -> None:
        """Find ended sends, post the free receives, and mend a queue pair that is broken."""
        cdef ipu_fabric *fabric = self.live()
        cdef ipu_connection_sent ended
        cdef uint64_t cookie
        cdef uint32_t index
        cdef int n = 1
        while n > 0:
            n = fabric.ops.sent(fabric.self, &cookie, 1)
            if n > 0:
                ipu_slab_put(&self.tx, <uint32_t>cookie)
        self.broken |= n < 0
        if self.posted != NULL:
            while fabric.connected.sent(fabric.connected_self, &ended, 1) > 0:
                index = ended.cookie % self.tx_messages.frames
                self.failed_messages += ended.failed
                if self.posted[index] == ended.cookie:
                    self.take_back(index)
        self.mend()
        self.post()

    cdef int mend(self) except -1:
        """Bring a broken queue pair back, if it is ready for that."""
        cdef int error
        if not self.broken:
            return 0
        if self.fabric.ops.recover == NULL:
            check(-EIO, "queue pair")
        error = self.fabric.ops.recover(self.fabric.self)
        if error not in (-EBUSY, -EAGAIN):  # with these, a later call tries again
            check(error, "queue pair")
            self.broken = False
            self.post()
        return 0

    cdef void post(self) noexcept:
        cdef ipu_recv wanted
        if not self.broken:
            wanted.len = self.receive_bytes
            while fill(&wanted, &self.rx) and self.fabric.ops.post(self.fabric.self, &wanted, 1) > 0:
                wanted.addr = NULL
            give_up(&wanted, &self.rx)
        if self.posted != NULL:
            wanted.len = self.message_bytes
            while (fill(&wanted, &self.rx_messages)
                    and self.fabric.connected.post(self.fabric.connected_self, &wanted, 1) > 0):
                wanted.addr = NULL
            give_up(&wanted, &self.rx_messages)

    def arm(self) -> bool:
        """Make `fd` readable at the next completion; return whether one may be there already."""
        cdef ipu_fabric *fabric = self.live()
        cdef int waits = fabric.ops.arm(fabric.self)
        if fabric.ops.arm_sends != NULL:
            waits |= fabric.ops.arm_sends(fabric.self)
        return waits != 0

    @property
    def fd(self) -> int:
        return self.live().ops.fd(self.fabric.self)

    @property
    def deadline_ns(self) -> int | None:
        """The time of CLOCK_MONOTONIC at which to call `poll` again, even if `fd` is not readable."""
        cdef ipu_fabric *fabric = self.live()
        cdef int64_t at = INT64_MAX
        if fabric.ops.deadline_ns != NULL:
            at = fabric.ops.deadline_ns(fabric.self)
        return None if at == INT64_MAX else at


cdef bint fill(ipu_recv *wanted, ipu_slab *slab) noexcept:
    """Name a free frame of the slab in `wanted`; return False, and no frame, if there is none."""
    cdef uint32_t index = ipu_slab_get(slab)
    wanted.addr = NULL
    if index == IPU_SLAB_NONE:
        return False
    wanted.addr = ipu_slab_at(slab, index)
    wanted.cookie = index
    return True


cdef void give_up(ipu_recv *wanted, ipu_slab *slab) noexcept:
    """Put back the frame that the queue pair did not take."""
    if wanted.addr != NULL:
        ipu_slab_put(slab, <uint32_t>wanted.cookie)
