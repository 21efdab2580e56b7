# SPDX-License-Identifier: BSD-2-Clause
"""A port's management datagrams through libibumad, loaded when the first port is opened.

cffi works in ABI mode: building or importing this package needs nothing of rdma-core. The declarations are
the interface of libibumad.so.3, the same since 2008 (umad.h of rdma-core).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import cffi

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted
from ipoibu.fabric.sa.mad_port import MadIn, MadPortInfo, MadTo
from ipoibu.wire import mad, sa

LIBRARY: Final = "libibumad.so.3"
ACTIVE: Final = 4  # a port's logical state
_DEVICES_MAX: Final = 32  # UMAD_MAX_DEVICES
_GID: Final = ("gid_prefix", "port_guid")

_ffi = cffi.FFI()
_ffi.cdef("""
    typedef struct umad_port {
        char ca_name[20];
        int portnum;
        unsigned base_lid, lmc, sm_lid, sm_sl, state, phys_state, rate;
        uint32_t capmask;
        uint64_t gid_prefix, port_guid;
        unsigned pkeys_size;
        uint16_t *pkeys;
        char link_layer[20];
    } umad_port_t;
    typedef struct ib_mad_addr {
        uint32_t qpn, qkey;
        uint16_t lid;
        uint8_t sl, path_bits, grh_present, gid_index, hop_limit, traffic_class, gid[16];
        uint32_t flow_label;
        uint16_t pkey_index;
        uint8_t reserved[6];
    } ib_mad_addr_t;
    int umad_init(void);
    int umad_get_cas_names(char cas[][20], int max);
    int umad_get_port(const char *ca_name, int portnum, umad_port_t *port);
    int umad_release_port(umad_port_t *port);
    int umad_open_port(const char *ca_name, int portnum);
    int umad_close_port(int portid);
    int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
                      long method_mask[]);
    int umad_unregister(int portid, int agentid);
    size_t umad_size(void);
    void *umad_get_mad(void *umad);
    int umad_status(void *umad);
    ib_mad_addr_t *umad_get_mad_addr(void *umad);
    int umad_set_addr(void *umad, int dlid, int dqp, int sl, int qkey);
    int umad_set_pkey(void *umad, int pkey_index);
    int umad_set_grh(void *umad, void *mad_addr);
    int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms, int retries);
    int umad_recv(int portid, void *umad, int *length, int timeout_ms);
    int umad_poll(int portid, int timeout_ms);
