# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True, annotation_typing=False
"""Packet devices: a TUN, the application's queue, the relay, the tunnel. Types: device.pyi."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_GetPointer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, strerror
from native cimport *

import socket

VLAN_BYTES = 4 << 20  # of frames that wait for the pump of a VLAN

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

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

cdef extern from "device/trunk.h" nogil:
    struct ipu_trunk:
        pass
    void ipu_trunk_init(ipu_trunk *trunk)
    void ipu_trunk_set(ipu_trunk *trunk, uint16_t vlan, int fd)
    void ipu_trunk_remove(ipu_trunk *trunk, uint16_t vlan)

cdef extern from "device/tap.h" nogil:
    struct ipu_tap:
        ipu_device device
        ipu_trunk *trunk
    void ipu_tap_init(ipu_tap *tap, int fd, uint32_t offload)
    void ipu_tap_join(ipu_tap *tap, const ipu_tap *trunk, int fd, uint16_t vlan)

cdef extern from "device/queue.h" nogil:
    struct ipu_queue_side:
        ipu_loan *loan
    struct ipu_queue:
        ipu_device device
        ipu_ring to_pump
        ipu_ring from_pump
        ipu_queue_side consumer
    ipu_loan *ipu_queue_producer_loan(ipu_queue *queue)
    ipu_loan *ipu_queue_consumer_loan(ipu_queue *queue)
    bint ipu_queue_send(ipu_queue *queue, const void *packet, uint32_t len)
    bint ipu_queue_send_frame(ipu_queue *queue, uint32_t index, uint32_t len)
    const uint8_t *ipu_queue_peek(ipu_queue *queue, uint32_t *index, uint32_t *len)
    void ipu_queue_detach(ipu_queue *queue)
    int ipu_queue_init(ipu_queue *queue, uint32_t to_pump_bytes, uint32_t from_pump_bytes)
    void ipu_queue_free(ipu_queue *queue)

cdef extern from "device/datagram.h" nogil:
    const uint32_t IPU_DATAGRAM_HEADERS4
    const uint32_t IPU_DATAGRAM_HEADERS6
    struct ipu_datagram:
        const uint8_t *flow
        const uint8_t *payload
        uint32_t flow_len
        uint32_t payload_len
    bint ipu_datagram_send(ipu_queue *queue, const uint8_t *headers, uint32_t headers_len,
                           const void *payload, uint32_t len)
    bint ipu_datagram_read_untrusted(const uint8_t *packet, uint32_t len, ipu_datagram *out)

cdef extern from "device/c_queue.h" nogil:
    const char *IPOIBU_PACKET_QUEUE_V1
    struct ipoibu_packet_queue_v1:
        pass
    struct ipu_c_queue:
        ipoibu_packet_queue_v1 v1
    int ipu_c_queue_init(ipu_c_queue *c_queue, ipu_queue *queue)

cdef extern from "device/c_device.h" nogil:
    const char *IPOIBU_PACKET_DEVICE_V1
    struct ipoibu_packet_device_v1:
        uint32_t offload
    struct ipu_c_device:
        ipu_device device
    int ipu_c_device_init(ipu_c_device *device, const ipoibu_packet_device_v1 *v1)

cdef extern from "device/relay.h" nogil:
    int ipu_relay_run(int first, int second)

cdef extern from "device/tunnel.h" nogil:
    int ipu_tunnel_run(int tun, int udp, int segment_bytes)

cdef extern from "device/uring_library.h" nogil:
    const char *ipu_uring_missing()

cdef const char *_missing = ipu_uring_missing()
# Why liburing is not there.
URING_MISSING = _missing.decode(errors="replace") if _missing != NULL else None  #: str | None
DEVICE_FEATURES = {"uring": URING_MISSING is None}  #: dict[str, bool]


cdef uint32_t kinds_of(tuple offload):
    """The super-frames of a TUN with these offloads (ipoibu/host/tun.py)."""
    return ((IPU_DEVICE_TCP if "tso4" in offload else 0)
            | (IPU_DEVICE_UDP if "uso4" in offload else 0))


cdef class TunPacketDevice:
    """A TUN by its descriptors, one for each queue, which the caller closes, after the pumps.

    The pump that receives uses this object: it reads the first queue, `fd`, and writes each flow to the
    flow's own queue. `others` are for further pumps, each of which reads one queue of `more`. `offload`
    names the offloads of the TUN (ipoibu/host/tun.py), by which super-frames pass in both directions.
    The interface of an `owned` TUN has the limits that `ipoibu.host.kernel_interface` sets.
    """

    cdef int[IPU_TX_QUEUES_MAX] fds
    cdef uint32_t count
    cdef ipu_device *device  # of the class below
    cdef readonly tuple offload  #: tuple[str, ...]
    cdef readonly tuple others  #: tuple[Self, ...]
    cdef readonly bint owned

    def __cinit__(self, int fd, offload: Iterable[str] = (), more: Iterable[int] = (),
                  bint owned=False):
        cdef tuple rest = tuple(more)
        if len(rest) >= IPU_TX_QUEUES_MAX:
            raise ValueError(f"a TUN has 1 to {IPU_TX_QUEUES_MAX} queues here, not {1 + len(rest)}")
        self.count = <uint32_t>(1 + len(rest))
        for i, queue in enumerate((fd, *rest)):
            self.fds[i] = queue
        self.offload = tuple(offload)
        self.owned = owned
        self.others = tuple(type(self)(other, self.offload, (), owned) for other in rest)

    @property
    def fd(self) -> int:
        return self.fds[0]

    @property
    def native(self) -> object:
        return lend(self.device, IPU_DEVICE_CAPSULE, self)


cdef class TunDevice(TunPacketDevice):
    """A TUN where each packet takes a system call."""

    cdef ipu_tun tun

    def __cinit__(self, int fd, offload: Iterable[str] = (), more: Iterable[int] = (),
                  bint owned=False):
        check(ipu_tun_init(&self.tun, self.fds, self.count, kinds_of(self.offload)), "queues")
        self.device = &self.tun.device


cdef class TapDevice(TunPacketDevice):
    """A TAP, with guests behind it; it has one queue. Packets have Ethernet headers for the engine alone.

    Guests may be in VLANs: another TAP takes the frames of one with `join`. The one with the guests is the
    trunk, whose descriptor the caller closes after the pumps of all others, too.
    """

    cdef ipu_tap tap
    cdef ipu_trunk vlans
    cdef dict sockets  # of a trunk, by VLAN: its own end and the other's; they stay, as the pump uses them
    cdef dict owners  # the TAP that has each VLAN, by its id
    cdef TapDevice trunk  # of a VLAN
    cdef uint16_t vlan

    def __cinit__(self, int fd, offload: Iterable[str] = (), more: Iterable[int] = (),
                  bint owned=False):
        if self.count > 1:
            raise ValueError("a TAP has one queue here")
        ipu_tap_init(&self.tap, fd, kinds_of(self.offload))
        ipu_trunk_init(&self.vlans)
        self.tap.trunk = &self.vlans
        self.sockets = {}
        self.owners = {}
        self.device = &self.tap.device

    def join(self, TapDevice trunk not None, int vlan) -> None:
        """Be a VLAN (1 to 4094) of another TAP, before a pump has this one: frames come from there and go
        there, with the VLAN's tag. The last one that joins has the VLAN."""
        if not 1 <= vlan <= 4094:
            raise ValueError(f"a VLAN has a number from 1 to 4094, not {vlan}")
        if trunk.trunk is not None or self.trunk is not None:
            raise ValueError("a VLAN has a trunk that is none, and one only")
        if vlan not in trunk.sockets:
            trunk.sockets[vlan] = pair()
        ours, theirs = trunk.sockets[vlan]
        drain(theirs)
        self.trunk, self.vlan = trunk, vlan
        self.offload = trunk.offload
        ipu_tap_join(&self.tap, &trunk.tap, theirs.fileno(), vlan)
        trunk.owners[vlan] = id(self)
        ipu_trunk_set(&trunk.vlans, vlan, ours.fileno())

    def leave(self) -> None:
        """Give the VLAN up, after the end of the pump. Safe to repeat."""
        trunk = self.trunk
        if trunk is not None and trunk.owners.get(self.vlan) == id(self):
            ipu_trunk_remove(&(<TapDevice> trunk).vlans, self.vlan)
            del trunk.owners[self.vlan]

    def __dealloc__(self):
        if self.trunk is not None and self.trunk.owners is not None:
            self.leave()


