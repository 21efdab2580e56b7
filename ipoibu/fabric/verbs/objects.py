# SPDX-License-Identifier: BSD-2-Clause
"""The only module that imports pyverbs, and turns its objects and errors into ours.

It works with rdma-core's pyverbs from 44 (Debian 12) to 59. The first RDMA device imports pyverbs:
installing, importing and testing ipoibu needs no RDMA library.
"""

from __future__ import annotations

import errno
import importlib
import logging
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.distribution import install
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted
from ipoibu.base.ib import RcAttributes, port_speed_mbps
from ipoibu.base.limits import RDMACM_RETRIES
from ipoibu.fabric.verbs.roce_gid import GidEntry, mtu_code, mtu_from_code

_log = logging.getLogger(__name__)

_SYSFS: Final = Path("/sys/class/infiniband")
_NETDEVS: Final = Path("/sys/class/net")
INSTALL: Final = install("pyverbs")
REINSTALL: Final = f"pip uninstall pyverbs, then {INSTALL}"
SHARE: Final = (
    "make the virtual environment with --system-site-packages, which shows it the distribution's "
    "python3-pyverbs, or pip install the version of pyverbs that libibverbs has"
)
RXE_VENDOR_ID: Final = 0xFFFFFF  # drivers/infiniband/sw/rxe/rxe_param.h
_UNMATCHED: Final = "IBVERBS_PRIVATE"  # the symbol version that ties pyverbs to one libibverbs


@dataclass(frozen=True, slots=True)
class PortState:
    """The present state of a port; `link_layer` is "InfiniBand" or "Ethernet"."""

    active: bool
    active_mtu_bytes: int
    link_layer: str
    gid_count: int
    pkey_count: int
    speed_mbps: int | None


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a device: address handles, work requests of a queue, completions of a completion
    queue, multicast groups, shared receive queues, and work requests of one of those. `loses_receives`:
    a queue pair that fails within a message may keep the message's receive of a shared queue, as with newer
    kernels' Soft-RoCE (ext/verbs/receive_order.h).
    """

    max_ah: int
    max_qp_wr: int
    max_cqe: int
    max_mcast_grp: int
    max_srq: int
    max_srq_wr: int
    loses_receives: bool


@dataclass(frozen=True, slots=True)
class UdObjects:
    """The pyverbs objects of one UD queue pair. `close` closes the queue pair before the other objects.

    A device that is gone refuses to close an object; we log that and close the other objects.
    """

    qp: Any
    send_cq: Any
    recv_cq: Any
    channel: Any

    def close_queue_pair(self) -> None:
        _close(self.qp)

    def close_rest(self) -> None:
        for item in (self.send_cq, self.recv_cq, self.channel):
            _close(item)


@dataclass(frozen=True, slots=True)
class ConnectedObjects:
    """The pyverbs objects that all RC queue pairs of an interface share. The caller closes the queue pairs
    first.

    `srq` is None if each queue pair has receives of its own.
    """

    srq: Any | None
    send_cq: Any
    recv_cq: Any
    channel: Any

    def close(self) -> None:
        for item in (self.srq, self.send_cq, self.recv_cq, self.channel):
            if item is not None:
                _close(item)


def _close(item: Any) -> None:
    try:
        item.close()
    except Exception as error:  # PyverbsError, by whichever import
        _log.warning("cannot close the %s of an RDMA device: %s", type(item).__name__, error)


def load() -> SimpleNamespace:
    """Import pyverbs' modules; `NoSuchDevice` names what to install, or the mismatch with libibverbs."""
    try:
        with _logging_kept():
            modules = SimpleNamespace(
                **{
                    name: importlib.import_module(f"pyverbs.{name}")
                    for name in ("addr", "cq", "device", "pd", "pyverbs_error", "qp", "srq")
                }
            )
            try:
                modules.enums = importlib.import_module("pyverbs.libibverbs_enums")
            except ModuleNotFoundError:
                modules.enums = importlib.import_module("pyverbs.enums")  # its name up to 44
    except ModuleNotFoundError as error:
        raise NoSuchDevice(missing(missing_remedy())) from error
    except ImportError as error:
        raise NoSuchDevice(import_problem(str(error))) from error
    return modules


def missing(remedy: str) -> str:
    """Say that this Python finds no pyverbs, with the remedy."""
    return f"RDMA devices need pyverbs, which is not there: {remedy}"


def missing_remedy() -> str:
    """Return the remedy for a Python that finds no pyverbs."""
    return SHARE if hides_distribution(sys.prefix, sys.base_prefix, sys.path) else INSTALL


