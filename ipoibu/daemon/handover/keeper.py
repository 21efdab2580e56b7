# SPDX-License-Identifier: BSD-2-Clause
"""Keeps what a restart of the service needs, in systemd's file descriptor store (sd_pid_notify_with_fds(3)).

The store has duplicates of each TUN, so that the interface, its addresses and the sockets of applications
stay, of the socket of the built-in HCA, in which packets wait meanwhile, and of a file in memory with a
`KeptInterface` for each interface. systemd passes them to the next process, and drops them when the service
ends for good.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

from ipoibu.base.addr import HwAddr, IpAddress, IpInterface, PKey, Qpn
from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import NEIGH_KEPT_MAX, QUEUES_MAX
from ipoibu.daemon.process.notify import await_notices, notify
from ipoibu.endpoint.handover import HandedNeighbour
from ipoibu.fabric.base import KeptPort
from ipoibu.host.kernel_interface import Leased, RouteSpec
from ipoibu.host.tun import Tun

_FIRST_FD: Final = 3  # SD_LISTEN_FDS_START
_STATE: Final = "state"
_PORT: Final = "port"
_TUN: Final = "tun-"
_STATE_MAX_BYTES: Final = 16 << 20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KeptInterface:
    """Holds what the next process has to know of an interface: its queue pair, the addresses and routes that
    came from its configuration, the addresses that have been checked for duplicates, neighbours, and
    addresses and routes by DHCP."""

    pkey: PKey
    qpn: Qpn
    addresses: tuple[IpInterface, ...] = ()
    routes: tuple[RouteSpec, ...] = ()
    checked: tuple[IpAddress, ...] = ()
    neighbours: tuple[HandedNeighbour, ...] = ()
    leased: tuple[Leased, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "pkey": int(self.pkey),
            "qpn": int(self.qpn),
            "addresses": [str(address) for address in self.addresses],
            "routes": _texts(self.routes),
            "checked": [str(ip) for ip in self.checked],
            "neighbours": [
                [str(each.ip), str(each.hwaddr), each.is_permanent] for each in self.neighbours
            ],
            "leased": [[str(each.address), _texts(each.routes)] for each in self.leased],
        }

    @classmethod
    def from_json(cls, read: Any) -> Self:
        """`ValueError`, `TypeError` or `KeyError` if another version of ipoibu wrote it."""
        return cls(
            PKey(read["pkey"]),
            Qpn(read["qpn"]),
            tuple(ipaddress.ip_interface(text) for text in read["addresses"]),
            _routes(read["routes"]),
            tuple(ipaddress.ip_address(text) for text in read["checked"]),
            tuple(
                HandedNeighbour(ipaddress.ip_address(ip), HwAddr.parse(hwaddr), bool(is_permanent))
                for ip, hwaddr, is_permanent in read["neighbours"]
            ),
            tuple(
                Leased(ipaddress.ip_interface(text), _routes(routes))
                for text, routes in read.get("leased", ())  # none before 0.2
            ),
        )


def _texts(routes: Iterable[RouteSpec]) -> list[list[str | None]]:
    return [[str(each.network), None if each.via is None else str(each.via)] for each in routes]


def _routes(read: Any) -> tuple[RouteSpec, ...]:
    return tuple(
        RouteSpec(ipaddress.ip_network(network), None if via is None else ipaddress.ip_address(via))
        for network, via in read
    )


class Keeper:
    """Takes over what an earlier process of the service has left, and leaves the same to the next one.

    Without a service manager, and without FileDescriptorStoreMax= in the unit, nothing is kept. Belongs to
    the event loop's thread; `KeptPort.forget` may be called on any thread.
    """

    def __init__(self, fds: Mapping[str, int] | None = None) -> None:
        """Take `fds` over, by their names in the store."""
        self._left = dict(fds or {})  # of the earlier process, and not taken yet
        self._stored = set(self._left)
        self._state = self._left.pop(_STATE, -1)
        self._before = _read(self._state)
        self._now: dict[str, KeptInterface] = {}

    @classmethod
    def of_service(cls) -> Self:
        """Take the descriptors that the service manager passed to this process, as by
        sd_listen_fds_with_names(3)."""
        count, names = os.environ.pop("LISTEN_FDS", ""), os.environ.pop("LISTEN_FDNAMES", "")
        pid = os.environ.pop("LISTEN_PID", "")
        if pid != str(os.getpid()) or not count.isdecimal():
            return cls()
        fds = range(_FIRST_FD, _FIRST_FD + int(count))
        for fd in fds:
            os.set_inheritable(fd, False)
        return cls(dict(zip(names.split(":"), fds, strict=False)))

    # ---- what the earlier process has left

    def tun(
        self, name: str, *, super_frames: bool, queues: int, persistent: bool, tap: bool = False
    ) -> Tun | None:
        """Return the interface's TUN, if there is one that fits."""
        fds = [self._left.pop(each) for each in _tuns_of(name, self._left)]
        if not fds:
            return None
        try:
            return Tun.adopt(
                name,
                fds,
                super_frames=super_frames,
                queues=queues,
                persistent=persistent,
                tap=tap,
            )
        except IpoibuError as error:
            _log.info("%s: the interface is made anew: %s", name, error)
            self.forget(name)
            return None

    def before(self, name: str) -> KeptInterface | None:
        return self._before.get(name)

    def port(self) -> KeptPort | None:
        """Return what is left of the port; its socket stays the keeper's."""
        fd = self._left.get(_PORT)
        if fd is None:
            return None
        qpns = {each.pkey.full: each.qpn for each in self._before.values()}
        return KeptPort(fd, qpns, self._forget_port)

    def forget_rest(self) -> None:
        """Forget the interfaces that nobody has taken: children that the file does not name any more."""
        self._before.clear()
        self._write()
        tuns = [each for each in self._left if each.startswith(_TUN)]
        for each in tuns:
            self._remove(each)
        if tuns:
            await_notices()

    # ---- what the next process gets

    def keep(self, tun: Tun, socket_fd: int | None, interface: KeptInterface) -> None:
        """Leave the interface to the next process."""
        for number, fd in enumerate((tun.fd, *tun.more)):
            self._store(_tun_of(tun.name, number), fd)
        if socket_fd is not None:
            self._store(_PORT, socket_fd)
        self.note(tun.name, interface)

    def note(self, name: str, interface: KeptInterface) -> None:
        """Leave this about the interface; `keep` came before."""
        self._now[name] = interface
        self._write()

    def forget(self, name: str) -> None:
        """Do not leave the interface to the next process: when its TUN is closed, it is gone."""
        self._before.pop(name, None)
        if self._now.pop(name, None) is not None:
            self._write()
        tuns = _tuns_of(name, self._stored)
        for each in tuns:
            self._remove(each)
        if tuns:
            await_notices()

    @property
    def leaves_something(self) -> bool:
        """Return whether the next process takes an interface over, and peers wait for it."""
        return bool(self._now) and bool(self._stored - {_STATE})

    def close(self) -> None:
        """Close the descriptors that nobody has taken; the store keeps its own."""
        for fd in (*self._left.values(), self._state):
            if fd >= 0:
                os.close(fd)
        self._left.clear()
        self._state = -1

    def _forget_port(self) -> None:
        self._remove(_PORT)
        await_notices()

    def _store(self, name: str, fd: int) -> None:
        # FDPOLL=0: an error that the kernel reports on the descriptor would end its place in the store.
        if not os.environ.get("FDSTORE"):  # this manager has no store, and may leave notices unread
            return
        if name not in self._stored and notify(f"FDSTORE=1\nFDNAME={name}\nFDPOLL=0", [fd]):
            self._stored.add(name)

    def _remove(self, name: str) -> None:
        fd = self._left.pop(name, -1)
        if fd >= 0:
            os.close(fd)
        if name in self._stored:
            self._stored.discard(name)
            notify(f"FDSTOREREMOVE=1\nFDNAME={name}")

    def _write(self) -> None:
        if not self._stored - {_STATE}:
            return  # nobody keeps anything
        known = {**self._before, **self._now}
        text = json.dumps({name: each.to_json() for name, each in known.items()}).encode()
        try:
            if self._state < 0:
                self._state = os.memfd_create("ipoibu-state", os.MFD_CLOEXEC)
            os.ftruncate(self._state, 0)
            os.pwrite(self._state, text, 0)
        except OSError as error:
            _log.info("a restart will not keep the state of interfaces: %s", error.strerror)
            return
        self._store(_STATE, self._state)


