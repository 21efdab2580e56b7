# SPDX-License-Identifier: BSD-2-Clause
"""librdmacm: connections and group memberships of kernel devices. The first channel loads the library.

cffi works in ABI mode: building or importing this package needs nothing of rdma-core. The declarations
are the interface of librdmacm.so.1 (rdma_cma.h of rdma-core, 23 or newer). The caller owns the queue
pairs and names them by number: the library never sees the objects, and changes no states.
"""

from __future__ import annotations

import enum
import errno
import os
import socket
import struct
from dataclasses import dataclass
from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final

import cffi

from ipoibu.base.addr import Gid, IpAddress, PKey, Qpn
from ipoibu.base.errors import IpoibuError, LinkError, NotPermitted
from ipoibu.base.ib import Destination, RcAttributes
from ipoibu.wire.pathrecord import PathRecord
from ipoibu.wire.sa import MTU_BYTES

LIBRARY: Final = "librdmacm.so.1"

PORT_SPACE_IPOIB: Final = 0x0002
PORT_SPACE_TCP: Final = 0x0106
PORT_SPACE_IB: Final = 0x013F
_AF_IB: Final = 27
_OPTION_ID: Final = 0
_OPTION_AFONLY: Final = 2
_OPTION_ACK_TIMEOUT: Final = 3
_JOIN_ATTRIBUTES: Final = 3  # the address and the flags count
_SEND_ONLY_FULL_MEMBER: Final = 1
_STATE_RTR: Final = 2
_STATE_RTS: Final = 3
_SOCKADDR_BYTES: Final = 128
_IN: Final = struct.Struct("=H2s4s")
_IN6: Final = struct.Struct("=H2sI16sI")
_IB: Final = struct.Struct("=H2s4s16s8s8sQ")

_ffi = cffi.FFI()
_ffi.cdef("""
    struct ibv_device {  /* its beginning, as of ibv_context */
        void *ops[2];
        int node_type, transport_type;
        char name[64];
    };
    struct ibv_context { struct ibv_device *device; };
    struct rdma_event_channel { int fd; };
    struct ibv_sa_path_rec {
        uint64_t dgid[2], sgid[2];
        uint16_t dlid, slid;
        int raw_traffic;
        uint32_t flow_label;
        uint8_t hop_limit, traffic_class;
        int reversible;
        uint8_t numb_path;
        uint16_t pkey;
        uint8_t sl, mtu_selector, mtu, rate_selector, rate, life_time_selector, life_time;
        uint8_t preference;
    };
    struct rdma_cm_id {  /* its beginning */
        void *verbs;
        struct rdma_event_channel *channel;
        void *context;
        void *qp;
        uint64_t source[16], target[16], ib_address[5];
        struct ibv_sa_path_rec *path_rec;
        int num_paths;
    };
    struct rdma_conn_param {
        const void *private_data;
        uint8_t private_data_len, responder_resources, initiator_depth, flow_control;
        uint8_t retry_count, rnr_retry_count, srq;
        uint32_t qp_num;
    };
    struct ibv_ah_attr {
        uint64_t dgid[2];
        uint32_t flow_label;
        uint8_t sgid_index, hop_limit, traffic_class;
        uint16_t dlid;
        uint8_t sl, src_path_bits, static_rate, is_global, port_num;
    };
    struct rdma_ud_param {
        const void *private_data;
        uint8_t private_data_len;
        struct ibv_ah_attr ah;
        uint32_t qp_num, qkey;
    };
    struct rdma_cm_event {
        struct rdma_cm_id *id, *listen_id;
        int event, status;
        union {
            struct rdma_conn_param conn;
            struct rdma_ud_param ud;
        };
    };
    struct rdma_cm_join_mc_attr_ex {
        uint32_t comp_mask, join_flags;
        void *addr;
    };
    struct ibv_qp_attr {
        int qp_state, cur_qp_state, path_mtu, path_mig_state;
        uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
        unsigned qp_access_flags;
        uint32_t cap[5];
        struct ibv_ah_attr ah, alt_ah;
        uint16_t pkey_index, alt_pkey_index;
        uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic;
        uint8_t min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
        uint32_t rate_limit;
    };
    struct rdma_event_channel *rdma_create_event_channel(void);
    void rdma_destroy_event_channel(struct rdma_event_channel *channel);
    int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                       int port_space);
    int rdma_destroy_id(struct rdma_cm_id *id);
    int rdma_bind_addr(struct rdma_cm_id *id, void *address);
    int rdma_listen(struct rdma_cm_id *id, int backlog);
    int rdma_resolve_addr(struct rdma_cm_id *id, void *source, void *target, int timeout_ms);
    int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms);
    int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param);
    int rdma_establish(struct rdma_cm_id *id);
    int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param);
    int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t length);
    int rdma_disconnect(struct rdma_cm_id *id);
    int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length);
    int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr,
                               void *context);
    int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask);
    int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event);
    int rdma_ack_cm_event(struct rdma_cm_event *event);
""")


