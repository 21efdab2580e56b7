# SPDX-License-Identifier: BSD-2-Clause
# Packet devices: a TUN, the application's queue.

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


def relay(int first, int second):
    """Move frames between two TUN descriptors, without the GIL, until one of them fails: OSError."""
    cdef int error
    with nogil:
        error = ipu_relay_run(first, second)
    raise OSError(-error, os.strerror(-error))