cdef tuple pair():
    """Two ends that keep frames apart, do not block, and hold many."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, VLAN_BYTES)
    return ours, theirs


cdef int drain(object end) except -1:
    """Read the frames of an earlier TAP."""
    try:
        while end.recv(1):
            pass
    except BlockingIOError:
        pass
    return 0


cdef class TunRing(TunPacketDevice):
    """A TUN that the pump reads and writes through an io_uring: many packets take one system call.

    Where system calls are cheap, only floods of packets use the io_uring.

    The descriptors must not block. `OSError` where the kernel gives none: ENOSYS (older than Linux 6.0, or
    built without liburing), EPERM (kernel.io_uring_disabled, a seccomp filter).
    """

    cdef ipu_tun_ring *tun

    def __cinit__(self, int fd, offload: Iterable[str] = (), more: Iterable[int] = (),
                  bint owned=False):
        cdef bint always = ipu_syscall_cost_ns() >= IPU_SYSCALL_DEAR_NS
        check(ipu_tun_ring_create(self.fds, self.count, kinds_of(self.offload), always, &self.tun),
              "io_uring")
        self.device = ipu_tun_ring_device(self.tun)

    def __dealloc__(self):
        if self.tun != NULL:
            ipu_tun_ring_destroy(self.tun)


cdef class CDevice:
    """A packet device that an application made in C: `capsule` has the name "ipoibu.packet_device.v1" and
    points to a struct ipoibu_packet_device_v1 (docs/use/c-device.md).

    The struct, and the code behind it, must outlive the endpoint and this object. `ValueError` for another
    capsule, `OSError` for a device that lacks a function.
    """

    cdef ipu_c_device c_device
    cdef object capsule
    cdef readonly tuple offload  #: tuple[str, ...]
    others = ()  #: tuple[()]

    def __cinit__(self, capsule: object):
        cdef const ipoibu_packet_device_v1 *v1
        v1 = <const ipoibu_packet_device_v1 *>PyCapsule_GetPointer(capsule, IPOIBU_PACKET_DEVICE_V1)
        self.capsule = capsule
        check(ipu_c_device_init(&self.c_device, v1), "packet device")
        self.offload = ((("tso4", "tso6") if v1.offload & IPU_DEVICE_TCP else ())
                        + (("uso4", "uso6") if v1.offload & IPU_DEVICE_UDP else ()))

    @property
    def native(self) -> object:
        return lend(&self.c_device.device, IPU_DEVICE_CAPSULE, self)


@cython.final
@cython.freelist(512)
cdef class Frame:
    """A packet in the data path's own memory, by the buffer protocol, without a copy.

    A frame of `QueueDevice.reserve` is writable, and the caller sets its `length` before the send; a
    received frame is read-only. A frame goes back to the data path when the caller sends, releases or
    drops it; a view keeps its frame, and the memory outlives the endpoint.
    """

    cdef uint64_t era  # of the queue that reserved it
    cdef ipu_loan *loan  # counted; NULL: nothing to give back
    cdef bytes copy  # a packet outside the frames of the loan
    cdef uint8_t *data  # NULL: sent or released
    cdef uint32_t index
    cdef uint32_t len
    cdef uint32_t views
    cdef bint outgoing

    def __init__(self):
        raise TypeError("frames are made by reserve() and recv_frames()")

    cdef void give_back(self) noexcept:
        if self.loan != NULL:
            if self.data != NULL and self.outgoing:
                ipu_loan_cancel(self.loan, self.index)
            elif self.data != NULL:
                ipu_index_ring_push(&self.loan.returned, self.index)
            ipu_loan_drop(self.loan)
            self.loan = NULL
        self.data = NULL

    def __dealloc__(self):
        self.give_back()

    cdef int unviewed(self) except -1:
        if self.views > 0:
            raise BufferError("a view of the frame is still there")
        return 0

    cdef int live(self) except -1:
        if self.data == NULL:
            raise ValueError("the frame was sent or released")
        return 0

    def release(self) -> None:
        """Give the frame back; BufferError while there is a view of it. Safe to repeat."""
        self.unviewed()
        self.give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __len__(self) -> int:
        self.live()
        return self.len

    @property
    def length(self) -> int:
        """Bytes of the packet; a reserved frame begins with all that fit."""
        self.live()
        return self.len

    @length.setter
    def length(self, uint32_t value) -> None:
        self.live()
        if not self.outgoing:
            raise ValueError("a received frame keeps its length")
        if not 0 < value <= self.loan.packet_bytes:
            raise ValueError(f"a frame holds 1 to {self.loan.packet_bytes} bytes, not {value}")
        self.len = value

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        self.live()
        PyBuffer_FillInfo(buffer, self, self.data, self.len, not self.outgoing, flags)
        self.views += 1

    def __releasebuffer__(self, Py_buffer *buffer):
        self.views -= 1


cdef uint64_t eras = 0


cdef uint64_t new_era() noexcept:
    """A number that marks a queue's frames; `detach` draws a new one."""
    global eras
    eras += 1
    return eras