class CmEventType(enum.IntEnum):
    """The kernel's events about an identifier."""

    ADDR_RESOLVED = 0
    ADDR_ERROR = 1
    ROUTE_RESOLVED = 2
    ROUTE_ERROR = 3
    CONNECT_REQUEST = 4
    CONNECT_RESPONSE = 5
    CONNECT_ERROR = 6
    UNREACHABLE = 7
    REJECTED = 8
    ESTABLISHED = 9
    DISCONNECTED = 10
    DEVICE_REMOVAL = 11
    MULTICAST_JOIN = 12
    MULTICAST_ERROR = 13
    ADDR_CHANGE = 14
    TIMEWAIT_EXIT = 15


@dataclass(frozen=True, slots=True)
class SocketAddress:
    """An address of a net device and a port of librdmacm's; `scope` is the device's index."""

    ip: IpAddress
    port: int = 0
    scope: int = 0

    def pack(self) -> Any:
        """Make a `sockaddr_in` or `sockaddr_in6`."""
        port = self.port.to_bytes(2, "big")
        if isinstance(self.ip, IPv4Address):
            raw = _IN.pack(socket.AF_INET, port, self.ip.packed)
        else:
            raw = _IN6.pack(socket.AF_INET6, port, 0, self.ip.packed, self.scope)
        return _ffi.new("char[]", raw.ljust(_SOCKADDR_BYTES, b"\0"))

    @classmethod
    def unpack(cls, raw: bytes) -> SocketAddress:
        """Read a `sockaddr`; `LinkError` for other families."""
        family = int.from_bytes(raw[:2], "little" if _IS_LITTLE else "big")
        if family == socket.AF_INET:
            _, port, ip4 = _IN.unpack_from(raw)
            return cls(IPv4Address(ip4), int.from_bytes(port, "big"))
        if family == socket.AF_INET6:
            _, port, _, ip6, scope = _IN6.unpack_from(raw)
            return cls(IPv6Address(ip6), int.from_bytes(port, "big"), scope)
        raise LinkError(f"a connection's address is of family {family}, which is not IP")


@dataclass(frozen=True, slots=True)
class PortAddress:
    """A port of an InfiniBand subnet with a service: a `sockaddr_ib`. Our own address has no service."""

    gid: Gid
    pkey: PKey
    service_id: int | None = None

    def pack(self) -> Any:
        is_service = self.service_id is not None
        raw = _IB.pack(
            _AF_IB,
            self.pkey.to_bytes(2, "big"),
            bytes(4),
            self.gid.raw,
            (self.service_id or 0).to_bytes(8, "big"),
            (b"\xff" if is_service else b"\0") * 8,
            0,
        )
        return _ffi.new("char[]", raw.ljust(_SOCKADDR_BYTES, b"\0"))


Address = SocketAddress | PortAddress

_IS_LITTLE: Final = struct.pack("=H", 1) == b"\1\0"