""")


@cache
def _library() -> Any:
    try:
        library: Any = _ffi.dlopen(LIBRARY)
    except OSError as error:
        raise LinkError(
            f"InfiniBand ports need {LIBRARY}, which is not here: install libibumad3 (Debian) or "
            f"libibumad (Fedora) [{error}]"
        ) from error
    if library.umad_init() < 0:
        raise LinkError("this kernel passes no management datagrams: run `modprobe ib_umad`")
    return library


def devices() -> tuple[str, ...]:
    """Return the names of the devices that have management datagrams."""
    names = _ffi.new("char[][20]", _DEVICES_MAX)
    count = _library().umad_get_cas_names(names, _DEVICES_MAX)
    return tuple(_text(names[at]) for at in range(count))


def _text(field: Any) -> str:
    raw: Any = _ffi.string(field)
    return str(raw, "ascii", "replace")


class UmadPort:
    """A `MadPort` of the kernel."""

    def __init__(
        self,
        device: str,
        port: int = 1,
        methods: Iterable[int] = (mad.Method.REPORT,),
        *,
        mgmt_class: int = sa.CLASS,
        version: int = sa.CLASS_VERSION,
    ) -> None:
        """Open the port and register for a management class, by default the SA's; also for unsolicited
        `methods`.

        `LinkError`, `NoSuchDevice` or `NotPermitted` if that fails.
        """
        self._umad = _library()
        self._device, self._port = device, port
        self._fd = self._agent = -1
        self.look()
        self._fd = self._open()
        try:
            self._agent, self.hears_unasked = self._register(mgmt_class, version, methods)
            self._send_buffer = _ffi.new("char[]", self._umad.umad_size() + mad.MAD_LEN)
            self._receive_buffer = _ffi.new("char[]", self._umad.umad_size() + mad.MAD_LEN)
        except BaseException:
            self.close()
            raise

    def look(self) -> MadPortInfo:
        port: Any = _ffi.new("umad_port_t *")
        if self._umad.umad_get_port(self._device.encode(), self._port, port) < 0:
            known = ", ".join(devices()) or "none"
            raise NoSuchDevice(
                f"{self._device}/{self._port}: no such InfiniBand port; devices here: {known}"
            )
        try:
            if _text(port.link_layer) not in ("InfiniBand", "IB"):
                raise LinkError(f"{self._device}/{self._port}: not an InfiniBand port")
            prefix, guid = (_ffi.buffer(_ffi.addressof(port, name))[:] for name in _GID)
            keys = tuple(PKey(port.pkeys[at]) for at in range(port.pkeys_size))
            return MadPortInfo(
                self._device,
                self._port,
                port.state == ACTIVE,
                port.base_lid,
                port.sm_lid,
                port.sm_sl,
                Gid(prefix + guid),
                keys,
            )
        finally:
            self._umad.umad_release_port(port)

    def fileno(self) -> int:
        return self._fd

    def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
        umad, buffer = self._umad, self._send_buffer
        _ffi.memmove(buffer, bytes(len(buffer)), len(buffer))
        self._address(buffer, to)
        _ffi.memmove(umad.umad_get_mad(buffer), raw, len(raw))
        if umad.umad_send(self._fd, self._agent, buffer, len(raw), round(wait_s * 1000), 0) < 0:
            raise OSError(_ffi.errno, os.strerror(_ffi.errno))

    def receive(self) -> MadIn | None:
        umad, buffer = self._umad, self._receive_buffer
        # poll first, because umad2sim answers a read without data with a number that is no errno
        if umad.umad_poll(self._fd, 0) < 0:
            return None
        length = _ffi.new("int *", mad.MAD_LEN)
        if umad.umad_recv(self._fd, buffer, length, 0) < 0:
            return None
        address = umad.umad_get_mad_addr(buffer)
        raw = _ffi.buffer(umad.umad_get_mad(buffer), max(0, min(length[0], mad.MAD_LEN)))[:]
        # both are in network byte order
        lid = int.from_bytes(_ffi.buffer(_ffi.addressof(address, "lid"))[:], "big")
        qpn = int.from_bytes(_ffi.buffer(_ffi.addressof(address, "qpn"))[:], "big")
        gid = Gid(_ffi.buffer(address.gid)[:]) if address.grh_present else None
        status = umad.umad_status(buffer)
        return MadIn(raw, lid, qpn, status, gid, address.sl, address.pkey_index)

    def close(self) -> None:
        if self._agent >= 0:
            self._umad.umad_unregister(self._fd, self._agent)
            self._agent = -1
        if self._fd >= 0:
            self._umad.umad_close_port(self._fd)
            self._fd = -1

    def _address(self, buffer: Any, to: MadTo) -> None:
        # the library takes the Q_Key as a signed int
        self._umad.umad_set_addr(buffer, to.lid, to.qpn, to.sl, mad.GSI_QKEY - (1 << 32))
        self._umad.umad_set_pkey(buffer, to.pkey_index)
        if to.route is not None:
            grh = self._umad.umad_get_mad_addr(buffer)
            grh.grh_present, grh.gid_index = 1, 0
            _ffi.memmove(grh.gid, to.route.gid.raw, 16)
            grh.hop_limit, grh.traffic_class = to.route.hop_limit, to.route.traffic_class
            _ffi.buffer(_ffi.addressof(grh, "flow_label"))[:] = to.route.flow_label.to_bytes(
                4, "big"
            )

    def _open(self) -> int:
        fd: int = self._umad.umad_open_port(self._device.encode(), self._port)
        if fd >= 0:
            return fd
        place = f"{self._device}/{self._port}"
        reason = _ffi.errno
        if reason in (errno.EACCES, errno.EPERM):
            raise NotPermitted(f"{place}: /dev/infiniband/umad* may not be opened; run as root")
        if reason == errno.ENOENT or fd == -errno.EINVAL:
            raise LinkError(f"{place}: no /dev/infiniband/umad*; run `modprobe ib_umad`")
        raise IpoibuError(f"{place}: cannot open /dev/infiniband/umad*: {os.strerror(reason)}")

    def _register(self, mgmt_class: int, version: int, methods: Iterable[int]) -> tuple[int, bool]:
        """Register with the methods, unless another agent has them: only one can.

        With RMPP version 0 the kernel passes every segment on, and leaves the protocol to us.
        """
        bits = 8 * _ffi.sizeof("long")
        wanted = sum(1 << method for method in methods)
        words = [wanted >> at & (1 << bits) - 1 for at in range(0, 128, bits)]
        masks = (_ffi.new("long[]", words), True), (_ffi.NULL, False)
        for mask, hears_unasked in masks:
            agent = self._umad.umad_register(self._fd, mgmt_class, version, 0, mask)
            if agent >= 0:
                return agent, hears_unasked
        raise IpoibuError(
            f"{self._device}/{self._port}: cannot take part in management class {mgmt_class}: "
            f"{os.strerror(_ffi.errno)}"
        )
