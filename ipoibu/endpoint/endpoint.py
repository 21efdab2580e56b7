# SPDX-License-Identifier: BSD-2-Clause
"""An IPoIB endpoint, the embedding API: an interface on a thread of its own; any thread may call it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from ipoibu import _core
from ipoibu.addr import HwAddr, IpAddress, IpInterface, IpNetwork, PKey
from ipoibu.endpoint import status
from ipoibu.endpoint.arguments import (
    Packet,
    address_of,
    hwaddr_of,
    interface_of,
    network_of,
    packets_of,
)
from ipoibu.endpoint.callbacks import Callbacks, OnAddress, OnFailure, OnLink, OnMtu
from ipoibu.endpoint.capture import SNAP_MAX_BYTES, Sink
from ipoibu.endpoint.config import BUSY_POLL, EndpointConfig
from ipoibu.endpoint.datapath import DataPath, PacketDevice, Pump, queues_of
from ipoibu.endpoint.inbox import Inbox
from ipoibu.endpoint.interface import Interface
from ipoibu.endpoint.link import leave_link, params_of
from ipoibu.endpoint.shell import ROUTE_KINDS, Shell
from ipoibu.errors import Closed, NoSuchDevice, NotReady, UsageError
from ipoibu.fabric.base import Fabric, Port
from ipoibu.fabric.device import open_port
from ipoibu.fabric.loop_thread import LoopThread, submit
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.ib import PartitionParams, PortInfo
from ipoibu.limits import OPEN_RETRY_S, STATUS_PAGE
from ipoibu.proto.engine import Engine
from ipoibu.proto.host_addresses import DEFAULT_ARP_POLICY, ArpPolicy
from ipoibu.proto.transition import Transition
from ipoibu.route import AskRoute, NextHop, RouteChange, RouteKind, Target, prefix_of

_Result = TypeVar("_Result")

SETTLE_S = 1.0  # how long cancelled tasks may take to end


class Endpoint:
    """One IPoIB interface in user space.

    Without a `device`, packets come from and go to the application: `send`, `recv`, `asend`, `arecv`, or
    without copies `reserve`, `send_frames`, `recv_frames`, `arecv_frames`. With a device (a `TunRing` or
    `TunDevice` with `config.queues` queues), the kernel's stack is on the other side. `port` hands in a
    port that is already open, such as a `MemoryPort`; the caller closes it.

    Threads: any thread may call every method, but only one thread at a time may receive. The engine runs on
    a thread of its own, the data path on a C thread that never takes the GIL. The engine's thread calls
    `on_address` (an address's duplicate detection ended), `on_failure` (the data path ended), `on_mtu` (a
    subnet administrator gave the link another MTU) and `on_link` (the link carries traffic now, or no
    longer; with the port's speed in Mb/s if it is known), which must not block. `open` and `close` block,
    and raise `UsageError` there.

    Errors: `open` raises `NoSuchDevice`, `NotPermitted`, `LinkError` or `UsageError`; everything else
    raises `Closed` before `open` and after `close`. The caller may open a closed endpoint again.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        device: _core.TunPacketDevice | None = None,
        port: Port | None = None,
        on_address: OnAddress | None = None,
        on_failure: OnFailure | None = None,
        on_mtu: OnMtu | None = None,
        on_link: OnLink | None = None,
    ) -> None:
        self.config = config
        self._queue = _core.QueueDevice() if device is None else None
        self._device: PacketDevice = device or self._queue  # type: ignore[assignment]
        self._take_port: Callable[[], SharedPort] = lambda: _take(config, port)
        self._callbacks = Callbacks.of(on_address, on_failure, on_mtu, on_link)
        self._interface: Interface | None = None
        self._thread: LoopThread | None = None
        self._life = (
            threading.RLock()
        )  # guards opening, closing, and the hand-over of a call to the engine's thread
        self._inbox = Inbox()

    # ---- life

    def open(self, wait_s: float = 0.0) -> None:
        """Open the device and start; return when the link's set-up has begun.

        Wait up to `wait_s` seconds for a device that does not exist yet, is down, or whose address is not
        usable yet, as just after `ip link set up`; then raise `NoSuchDevice` or `NotReady`.
        """
        deadline = time.monotonic() + wait_s
        while True:
            try:
                self._open()
            except (NotReady, NoSuchDevice):
                if time.monotonic() >= deadline:
                    raise
                time.sleep(OPEN_RETRY_S)
            else:
                return

    def _open(self) -> None:
        self._check_thread()
        with self._life:
            if self._interface is not None:
                raise UsageError(f"{self.config.name}: the endpoint is open already")
            port = self._take_port()
            try:
                self._set_up(port)
            except BaseException:
                port.close()
                raise

    def child(
        self,
        pkey: PKey,
        *,
        mtu: int | None = None,
        device: _core.TunPacketDevice | None = None,
        on_address: OnAddress | None = None,
        on_failure: OnFailure | None = None,
        on_mtu: OnMtu | None = None,
        on_link: OnLink | None = None,
    ) -> Endpoint:
        """Return an endpoint, not open yet, in another partition of the port that this endpoint has open.

        Its name is NAME.P_KEY, as the kernel names children. Once open, it is independent of this endpoint:
        the last of them to close closes the device. Its `open` raises `Closed` while this endpoint is not
        open.
        """
        config = replace(
            self.config,
            name=f"{self.config.name}.{pkey.full:04x}",
            pkey=pkey.full,
            mtu=mtu,
            parent=self.config.name,
            queues=queues_of(device) if device is not None else 1,
        )
        return self.share_port(
            config,
            device=device,
            on_address=on_address,
            on_failure=on_failure,
            on_mtu=on_mtu,
            on_link=on_link,
        )

    def share_port(
        self,
        config: EndpointConfig,
        *,
        device: _core.TunPacketDevice | None = None,
        on_address: OnAddress | None = None,
        on_failure: OnFailure | None = None,
        on_mtu: OnMtu | None = None,
        on_link: OnLink | None = None,
    ) -> Endpoint:
        """As `child`, with its whole configuration; the port of this endpoint takes precedence over
        `config.device`."""
        child = Endpoint(
            config,
            device=device,
            on_address=on_address,
            on_failure=on_failure,
            on_mtu=on_mtu,
            on_link=on_link,
        )
        child._take_port = self._shared_port
        return child

    def _shared_port(self) -> SharedPort:
        return self._opened().port.share()

    def _set_up(self, port: SharedPort) -> None:
        config = self.config
        if config.allmulticast and port.sa is None:
            raise UsageError(
                f"{port.info.device}: allmulticast needs a subnet administrator: "
                "nothing else knows which groups there are"
            )
        params = params_of(port, config)
        try:
            self._start(port, params)
        except BaseException:
            leave_link(port, config.pkey)
            raise

    def _start(self, port: SharedPort, params: PartitionParams) -> None:
        thread = LoopThread(f"ipoibu-{self.config.name}")
        try:
            path = DataPath.open(self.config, port, self._device, params)
            interface = Interface(path, thread.loop, self._callbacks)
        except BaseException:
            thread.loop.close()
            raise
        self._thread, self._interface = thread, interface
        thread.start()
        try:
            self._call(interface.start)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the groups, stop both threads, and release all resources. Safe to repeat."""
        self._check_thread()
        with self._life:
            interface, thread = self._interface, self._thread
            if interface is None or thread is None:
                return
            try:
                self._call(interface.stop)
                submit(thread.loop, _settled).result()
            finally:
                self._interface = None
                thread.stop()
                self._thread = None
                interface.path.close()
                if self._queue is not None:
                    self._queue.detach()
                interface.port.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(self, function: Callable[..., _Result], *args: Any) -> _Result:
        """Run `function` on the engine's thread and wait for its result."""
        if self._is_on_thread():
            self._opened()
            return function(*args)

        async def run() -> _Result:
            return function(*args)

        with self._life:  # the loop runs what it got before `close` before it ends
            loop = self._opened().loop
            future = submit(loop, run)
        return future.result()

    def _opened(self) -> Interface:
        """Return the interface; `Closed` if there is none."""
        interface = self._interface
        if interface is None:
            raise Closed(f"{self.config.name}: the endpoint is not open")
        return interface

    def _is_on_thread(self) -> bool:
        return self._thread is not None and self._thread.is_current

    def _check_thread(self) -> None:
        """Refuse a call on the engine's thread, which would wait for its own end."""
        if self._is_on_thread():
            raise UsageError(f"{self.config.name}: not from a callback, which must not block")

    @property
    def _engine(self) -> Engine:
        return self._opened().engine

    @property
    def _shell(self) -> Shell:
        return self._opened().shell

    @property
    def _pump(self) -> Pump:
        return self._opened().path.pump

    @property
    def _fabric(self) -> Fabric:
        return self._opened().fabric

    # ---- inputs from the host or the application

    def address_added(self, address: IpInterface | str, is_checked: bool = True) -> None:
        """The interface has this address now: check it for duplicates as `EndpointConfig.dad_ipv4` and
        `dad_ipv6` say (not at all unless `is_checked`), and announce it."""
        added = interface_of(address)
        self._call(lambda: self._input(self._engine.address_added, added, is_checked))

    def address_removed(self, address: IpInterface | str) -> None:
        removed = interface_of(address)
        self._call(lambda: self._input(self._engine.address_removed, removed))
        self._call(self._shell.announce)

    def arp_changed(
        self, others: frozenset[IPv4Address], policy: ArpPolicy = DEFAULT_ARP_POLICY
    ) -> None:
        """Take the IPv4 addresses of the host's other interfaces, for which we answer ARP requests, too,
        as Linux does unless `policy` says otherwise."""
        self._call(lambda: self._input(self._engine.arp_changed, others, policy))

    def proxies_changed(self, ips: frozenset[IpAddress]) -> None:
        """Answer for these addresses, too: proxy entries, and anycast addresses of the interface."""
        self._call(lambda: self._input(self._engine.proxies_changed, ips))

    def route_added(
        self, network: IpNetwork | str, via: IpAddress | str | None, kind: str = "unicast"
    ) -> None:
        """Packets to `network` go to the gateway `via` (of either family); without one they are on-link.

        `kind` is "unicast", "broadcast" (an IPv4 subnet's broadcast address) or "unreachable".
        Destinations without a route are on-link.
        """
        if kind not in ROUTE_KINDS:
            raise UsageError(f"{network}: a route is one of {', '.join(ROUTE_KINDS)}, not {kind!r}")
        gateway = None if via is None else address_of(via)
        hops = (NextHop(gateway),) if kind == "unicast" else ()
        target = Target(cast(RouteKind, kind), hops)
        self.routes_changed([RouteChange(prefix_of(network_of(network)), target)])

    def route_removed(self, network: IpNetwork | str) -> None:
        self.routes_changed([RouteChange(prefix_of(network_of(network)), None)])

    def routes_changed(self, changes: Sequence[RouteChange]) -> None:
        """Change many routes at once, in order, as `route_added` and `route_removed` do one by one."""
        self._call(lambda: self._shell.change_routes(changes))

    def answer_routes(self, ask: AskRoute) -> None:
        """Ask this function about flows whose route is of kind "ask"; it runs on the engine's thread, and
        must not block."""
        self._call(lambda: self._shell.answer_routes(ask))

    def router_changed(self, is_router: bool) -> None:
        """Set whether the host forwards IPv6 packets, which neighbour advertisements report; at first it
        does not. A host that uses us as its default router chooses another router when the advertisements
        say no (RFC 4861 §7.2.5).
        """
        self._call(lambda: self._engine.router_changed(is_router))

    def memberships_changed(self, groups: Iterable[IpAddress]) -> None:
        """The kernel's stack receives these multicast groups now, and no others. Groups of `join` and of
        IGMP and MLD reports come on top."""
        self._call(lambda: self._input(self._engine.memberships_changed, groups))

    def allmulticast_changed(self, is_wanted: bool) -> None:
        """Receive every group of the link, as with `EndpointConfig.allmulticast`, or no longer. Without a
        subnet administrator nothing changes, because nothing else knows which groups there are."""
        self._call(lambda: self._opened().follow_allmulticast(is_wanted))

    def join(self, group: IpAddress | str) -> None:
        """Receive the multicast group, as the kernel's IGMP and MLD request it for a TUN."""
        joined = address_of(group)
        if not joined.is_multicast:
            raise UsageError(f"{joined} is not a multicast group")
        self._call(lambda: self._input(self._engine.join, joined))

    def leave(self, group: IpAddress | str) -> None:
        left = address_of(group)
        self._call(lambda: self._input(self._engine.leave, left))

    def _input(self, method: Callable[..., Any], *args: Any) -> None:
        interface = self._opened()
        interface.perform(method(interface.loop.time(), *args))

    def set_neighbour(
        self, ip: IpAddress | str, hwaddr: HwAddr | str, *, replaces: bool = False
    ) -> None:
        """Set a permanent neighbour, which no message and no time changes; `UsageError` if there is an entry
        and it may not be replaced."""
        key, value = address_of(ip), hwaddr_of(hwaddr)
        self._call(lambda: self._input(self._engine.set_neighbour, key, value, replaces))

    def remove_neighbour(self, ip: IpAddress | str) -> None:
        """Remove a neighbour's entry; the next packet asks for it again."""
        key = address_of(ip)
        self._call(lambda: self._input(self._engine.remove_neighbour, key))

    def flush_neighbours(self, *, permanent: bool = False) -> None:
        """Remove all neighbours, the permanent ones only if `permanent`."""
        self._call(lambda: self._input(self._engine.flush_neighbours, permanent))

    # ---- packets, without a TUN

    def _embedded(self) -> _core.QueueDevice:
        self._opened()
        if self._queue is None:
            raise UsageError(f"{self.config.name}: its packets are the TUN's")
        return self._queue

    def send(self, packets: Iterable[Packet]) -> int:
        """Queue IP packets, each at most `mtu` bytes, in order; return how many fitted, counted from the
        first.

        The method copies the packets and never blocks. This is a datagram service: a queued packet may
        still get lost, which `stats` counts.
        """
        return self._embedded().send(packets_of(packets, self.mtu))

    def recv(self, max: int = 64, timeout: float | None = None) -> list[bytes]:
        """Return at most `max` received IP packets; wait for the first one `timeout` seconds at most.

        The list is empty after the time; with a `timeout` of 0 the method does not wait. Only one thread at
        a time may receive.
        """
        return self._inbox.receive(self._embedded, _core.QueueDevice.recv, max, timeout)

    def reserve(self, max: int = 64) -> list[_core.Frame]:
        """Return up to `max` frames of the data path's memory to fill: write through views, and set
        `length` to that of the packet. The list is empty while the data path has all frames. See
        docs/embedding.md.
        """
        return self._embedded().reserve(max)

    def send_frames(self, frames: Iterable[_core.Frame]) -> int:
        """As `send`, for reserved frames and without a copy; the frames that fitted no longer belong to the
        caller.

        `BufferError` if a view of a frame exists; the method has then taken the earlier frames.
        """
        return self._embedded().send_frames(frames)

    def recv_frames(self, max: int = 64, timeout: float | None = None) -> list[_core.Frame]:
        """As `recv`, without a copy: views of the frames read the packets in place.

        A frame goes back when the caller drops it and its views, or by `release`. While the caller holds
        half of all frames (512 of datagrams, 64 of connections), the pump copies further packets. Frames
        stay readable after `close`.
        """
        return self._inbox.receive(self._embedded, _core.QueueDevice.recv_frames, max, timeout)

    async def asend(self, packets: Iterable[Packet]) -> int:
        """As `send`, but wait for room until all packets are queued; return their number."""
        batch = packets_of(packets, self.mtu)
        done = self._embedded().send(batch)
        while done < len(batch):
            await asyncio.sleep(0.0005)
            done += self.send(batch[done:])
        return done

    async def arecv(self, max: int = 64) -> list[bytes]:
        """As `recv`, without a time-out, on the caller's event loop."""
        return await self._inbox.areceive(self._embedded, _core.QueueDevice.recv, max)

    async def arecv_frames(self, max: int = 64) -> list[_core.Frame]:
        """As `recv_frames`, without a time-out, on the caller's event loop."""
        return await self._inbox.areceive(self._embedded, _core.QueueDevice.recv_frames, max)

    # ---- state

    @property
    def port(self) -> PortInfo:
        return self._opened().port.info

    @property
    def hwaddr(self) -> HwAddr:
        """Our 20-byte address; a heavy flush changes its queue pair, and the port may get another GID."""
        return self._opened().path.hwaddr

    @property
    def mtu(self) -> int:
        """The IP MTU, which a heavy flush may change."""
        return self._opened().path.mtu_bytes

    @property
    def datagram_mtu(self) -> int:
        """The largest IP packet in bytes that goes by datagram: less than `mtu` in connected mode."""
        return self._opened().path.datagram_mtu_bytes

    @property
    def params(self) -> PartitionParams:
        """The parameters that all members of the link agree on."""
        return self._opened().params

    @property
    def busy_poll_us(self) -> int | None:
        """The time for which the data path polls before it sleeps; None: adaptive."""
        return self._opened().config.busy_poll_us

    def set_busy_poll(self, busy_poll_us: int | None) -> None:
        """Change that time while the endpoint runs."""
        if busy_poll_us is not None:
            BUSY_POLL.check("busy_poll_us", busy_poll_us)
        self._call(self._opened().set_busy_poll, busy_poll_us)

    def show(self) -> dict[str, Any]:
        """Return the interface as plain values; the keys are stable."""
        return self._call(status.show, self._opened())

    def neighbours(self) -> list[dict[str, Any]]:
        """Every neighbour: ip, hwaddr (None while unknown), state, age_s, pending, router.

        The engine does other work after every `STATUS_PAGE` neighbours.
        """
        interface = self._opened()
        ips = self._call(interface.engine.neighbour_ips)
        return self._in_pages(status.neighbours, interface, ips)

    def _in_pages(
        self,
        show: Callable[[Interface, Sequence[Any]], list[dict[str, Any]]],
        interface: Interface,
        keys: Sequence[Any],
    ) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = []
        for first in range(0, len(keys), STATUS_PAGE):
            entries += self._call(show, interface, keys[first : first + STATUS_PAGE])
        return entries

    def connections(self) -> list[dict[str, Any]]:
        """Every connection: role, state, peer, qpn, remote_qpn, mtu, superframes, age_s, idle_s,
        the messages and bytes of IP sent and received, and retries (packets sent again, None where
        the device does not count them). Datagram mode has no connections, except on a mesh: there
        `locator` is where the peer listens, and unknown values are None.

        `peer` is the hardware address without flags; `mtu` is 0 where we only receive.
        """
        interface = self._opened()
        if interface.port.capabilities.mesh:
            return interface.fabric.peers()
        rc = interface.rc
        return self._call(rc.snapshot) if rc is not None else []

    def groups(self) -> list[dict[str, Any]]:
        """Every multicast group: mgid, groups (the IP groups on it), state, kind, users, idle_s.

        `kind` is "full", "send-only" or, with `allmulticast`, "non-member".
        """
        return self._call(status.groups, self._opened())

    def stats(self) -> dict[str, int]:
        """Return the counters by name: the pump's without a prefix, the fabric's under `fabric.`, the
        engine's under `engine.`."""
        return self._call(status.stats, self._opened())

    def capture(self, sink: Sink, snap_bytes: int = SNAP_MAX_BYTES) -> Callable[[], None]:
        """Hand frames to `sink` in batches, on the engine's thread; call the result to end it.

        Each is a `CapturedFrame`: GRH (40 bytes), encapsulation header (4), payload. If a sink raises, the
        endpoint logs the error and hands the sink nothing more.
        """
        interface = self._opened()
        self._call(interface.tap.add, sink, snap_bytes)

        def end() -> None:
            if self._interface is interface:
                self._call(interface.tap.remove, sink)

        return end

    def ping(self, target: IpAddress | HwAddr, timeout: float = 1.0) -> dict[str, Any]:
        """Ask a host on the link once by ARP or neighbour discovery, and wait `timeout` seconds at most.

        The keys of the answer: ip, hwaddr, method ("arp" or "nd"), rtt_ms, and reason: why there was no
        answer, None if there was one. Of a hardware address without a known neighbour the method asks for
        the link-local address.
        """
        self._check_thread()
        return self._ping(target, timeout).result()

    async def aping(self, target: IpAddress | HwAddr, timeout: float = 1.0) -> dict[str, Any]:
        """As `ping`, on the caller's event loop."""
        return await asyncio.wrap_future(self._ping(target, timeout))

    def _ping(
        self, target: IpAddress | HwAddr, timeout_s: float
    ) -> concurrent.futures.Future[dict[str, Any]]:
        with self._life:
            interface = self._opened()
            return submit(interface.loop, lambda: interface.shell.pinger.ping(target, timeout_s))

    def paths(self) -> list[dict[str, Any]]:
        """Every path to a port or group: gid, state, lid, sl, rate, hop_limit, traffic_class,
        flow_label, mtu, next_hops (the IP addresses that use it) and waiting (packets).

        Under a subnet administrator these are its path records, and unknown values are None. Without one,
        all hosts share the link's parameters, `state` is "static" and `lid` None.
        """
        interface = self._opened()
        if interface.port.sa is None:
            mtu_bytes = interface.path.datagram_mtu_bytes
            return status.shared_paths(interface.params, mtu_bytes, self.neighbours())
        gids = self._call(interface.engine.path_gids)
        return self._in_pages(status.paths, interface, gids)

    def watch(self, sink: Callable[[Transition], None]) -> Callable[[], None]:
        """Hand each transition of the link, addresses, neighbours, groups, connections and paths to
        `sink`, on the engine's thread; call the result to end it. The sink must not block.
        """
        interface = self._opened()
        self._call(interface.transitions.add, sink)

        def end() -> None:
            if self._interface is interface:
                self._call(interface.transitions.remove, sink)

        return end


async def _settled() -> None:
    """Wait until the cancelled tasks have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SETTLE_S)


def _take(config: EndpointConfig, lent: Port | None) -> SharedPort:
    port = lent or open_port(config.device, config.port)
    return SharedPort.wrap(port, lent=lent is not None)