@dataclass(frozen=True, slots=True)
class CmGroup:
    """A multicast group that an identifier has joined: the address vector of sends to it, and its Q_Key."""

    destination: Destination
    qkey: int


@dataclass(frozen=True, slots=True)
class CmEvent:
    """One event. `listener` received the request; `qpn` is the peer's queue pair if the message names it.

    `status` is a negative errno; for REJECTED it is the peer's reason. MULTICAST_JOIN has a `group`.
    """

    type: CmEventType
    id: CmId
    listener: CmId | None
    status: int
    private: bytes
    qpn: int
    group: CmGroup | None = None


class EventChannel:
    """Identifiers and their events. Only one thread at a time calls the channel and its identifiers."""

    def __init__(self) -> None:
        """Open the channel; `LinkError` or `NotPermitted` names the missing part."""
        self._library = _load()
        self._raw = self._library.rdma_create_event_channel()
        if self._raw == _ffi.NULL:
            code = _ffi.errno
            if code in (errno.EACCES, errno.EPERM):
                raise NotPermitted("/dev/infiniband/rdma_cm may not be opened; run as root")
            raise LinkError(
                f"connections need /dev/infiniband/rdma_cm ({os.strerror(code)}): modprobe rdma_ucm"
            )
        os.set_blocking(self._raw.fd, False)
        self._ids: dict[int, CmId] = {}

    def fileno(self) -> int:
        fd: int = self._raw.fd
        return fd

    def create(self, port_space: int = PORT_SPACE_TCP) -> CmId:
        """Create an identifier; `OSError` if the kernel has none left."""
        raw: Any = _ffi.new("struct rdma_cm_id **")
        _check(self._library.rdma_create_id(self._raw, raw, _ffi.NULL, port_space), "identifier")
        return self._adopt(raw[0])

    def event(self) -> CmEvent | None:
        """Return the next event, or None; does not block."""
        raw: Any = _ffi.new("struct rdma_cm_event **")
        while self._library.rdma_get_cm_event(self._raw, raw) == 0:
            try:
                event = self._read(raw[0])
            finally:
                self._library.rdma_ack_cm_event(raw[0])
            if event is not None:
                return event
        if _ffi.errno not in (errno.EAGAIN, errno.EINTR):
            raise OSError(_ffi.errno, os.strerror(_ffi.errno))
        return None

    def close(self) -> None:
        """Close the channel and all its identifiers. Safe to repeat."""
        for each in list(self._ids.values()):
            each.close()
        if self._raw != _ffi.NULL:
            self._library.rdma_destroy_event_channel(self._raw)
            self._raw = _ffi.NULL

    def _adopt(self, raw: Any) -> CmId:
        key = int(_ffi.cast("uintptr_t", raw))
        self._ids[key] = CmId(self._library, raw, lambda: self._ids.pop(key, None))
        return self._ids[key]

    def _read(self, raw: Any) -> CmEvent | None:
        kind = CmEventType(raw.event)
        listener = None
        if kind is CmEventType.CONNECT_REQUEST:
            listener = self._ids.get(int(_ffi.cast("uintptr_t", raw.listen_id)))
            about: CmId | None = self._adopt(raw.id)
        else:
            about = self._ids.get(int(_ffi.cast("uintptr_t", raw.id)))
        if about is None:
            return None
        if kind in (CmEventType.MULTICAST_JOIN, CmEventType.MULTICAST_ERROR):
            group = None
            if kind is CmEventType.MULTICAST_JOIN:
                group = CmGroup(_destination(raw.ud.ah, raw.ud.qp_num), raw.ud.qkey)
            return CmEvent(kind, about, None, raw.status, b"", raw.ud.qp_num, group)
        conn = raw.conn
        private = b""
        if conn.private_data != _ffi.NULL:
            private = bytes(_ffi.buffer(conn.private_data, conn.private_data_len))
        return CmEvent(kind, about, listener, raw.status, private, conn.qp_num)


