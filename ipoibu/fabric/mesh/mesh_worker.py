# SPDX-License-Identifier: BSD-2-Clause
"""The thread that runs a `Mesh`, for both carriers of its connections.

A carrier makes the connections: rdma_cm on iWARP (`connections.py`), TCP on links without multicast
(`ipoibu/fabric/unicast/rendezvous.py`).
"""

from __future__ import annotations

import logging
import random
import socket
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv6Address
from typing import Any, Final, Protocol

from ipoibu.base.addr import Gid, HwAddr, IpAddress
from ipoibu.fabric.base import PeerDirectory
from ipoibu.fabric.effect_loop import EffectLoop
from ipoibu.fabric.mesh.peer_list import PeerSource
from ipoibu.fabric.worker import Worker
from ipoibu.proto.effects import Count, Log
from ipoibu.proto.mesh.effects import Gone, InGroup, InGroups, Learned, MeshEffect, OtherVersion
from ipoibu.proto.mesh.mesh import Mesh, MeshConfig
from ipoibu.proto.mesh.state import State
from ipoibu.wire import mesh, mesh_stream
from ipoibu.wire.mesh import Locator

_log = logging.getLogger(__name__)

Learn = Callable[[HwAddr, tuple[IpAddress, ...]], None]
Lose = Callable[[HwAddr], None]


class MeshCore(Protocol):
    """The C side, which sends messages to groups to the peers in them. An unknown peer changes nothing."""

    def groups(self, peer: int, mgids: list[bytes]) -> None: ...
    def group(self, peer: int, mgid: bytes, is_in: bool) -> None: ...


_OWN: Final = frozenset(
    {
        "mesh_contacts_full",
        "mesh_failed",
        "mesh_full",
        "mesh_named_too_often",
        "mesh_no_answer",
        "mesh_other_ip_version",
        "mesh_other_mtu",
        "mesh_other_partition",
        "mesh_refused",
        "mesh_router",
        "mesh_twice",
    }
)
COUNTERS: Final = tuple(sorted(_OWN | mesh.REASONS | mesh_stream.REASONS))