def hides_distribution(prefix: str, base_prefix: str, path: Sequence[str]) -> bool:
    """Return whether this Python runs in a virtual environment without the distribution's packages."""
    if prefix == base_prefix:
        return False
    return all(Path(entry).is_relative_to(prefix) for entry in path if entry.endswith("-packages"))


def import_problem(text: str) -> str:
    """Describe why an installed pyverbs does not load, with the remedy."""
    if _UNMATCHED in text:
        return (
            "pyverbs does not fit the libibverbs that is installed: a build from PyPI runs only "
            f"with the very same version of rdma-core; {REINSTALL}"
        )
    return f"pyverbs does not load ({text}): {INSTALL}"


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Undo the root logger's set-up by pyverbs' import, because only the application may configure it."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    try:
        yield
    finally:
        for handler in root.handlers[:]:
            if handler not in handlers:
                root.removeHandler(handler)
        root.setLevel(level)


def is_iwarp(name: str) -> bool:
    """Return whether the name is that of an iWARP device, which has connections only."""
    return _is_iwarp(load(), name)


def _is_iwarp(pyverbs: SimpleNamespace, name: str) -> bool:
    iwarp = pyverbs.enums.IBV_TRANSPORT_IWARP
    return any(
        (device.name.decode(), device.transport_type) == (name, iwarp)
        for device in _devices(pyverbs)
    )


def _devices(pyverbs: SimpleNamespace) -> list[Any]:
    try:
        return list(pyverbs.device.get_device_list())
    except pyverbs.pyverbs_error.PyverbsError:
        return []  # a machine without RDMA support raises this