cdef class QueueDevice:
    """The application as packet device: batches of IP packets each way.

    No call blocks. Any thread may call: each call holds the GIL, which puts the calls in order.
    """

    cdef ipu_queue *queue
    cdef ipu_c_queue c_queue
    cdef readonly bint is_in_c  # threads in C send and receive
    cdef bint lends  # Python has had frames
    cdef uint64_t era
    offload = ()  #: tuple[()]
    others = ()  #: tuple[()]

    def __cinit__(self, uint32_t to_pump_bytes=1 << 22, uint32_t from_pump_bytes=1 << 22):
        self.queue = <ipu_queue *>aligned_alloc(64, (sizeof(ipu_queue) + 63) & ~<size_t>63)
        if self.queue == NULL:
            raise MemoryError
        cdef int error = ipu_queue_init(self.queue, to_pump_bytes, from_pump_bytes)
        if error < 0:
            free(self.queue)
            self.queue = NULL
            check(error, "packet queue")
        self.era = new_era()

    @property
    def native(self) -> object:
        return lend(&self.queue.device, IPU_DEVICE_CAPSULE, self)

    def __dealloc__(self):
        if self.queue != NULL:
            ipu_queue_free(self.queue)
            free(self.queue)

    def detach(self) -> None:
        """Forget the queued packets, and the memory of the pump, which is closed. Safe to repeat."""
        ipu_queue_detach(self.queue)
        if not self.is_in_c:  # both sides let go of the memory
            ipu_queue_producer_loan(self.queue)
            ipu_queue_consumer_loan(self.queue)
        self.era = new_era()

    def to_c(self) -> object:
        """Return a capsule named "ipoibu.packet_queue.v1", which keeps the queue. From now on threads in C
        send and receive, and no other method but `detach` may be called. ValueError if Python has had frames,
        which would come back beside those threads."""
        if self.lends:
            raise ValueError("Python has frames of this queue")
        if not self.is_in_c:
            check(ipu_c_queue_init(&self.c_queue, self.queue), "packet queue")
            self.is_in_c = True
        return lend(&self.c_queue.v1, IPOIBU_PACKET_QUEUE_V1, self)

    def send(self, packets: Iterable[bytes | bytearray | memoryview]) -> int:
        """Queue copies of IP packets in order; return how many fit.

        Raises ValueError for an empty packet, after the packets before it are in the queue.
        """
        cdef int done = 0
        cdef const unsigned char[::1] view
        try:
            for packet in packets:
                view = packet
                if view.shape[0] == 0:
                    raise ValueError("an IP packet is not empty")
                if not ipu_queue_send(self.queue, &view[0], <uint32_t>view.shape[0]):
                    break
                done += 1
        finally:
            ipu_ring_wake(&self.queue.to_pump)
        return done

    def recv(self, int max) -> list[bytes]:
        """Return copies of at most `max` received IP packets, perhaps none."""
        cdef list out = []
        cdef uint32_t index, length
        cdef const uint8_t *packet
        while len(out) < max:
            packet = ipu_queue_peek(self.queue, &index, &length)
            if packet == NULL:
                break
            out.append(PyBytes_FromStringAndSize(<const char *>packet, length))
            ipu_ring_release(&self.queue.from_pump)
            if index != IPU_INDEX_NONE:
                ipu_index_ring_push(&self.queue.consumer.loan.returned, index)
        return out

    def send_datagrams(
        self, bytes headers not None, payloads: Iterable[bytes | bytearray | memoryview]
    ) -> int:
        """Queue UDP datagrams of one flow in order; return how many fit.

        `headers` are those of IPv4 (28 bytes with UDP's) or IPv6 (48); their lengths and checksums are set
        for each datagram. ValueError for others; a packet that is longer than 65535 bytes is one, too.
        """
        cdef int done = 0
        cdef bint fits
        cdef Py_buffer view
        cdef uint32_t length = <uint32_t>PyBytes_GET_SIZE(headers)
        cdef const uint8_t *start = <const uint8_t *>PyBytes_AS_STRING(headers)
        if length != IPU_DATAGRAM_HEADERS4 and length != IPU_DATAGRAM_HEADERS6:
            raise ValueError(f"{length} bytes are no headers of IP and UDP")
        try:
            for payload in payloads:
                PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
                try:
                    if view.len > 65535 - <Py_ssize_t>length:
                        raise ValueError(f"{view.len} bytes do not fit a datagram")
                    fits = ipu_datagram_send(self.queue, start, length, view.buf,
                                             <uint32_t>view.len)
                finally:
                    PyBuffer_Release(&view)
                if not fits:
                    break
                done += 1
        finally:
            ipu_ring_wake(&self.queue.to_pump)
        return done

    def recv_runs(self, int max) -> list[tuple[bytes, list[bytes]]]:
        """Return at most `max` received packets in order, in runs of one UDP flow.

        A run is the flow and its payloads. A flow is source, destination and both ports as they stand in a
        packet: 12 bytes of IPv4, 36 of IPv6. Other packets come whole under an empty flow, damaged ones,
        fragments, and those with options or extension headers, too.
        """
        cdef list out = []
        cdef list run = None
        cdef bytes flow = None
        cdef int count = 0
        cdef uint32_t index, length
        cdef const uint8_t *packet
        cdef ipu_datagram datagram
        while count < max:
            packet = ipu_queue_peek(self.queue, &index, &length)
            if packet == NULL:
                break
            if not ipu_datagram_read_untrusted(packet, length, &datagram):
                datagram.flow_len = 0
                datagram.payload = packet
                datagram.payload_len = length
            if (run is None or datagram.flow_len != <uint32_t>PyBytes_GET_SIZE(flow)
                    or memcmp(datagram.flow, PyBytes_AS_STRING(flow), datagram.flow_len) != 0):
                flow = PyBytes_FromStringAndSize(<const char *>datagram.flow, datagram.flow_len)
                run = []
                out.append((flow, run))
            run.append(PyBytes_FromStringAndSize(<const char *>datagram.payload,
                                                 datagram.payload_len))
            ipu_ring_release(&self.queue.from_pump)
            if index != IPU_INDEX_NONE:
                ipu_index_ring_push(&self.queue.consumer.loan.returned, index)
            count += 1
        return out

    cdef Frame frame(self, ipu_loan *loan, uint8_t *data, uint32_t index, uint32_t length, bint outgoing):
        cdef Frame frame = Frame.__new__(Frame)
        frame.era = self.era
        frame.loan = loan
        ipu_loan_hold(frame.loan)
        frame.data = data
        frame.index = index
        frame.len = length
        frame.outgoing = outgoing
        return frame

    def reserve(self, int max) -> list[Frame]:
        """Return at most `max` frames to fill and send; fewer, or none, while the pump sends others."""
        cdef list out = []
        cdef uint32_t index
        cdef ipu_loan *loan = ipu_queue_producer_loan(self.queue)
        self.lends = True
        while loan != NULL and len(out) < max:
            index = ipu_loan_reserve(loan)
            if index == IPU_INDEX_NONE:
                break
            out.append(self.frame(loan, ipu_loan_tx_packet(loan, index), index,
                                  loan.packet_bytes, True))
        return out

    def send_frames(self, frames: Iterable[Frame]) -> int:
        """Queue reserved frames in order; return how many fit. The caller loses these frames."""
        cdef int done = 0
        cdef Frame frame
        cdef ipu_loan *loan = ipu_queue_producer_loan(self.queue)
        try:
            for item in frames:
                frame = <Frame?>item  # an assignment alone would accept None
                frame.live()
                frame.unviewed()
                if not frame.outgoing or frame.era != self.era:
                    raise ValueError("the frame was not reserved here")
                if frame.loan == loan:
                    if not ipu_queue_send_frame(self.queue, frame.index, frame.len):
                        break
                    frame.data = NULL
                else:  # a frame of a former pump
                    if not ipu_queue_send(self.queue, frame.data, frame.len):
                        break
                    frame.give_back()
                done += 1
        finally:
            ipu_ring_wake(&self.queue.to_pump)
        return done

    def recv_frames(self, int max) -> list[Frame]:
        """Return at most `max` received IP packets, perhaps none, in place.

        While the caller holds too many frames, packets come in memory of their own.
        """
        cdef list out = []
        cdef uint32_t index, length
        cdef const uint8_t *packet
        cdef Frame frame
        self.lends = True
        while len(out) < max:
            packet = ipu_queue_peek(self.queue, &index, &length)
            if packet == NULL:
                break
            if index != IPU_INDEX_NONE:
                frame = self.frame(self.queue.consumer.loan, <uint8_t *>packet, index, length,
                                   False)
            else:
                frame = Frame.__new__(Frame)
                frame.copy = PyBytes_FromStringAndSize(<const char *>packet, length)
                frame.data = <uint8_t *>PyBytes_AS_STRING(frame.copy)
                frame.len = length
            ipu_ring_release(&self.queue.from_pump)
            out.append(frame)
        return out

    @property
    def fd(self) -> int:
        """A descriptor that is readable after `arm` returned False and a packet came."""
        return ipu_ring_fd(&self.queue.from_pump)

    def arm(self) -> bool:
        """Return whether packets are there; if not, the caller waits for `fd`, then calls `disarm`."""
        return ipu_ring_arm(&self.queue.from_pump) != 0

    def disarm(self) -> None:
        ipu_ring_disarm(&self.queue.from_pump)


def relay(int first, int second) -> None:
    """Move frames between two TUN descriptors, without the GIL, until one of them fails: OSError."""
    cdef int error
    with nogil:
        error = ipu_relay_run(first, second)
    raise OSError(-error, strerror(-error).decode())


def tunnel(int tun, int udp, int segment_bytes) -> None:
    """Carry a TUN's frames over a connected UDP socket in datagrams of `segment_bytes` at most, without
    the GIL, until one of the descriptors fails: OSError."""
    cdef int error
    with nogil:
        error = ipu_tunnel_run(tun, udp, segment_bytes)
    raise OSError(-error, strerror(-error).decode())