class MeshWorker(Worker, PeerDirectory):
    """Runs a `Mesh` on a thread of its own. Any thread may call the public methods."""

    def __init__(self, core: MeshCore, config: MeshConfig, netdev: str | None) -> None:
        """Peers' addresses of IPv6's link-local scope are on the link of `netdev`."""
        super().__init__("ipoibu-mesh")
        self._counts.update(dict.fromkeys(COUNTERS, 0))  # readers see a counter before it counts
        self._groups = core
        self._netdev = netdev
        self._mesh = Mesh(config, random.Random())
        self._effects = EffectLoop(self._mesh, self._perform)
        self._greeting = config.ours.pack()
        self._introduced = replace(config.ours, is_introduced=True).pack()
        self._learned: Learn | None = None
        self._gone: Lose | None = None
        self._source: PeerSource | None = None
        self._named: tuple[IpAddress, ...] = ()
        self._refused: IpAddress | None = None
        self._early: dict[HwAddr, tuple[IpAddress, ...]] = {}  # announced before `listen`

    # ---- requests

    def follow(self, source: PeerSource) -> None:
        """Tell the source of the seeds when a peer has gone."""
        self._source = source

    def set_peers(self, peers: Sequence[str]) -> None:
        """Have the source look for these peers instead; the mesh keeps the peers that it has."""
        assert self._source is not None, "a mesh has a source of peers"
        self._source.replace(peers)

    def seeds(self, locators: set[Locator]) -> None:
        self._named = tuple(sorted({locator.ip for locator in locators}, key=str))
        self._input(lambda: self._mesh.seeds(time.monotonic(), locators))

    def met(self) -> dict[Locator, HwAddr]:
        """Return where the hosts listen that are peers, or were."""
        with self._lock:
            return self._mesh.met

    def meet_again(self, met: Mapping[Locator, HwAddr]) -> None:
        """Dial the peers of an earlier mesh of ours."""
        self._input(lambda: self._mesh.meet_again(time.monotonic(), met))

    @property
    def named(self) -> tuple[IpAddress, ...]:
        """The addresses of the seeds."""
        return self._named

    @property
    def refused(self) -> IpAddress | None:
        """The GID of the last host that did not become a peer because its GID has the other IP version."""
        return self._refused

    @property
    def has_peers(self) -> bool:
        with self._lock:
            return self._mesh.has_peers

    def note_joined(self, mgid: Gid) -> None:
        self._input(lambda: self._mesh.note_joined(mgid))

    def note_left(self, mgid: Gid) -> None:
        self._input(lambda: self._mesh.note_left(mgid))

    def announce(self, addresses: Iterable[IpAddress]) -> None:
        self._input(lambda: self._mesh.addresses(addresses))

    def listen(self, learned: Learn, gone: Lose) -> None:
        """Call `learned` with the addresses that peers announce, and `gone` with a host that is no peer any
        more. Both must not block."""
        with self._lock:
            self._learned, self._gone = learned, gone
            for hwaddr, addresses in self._early.items():
                learned(hwaddr, addresses)
            self._early.clear()

    def peers(self) -> list[dict[str, Any]]:
        """Describe the connections for `Endpoint.peers`; there are no counters for each peer."""
        mtu_bytes = self._mesh.config.ours.mtu_bytes
        unknown = ("qpn", "remote_qpn", "path_mtu", "retries", "age_s", "idle_s")
        traffic = ("tx_messages", "tx_bytes", "rx_messages", "rx_bytes")
        with self._lock:
            return [
                {
                    "role": "active" if it.is_ours else "passive",
                    "state": "live" if it.state is State.OPEN else it.state.value,
                    "peer": str(it.hwaddr) if it.hwaddr else None,
                    "locator": str(it.locator),
                    "underlay": str(it.locator.ip),
                    "mtu": mtu_bytes if it.state is State.OPEN else 0,
                    "superframes": False,
                    "groups": [str(mgid) for mgid in it.groups],
                    "addresses": [str(ip) for ip in it.addresses],
                }
                | dict.fromkeys(unknown + traffic)
                for it in self._mesh.snapshot()
            ]

    def _input(self, act: Callable[[], list[MeshEffect]]) -> None:
        with self._lock:
            if not self._closing:
                self._effects.perform(act())
                self._wake()

    # ---- effects

    def _perform(self, effect: MeshEffect) -> None:
        match effect:
            case Learned(hwaddr, addresses):
                if self._learned is None:
                    self._early[hwaddr] = addresses
                else:
                    self._learned(hwaddr, addresses)
            case Gone(hwaddr):
                self._early.pop(hwaddr, None)
                if self._source is not None:
                    self._source.note_lost()
                if self._gone is not None:
                    self._gone(hwaddr)
            case OtherVersion(gid):
                self._refused = gid.ip
            case Count(reason):
                self._counts[reason] += 1
            case Log(level, text):
                _log.log(level, "%s", text)
            case InGroups(handle, mgids):
                self._groups.groups(handle, [mgid.raw for mgid in mgids])
            case InGroup(handle, mgid, is_in):
                self._groups.group(handle, mgid.raw, is_in)
            case _:
                self._carry_out(effect)

    def _greeting_to(self, is_introduced: bool) -> bytes:
        """Return our greeting to a host that we dial."""
        return self._introduced if is_introduced else self._greeting

    def _scope(self, locator: Locator) -> int:
        """Return the scope of the address; `OSError` without a net device for it."""
        if isinstance(locator.ip, IPv6Address) and locator.ip.is_link_local:
            return socket.if_nametoindex(self._netdev or "")
        return 0

    @abstractmethod
    def _carry_out(self, effect: MeshEffect) -> None:
        """Carry out an effect on a connection."""