def neighbours_of(shown: Iterable[Mapping[str, Any]]) -> tuple[HandedNeighbour, ...]:
    """The neighbours to keep of those that an endpoint shows."""
    known = [each for each in shown if each["hwaddr"] is not None and each["state"] != "failed"]
    known.sort(key=lambda each: (each["state"] != "permanent", each["age_s"]))
    return tuple(
        HandedNeighbour(
            ipaddress.ip_address(each["ip"]),
            HwAddr.parse(each["hwaddr"]),
            each["state"] == "permanent",
        )
        for each in known[:NEIGH_KEPT_MAX]
    )


def _tun_of(name: str, queue: int) -> str:
    """The name in the store, which has only ASCII and no colon."""
    return f"{_TUN}{queue}-{quote(name, safe='')}"


def _tuns_of(name: str, stored: Collection[str]) -> list[str]:
    names = (_tun_of(name, queue) for queue in range(QUEUES_MAX))
    return [each for each in names if each in stored]


def _read(fd: int) -> dict[str, KeptInterface]:
    if fd < 0:
        return {}
    damage = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)
    with contextlib.suppress(OSError, IpoibuError, *damage):
        read: Mapping[str, Any] = json.loads(os.pread(fd, _STATE_MAX_BYTES, 0))
        return {name: KeptInterface.from_json(each) for name, each in read.items()}
    return {}