class VerbsDevice:
    """An open device with a protection domain: opened by name, or lent by the application.

    The application closes lent objects, after this device.
    """

    def __init__(
        self, name: str | None, *, context: Any = None, pd: Any = None, is_iwarp: bool = False
    ) -> None:
        self._pyverbs = load()
        self.name: str = name or getattr(context, "name", None) or "rdma"
        self.is_lent = context is not None
        self._context = context if self.is_lent else self._open(self.name)
        self._own_pd = pd is None
        try:
            if not is_iwarp:
                self._refuse_iwarp()
            with self._translated("protection domain"):
                self._pd = self._pyverbs.pd.PD(self._context) if self._own_pd else pd
        except BaseException:
            if not self.is_lent:
                self._context.close()
            raise

    def _open(self, name: str) -> Any:
        names = [device.name.decode() for device in _devices(self._pyverbs)]
        if name not in names:
            raise NoSuchDevice(_missing(name, names))
        with self._translated("open"):
            return self._pyverbs.device.Context(name=name)

    def _refuse_iwarp(self) -> None:
        if _is_iwarp(self._pyverbs, self.name):
            raise LinkError(f"{self.name} is an iWARP device: it has no datagrams (UD)")

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except self._pyverbs.pyverbs_error.PyverbsError as error:
            raise translate(self.name, what, error) from error

    # ---- questions

    @property
    def cmd_fd(self) -> int:
        return int(self._context.cmd_fd)

    def port_state(self, port: int) -> PortState:
        enums = self._pyverbs.enums
        with self._translated(f"port {port}"):
            attr = self._context.query_port(port)
        is_ib = attr.link_layer == enums.IBV_LINK_LAYER_INFINIBAND
        return PortState(
            active=attr.state == enums.IBV_PORT_ACTIVE,
            active_mtu_bytes=mtu_from_code(attr.active_mtu, f"{self.name}/{port}"),
            link_layer="InfiniBand" if is_ib else "Ethernet",
            gid_count=attr.gid_tbl_len,
            pkey_count=attr.pkey_tbl_len,
            speed_mbps=port_speed_mbps(attr.active_width, attr.active_speed),
        )

    def gids(self, port: int, count: int) -> list[GidEntry]:
        """Return the port's GIDs in the order of the table; `count` is the table's length."""
        with self._translated("GID table"):
            ports = self._context.query_device().phys_port_cnt
            table = self._context.query_gid_table(count * ports)  # of all ports, or none at all
        return [
            GidEntry(
                index=entry.gid_index,
                gid=Gid.parse(entry.gid_str()),
                is_roce_v2=entry.gid_type == self._pyverbs.enums.IBV_GID_TYPE_ROCE_V2,
                ifindex=entry.ndev_ifindex,
            )
            for entry in table
            if entry.port_num == port
        ]

    def gid(self, port: int, index: int) -> Gid:
        with self._translated(f"GID {index}"):
            return Gid.parse(str(self._context.query_gid(port, index)))

    def pkeys(self, port: int, count: int) -> list[PKey]:
        """Return the port's P_Key table, in order; pyverbs has the keys in network byte order."""
        with self._translated("P_Key table"):
            return [
                PKey(socket.ntohs(self._context.query_pkey(port, index))) for index in range(count)
            ]

    def limits(self) -> Limits:
        with self._translated("device"):
            attr = self._context.query_device()
        return Limits(
            attr.max_ah,
            attr.max_qp_wr,
            attr.max_cqe,
            attr.max_mcast_grp,
            attr.max_srq,
            attr.max_srq_wr,
            attr.vendor_id == RXE_VENDOR_ID,
        )

    # ---- creating

    def create_ud(self, send_depth: int, recv_depth: int, inline_bytes: int) -> UdObjects:
        """Create a UD queue pair in RESET, without inline sends if the device refuses so many bytes."""
        channel, send_cq, recv_cq = made = self._create_cqs(send_depth, recv_depth)
        try:
            qp = self._create_qp(send_cq, recv_cq, send_depth, recv_depth, inline_bytes)
        except BaseException:
            for item in reversed(made):
                _close(item)
            raise
        return UdObjects(qp, send_cq, recv_cq, channel)

    def _create_cqs(self, *depths: int) -> list[Any]:
        """Create a completion channel, and completion queues on it."""
        made: list[Any] = []
        try:
            with self._translated("completion queue"):
                made.append(self._pyverbs.cq.CompChannel(self._context))
                for depth in depths:
                    made.append(self._pyverbs.cq.CQ(self._context, depth, None, made[0], 0))
        except BaseException:
            for item in reversed(made):
                _close(item)
            raise
        return made

    def create_connected(self, recv_depth: int, send_depth: int) -> ConnectedObjects:
        """Create a shared receive queue, and the completion queues of all RC queue pairs."""
        channel, send_cq, recv_cq = made = self._create_cqs(send_depth, recv_depth)
        srq = self._pyverbs.srq
        try:
            with self._translated("shared receive queue"):
                shared = srq.SRQ(self._pd, srq.SrqInitAttr(srq.SrqAttr(recv_depth, 1)))
        except BaseException:
            for item in reversed(made):
                _close(item)
            raise
        return ConnectedObjects(shared, send_cq, recv_cq, channel)

    def create_mesh(self, recv_depth: int, send_depth: int) -> ConnectedObjects:
        """Create completion queues for RC queue pairs that share nothing else."""
        channel, send_cq, recv_cq = self._create_cqs(send_depth, recv_depth)
        return ConnectedObjects(None, send_cq, recv_cq, channel)

    def create_rc(
        self,
        objects: ConnectedObjects,
        send_depth: int,
        inline_bytes: int,
        recv_depth: int = 0,
    ) -> Any:
        """Create an RC queue pair in RESET; `LinkError` if the device refuses so many inline bytes."""
        pyverbs = self._pyverbs
        with self._translated("connected queue pair"):
            cap = pyverbs.qp.QPCap(send_depth, recv_depth, 2, 1 if recv_depth else 0, inline_bytes)
            attr = pyverbs.qp.QPInitAttr(
                qp_type=pyverbs.enums.IBV_QPT_RC,
                scq=objects.send_cq,
                rcq=objects.recv_cq,
                cap=cap,
                sq_sig_all=0,
                **({} if objects.srq is None else {"srq": objects.srq}),
            )
            return pyverbs.qp.QP(self._pd, attr)

    def raise_rc(self, qp: Any, port: int, pkey_index: int) -> None:
        """Move the queue pair from RESET to INIT; peers may use nothing but SEND."""
        enums = self._pyverbs.enums
        attr = self._pyverbs.qp.QPAttr(port_num=port)
        attr.qp_state = enums.IBV_QPS_INIT
        attr.pkey_index = pkey_index
        attr.qp_access_flags = 0
        self._modify(qp, attr, "PKEY_INDEX", "PORT", "ACCESS_FLAGS")

    def program_rc(self, qp: Any, to: RcAttributes, port: int, sgid_index: int) -> None:
        """Move the queue pair from INIT to RTR and RTS. On RoCE the kernel looks up the peer's MAC address,
        which it learned from the CM messages."""
        pyverbs, dest = self._pyverbs, to.destination
        attr = pyverbs.qp.QPAttr(port_num=port)
        attr.qp_state = pyverbs.enums.IBV_QPS_RTR
        attr.ah_attr = pyverbs.addr.AHAttr(
            gr=pyverbs.addr.GlobalRoute(
                dgid=pyverbs.addr.GID(IPv6Address(dest.gid.raw).exploded),
                sgid_index=sgid_index,
                hop_limit=dest.hop_limit,
                traffic_class=dest.traffic_class,
                flow_label=dest.flow_label,
            ),
            is_global=dest.needs_grh,
            dlid=dest.dlid,
            sl=dest.sl,
            static_rate=dest.static_rate,
            port_num=port,
        )
        attr.path_mtu = mtu_code(to.path_mtu_bytes)
        attr.dest_qp_num = int(dest.qpn)
        attr.rq_psn = to.receive_psn
        attr.max_dest_rd_atomic = 1  # some devices refuse 0; we use no RDMA reads
        attr.min_rnr_timer = to.rnr_timer
        self._modify(
            qp,
            attr,
            *("AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"),
        )
        attr.qp_state = pyverbs.enums.IBV_QPS_RTS
        attr.sq_psn = to.send_psn
        attr.timeout = to.ack_timeout
        attr.retry_cnt = min(to.retries, RDMACM_RETRIES)
        attr.rnr_retry = to.rnr_retries
        attr.max_rd_atomic = 1
        self._modify(qp, attr, "SQ_PSN", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC")

    def fail(self, qp: Any) -> None:
        """Move the queue pair to ERROR from any state; a device that is gone may refuse."""
        attr = self._pyverbs.qp.QPAttr()
        attr.qp_state = self._pyverbs.enums.IBV_QPS_ERR
        try:
            self._modify(qp, attr)
        except IpoibuError as error:
            _log.info("%s: cannot put a queue pair into the error state: %s", self.name, error)

    def destroy(self, qp: Any) -> None:
        _close(qp)

    def _modify(self, qp: Any, attr: Any, *names: str) -> None:
        enums = self._pyverbs.enums
        mask = enums.IBV_QP_STATE
        for name in names:
            mask |= getattr(enums, f"IBV_QP_{name}")
        with self._translated("connected queue pair"):
            qp.modify(attr, mask)

    def _create_qp(self, scq: Any, rcq: Any, send: int, recv: int, inline_bytes: int) -> Any:
        pyverbs = self._pyverbs
        with self._translated("queue pair"):
            for inline in (inline_bytes, 0):
                cap = pyverbs.qp.QPCap(send, recv, 2, 1, inline)
                attr = pyverbs.qp.QPInitAttr(
                    qp_type=pyverbs.enums.IBV_QPT_UD, scq=scq, rcq=rcq, cap=cap, sq_sig_all=0
                )
                try:
                    return pyverbs.qp.QP(self._pd, attr)
                except pyverbs.pyverbs_error.PyverbsRDMAError:
                    if inline == 0:
                        raise
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Close the objects that we opened. The caller has closed the queue pairs."""
        if self._own_pd:
            _close(self._pd)
        if not self.is_lent:
            _close(self._context)


def _missing(name: str, names: list[str]) -> str:
    there = ", ".join(sorted(names)) or "none"
    if (_NETDEVS / name).exists():
        return f"{name}: no RDMA device but a network device; the built-in HCA on it is soft:{name}"
    if (_SYSFS / name).exists():
        return (
            f"{name}: the kernel has it, but libibverbs has no driver for it: {INSTALL} "
            f"(it can open: {there})"
        )
    return f"{name}: no such RDMA device; there are: {there} (rdma link shows them)"


def translate(name: str, what: str, error: Exception) -> IpoibuError:
    """Turn an error of pyverbs into ours, with the remedy."""
    code = getattr(error, "error_code", -1)
    if code in (errno.EACCES, errno.EPERM):
        return NotPermitted(f"{name}: {what}: not permitted; run as root, or open /dev/infiniband")
    if what == "open" and code in (errno.ENOENT, errno.ENODEV, errno.ENXIO):
        return NotPermitted(
            f"{name}: its device node /dev/infiniband/uverbs* is missing; modprobe ib_uverbs, "
            "or give the container the device"
        )
    if what != "open" and code in (errno.ENODEV, errno.EIO):
        return LinkError(f"{name}: the device is gone")
    if what.startswith("port") and code == errno.EINVAL:
        return NoSuchDevice(f"{name}: it has no {what}")
    if code == errno.ENOMEM:
        return LinkError(
            f"{name}: {what}: out of memory; if it is the limit of locked memory: "
            "ulimit -l unlimited (a service: LimitMEMLOCK=infinity)"
        )
    return LinkError(f"{name}: {what}: {error}")