class CmId:
    """An identifier: a connection or a listener. Calls that the kernel refuses raise `OSError`."""

    def __init__(self, library: Any, raw: Any, forget: Any) -> None:
        self._library = library
        self._raw = raw
        self._forget = forget

    def bind(self, address: Address, *, ack_timeout: int | None = None) -> None:
        """Bind to an address of ours. `ack_timeout` is a code as in `RcAttributes`, for connecting only."""
        if isinstance(address, SocketAddress) and isinstance(address.ip, IPv6Address):
            self._option(_OPTION_AFONLY, "int *", 1)
        if ack_timeout is not None:
            self._option(_OPTION_ACK_TIMEOUT, "uint8_t *", ack_timeout)
        _check(self._library.rdma_bind_addr(self._raw, address.pack()), "bind")

    def listen(self, backlog: int) -> None:
        _check(self._library.rdma_listen(self._raw, backlog), "listen")

    def resolve_address(self, target: Address, timeout_ms: int) -> None:
        """Begin to resolve; ADDR_RESOLVED or ADDR_ERROR follows."""
        library = self._library
        _check(
            library.rdma_resolve_addr(self._raw, _ffi.NULL, target.pack(), timeout_ms), "address"
        )

    def resolve_route(self, timeout_ms: int) -> None:
        """Begin to resolve; ROUTE_RESOLVED or ROUTE_ERROR follows."""
        _check(self._library.rdma_resolve_route(self._raw, timeout_ms), "route")

    def connect(
        self, qpn: Qpn, private: bytes, *, retries: int, rnr_retries: int, has_srq: bool
    ) -> None:
        """Send the request; CONNECT_RESPONSE (on iWARP ESTABLISHED) or an error event follows."""
        param = self._param(qpn, private, retries, rnr_retries, has_srq)
        _check(self._library.rdma_connect(self._raw, param), "connect")

    def accept(self, qpn: Qpn, private: bytes, *, rnr_retries: int, has_srq: bool) -> None:
        """Accept the request; ESTABLISHED follows when the peer is ready, too."""
        param = self._param(qpn, private, 0, rnr_retries, has_srq)
        _check(self._library.rdma_accept(self._raw, param), "accept")

    def establish(self) -> None:
        """Confirm CONNECT_RESPONSE when the queue pair is ready. No event follows."""
        _check(self._library.rdma_establish(self._raw), "establish")

    def reject(self, private: bytes) -> None:
        """Reject the request. The kernel always sends reason 28 (consumer reject)."""
        _check(self._library.rdma_reject(self._raw, private, len(private)), "reject")

    def disconnect(self) -> None:
        """Disconnect; DISCONNECTED follows, even if the peer does not answer."""
        _check(self._library.rdma_disconnect(self._raw), "disconnect")

    def attributes(self) -> RcAttributes:
        """Return the attributes of the queue pair for RTR and RTS, after a request or a response."""
        attr = self._query(_STATE_RTR)
        rts = self._query(_STATE_RTS)
        return RcAttributes(
            destination=_destination(attr.ah, attr.dest_qp_num),
            path_mtu_bytes=128 << attr.path_mtu,
            receive_psn=attr.rq_psn,
            send_psn=rts.sq_psn,
            ack_timeout=rts.timeout,
            retries=rts.retry_cnt,
            rnr_retries=rts.rnr_retry,
        )

    def join(self, group: PortAddress, *, to_send_only: bool) -> None:
        """Become a member of the group; MULTICAST_JOIN or MULTICAST_ERROR follows, the latter also when
        the membership ends later.

        The identifier is of PORT_SPACE_IPOIB and bound to an address of the kernel's own interface in the
        partition. The kernel counts all memberships of the port; `close` gives this one back.
        """
        address = group.pack()
        attr: Any = _ffi.new("struct rdma_cm_join_mc_attr_ex *")
        attr.comp_mask, attr.addr = _JOIN_ATTRIBUTES, address
        attr.join_flags = _SEND_ONLY_FULL_MEMBER if to_send_only else 0
        _check(self._library.rdma_join_multicast_ex(self._raw, attr, _ffi.NULL), "join")

    def path(self) -> PathRecord | None:
        """Return the path after ROUTE_RESOLVED; None without one."""
        if self._raw.num_paths < 1 or self._raw.path_rec == _ffi.NULL:
            return None
        path = self._raw.path_rec[0]
        if path.mtu not in MTU_BYTES:
            return None
        return PathRecord(
            dgid=Gid(bytes(_ffi.buffer(path.dgid))),
            sgid=Gid(bytes(_ffi.buffer(path.sgid))),
            dlid=socket.ntohs(path.dlid),
            slid=socket.ntohs(path.slid),
            pkey=PKey(socket.ntohs(path.pkey)),
            sl=path.sl,
            mtu_bytes=MTU_BYTES[path.mtu],
            rate=path.rate,
            lifetime=path.life_time,
            flow_label=socket.ntohl(path.flow_label),
            hop_limit=path.hop_limit,
            traffic_class=path.traffic_class,
        )

    @property
    def device(self) -> str | None:
        """The name of the RDMA device, or None before an address decides which one."""
        if self._raw.verbs == _ffi.NULL:
            return None
        context: Any = _ffi.cast("struct ibv_context *", self._raw.verbs)
        name: Any = _ffi.string(context.device.name)
        return str(name, "ascii", "replace")

    @property
    def target(self) -> SocketAddress:
        return SocketAddress.unpack(bytes(_ffi.buffer(self._raw.target)))

    def close(self) -> None:
        """Destroy the identifier: the kernel disconnects the peer, and no events follow. Safe to repeat."""
        if self._raw != _ffi.NULL:
            self._forget()
            self._library.rdma_destroy_id(self._raw)
            self._raw = _ffi.NULL

    def _option(self, name: int, kind: str, number: int) -> None:
        value: Any = _ffi.new(kind, number)
        size = _ffi.sizeof(_ffi.typeof(value).item)
        _check(self._library.rdma_set_option(self._raw, _OPTION_ID, name, value, size), "option")

    def _param(self, qpn: Qpn, private: bytes, retries: int, rnr: int, has_srq: bool) -> Any:
        self._private: Any = _ffi.new("char[]", private)
        param: Any = _ffi.new("struct rdma_conn_param *")
        param.private_data, param.private_data_len = self._private, len(private)
        param.responder_resources = param.initiator_depth = 1
        param.flow_control = 1
        param.retry_count, param.rnr_retry_count = retries, rnr
        param.srq, param.qp_num = has_srq, qpn
        return param

    def _query(self, state: int) -> Any:
        attr: Any = _ffi.new("struct ibv_qp_attr *")
        attr.qp_state = state
        mask: Any = _ffi.new("int *")
        _check(self._library.rdma_init_qp_attr(self._raw, attr, mask), "attributes")
        return attr


def _destination(ah: Any, qpn: int) -> Destination:
    return Destination(
        gid=Gid(bytes(_ffi.buffer(ah.dgid))),
        qpn=Qpn(qpn),
        dlid=ah.dlid,
        sl=ah.sl,
        static_rate=ah.static_rate,
        hop_limit=ah.hop_limit,
        traffic_class=ah.traffic_class,
        flow_label=ah.flow_label,
    )


def translate(place: str, what: str, error: OSError) -> IpoibuError:
    """Turn an error of this module into one for the user."""
    code = error.errno or 0
    if code in (errno.EACCES, errno.EPERM):
        return NotPermitted(f"{place}: {what}: not permitted; run as root")
    return LinkError(f"{place}: {what}: {os.strerror(code)}")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = _ffi.errno
        raise OSError(code, f"{what}: {os.strerror(code)}")


@cache
def _load() -> Any:
    try:
        return _ffi.dlopen(LIBRARY)
    except OSError as error:
        raise LinkError(
            f"connections need {LIBRARY}, which is not here: install librdmacm1 (Debian) or "
            f"librdmacm (Fedora) [{error}]"
        ) from error
