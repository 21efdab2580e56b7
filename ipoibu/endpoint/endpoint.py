# SPDX-License-Identifier: BSD-2-Clause
"""An IPoIB endpoint: engine, pump, fabric and packet device put together; the embedding API."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from ipoibu import _core
from ipoibu.addr import HwAddr, IpAddress, IpInterface, IpNetwork, PKey
from ipoibu.endpoint.allmulticast import ip_group
from ipoibu.endpoint.capture import SNAP_MAX_BYTES, Sink, Tap
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.datapath import DataPath, PacketDevice, Pump, queues_of
from ipoibu.endpoint.inbox import Inbox
from ipoibu.endpoint.shell import ROUTE_KINDS, Shell
from ipoibu.endpoint.subnet import Subnet, joined_link, leave_link, params_of
from ipoibu.errors import Closed, UsageError
from ipoibu.fabric.base import Fabric, Port
from ipoibu.fabric.device import open_port
from ipoibu.fabric.shared_port import SharedPort
from ipoibu.ib import PartitionParams, PortInfo
from ipoibu.proto.engine import Engine, LinkConfig
from ipoibu.wire import mgid

_Result = TypeVar("_Result")

SETTLE_S = 1.0  # for tasks that have nothing left to do but to end

Packet = bytes | bytearray | memoryview


class Endpoint:
    """One IPoIB interface in user space.

    Without a `device`, packets come from and go to the application: `send`, `recv`, `asend`, `arecv`, or
    without copies `reserve`, `send_frames`, `recv_frames`, `arecv_frames`.
    With one (a `TunRing` or `TunDevice`, of as many queues as `config.queues` says), the kernel's stack
    is on the other side. `port` hands in a port that is already open, such as a `MemoryPort`; it stays
    the caller's to close.

    Threads: every method may be called from any thread, but one thread at a time receives. The engine
    runs on a thread of its own, the data path on a C thread that never takes the GIL. `on_address`
    (an address's duplicate detection ended), `on_failure` (the data path ended) and `on_mtu` (a subnet
    administrator gave the link another MTU) are called on the engine's thread and must not block; `open`
    and `close` do, and are refused there.

    Errors: `open` raises `NoSuchDevice`, `NotPermitted`, `LinkError` or `UsageError`; everything else
    raises `Closed` before `open` and after `close`. An endpoint that was closed may be opened again.
    """

    def __init__(
        self,
        config: EndpointConfig,
        *,
        device: _core.TunPacketDevice | None = None,
        port: Port | None = None,
        on_address: Callable[[IpAddress, bool], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
        on_mtu: Callable[[int], None] | None = None,
    ) -> None:
        self.config = config
        self._queue = _core.QueueDevice() if device is None else None
        self._device: PacketDevice = device or self._queue  # type: ignore[assignment]
        self._take_port: Callable[[], SharedPort] = lambda: _open(config, port)
        self._on_address = on_address or (lambda address, duplicate: None)
        self._on_failure = on_failure or (lambda reason: None)
        self._on_mtu = on_mtu or (lambda mtu_bytes: None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._life = threading.RLock()  # whoever opens, closes, or hands the engine's thread a call
        self._inbox = Inbox()

    # ---- life

    def open(self) -> None:
        """Open the device and start; returns when the link's set-up is under way."""
        self._check_thread()
        with self._life:
            if self._loop is not None:
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
        on_address: Callable[[IpAddress, bool], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
        on_mtu: Callable[[int], None] | None = None,
    ) -> Endpoint:
        """An endpoint, yet to be opened, in another partition of the port that this one has open.

        It is called NAME.P_KEY, as the kernel's are, and is independent of this one once it is open:
        the last of them to close closes the device. Its `open` raises `Closed` while this one is not
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
            config, device=device, on_address=on_address, on_failure=on_failure, on_mtu=on_mtu
        )

    def share_port(
        self,
        config: EndpointConfig,
        *,
        device: _core.TunPacketDevice | None = None,
        on_address: Callable[[IpAddress, bool], None] | None = None,
        on_failure: Callable[[str], None] | None = None,
        on_mtu: Callable[[int], None] | None = None,
    ) -> Endpoint:
        """As `child`, with all of its configuration; the port of this endpoint takes precedence over
        `config.device`."""
        child = Endpoint(
            config, device=device, on_address=on_address, on_failure=on_failure, on_mtu=on_mtu
        )
        child._take_port = self._shared_port
        return child

    def _shared_port(self) -> SharedPort:
        self._check_open()
        return self._port.share()

    def _set_up(self, port: SharedPort) -> None:
        config = self.config
        if config.allmulticast and port.sa is None:
            raise UsageError(
                f"{port.info.device}: allmulticast needs a subnet administrator: "
                "nobody else knows which groups there are"
            )
        asked_bytes = None if config.mode == "connected" else config.mtu
        params = params_of(
            port,
            pkey=config.pkey,
            qkey=config.qkey,
            mtu_bytes=asked_bytes,
            partitions=config.partitions,
        )
        try:
            self._start(port, params, asked_bytes)
        except BaseException:
            leave_link(port, config.pkey)
            raise

    def _start(self, port: SharedPort, params: PartitionParams, asked_bytes: int | None) -> None:
        config = self.config
        self._path = path = DataPath.open(config, port, self._device, params)
        self._port = port
        self._engine = Engine(
            LinkConfig(
                params=params,
                hwaddr=path.hwaddr,
                mtu_bytes=path.datagram_mtu_bytes,
                has_sa=port.sa is not None,
            ),
            random.Random(),
        )
        loop = asyncio.new_event_loop()
        self._shell = shell = Shell(
            loop, self._engine, path, on_address=self._on_address, on_failure=self._on_failure
        )
        if port.sa is not None:
            sa = port.sa
            shell.subnet = Subnet(
                loop,
                sa,
                self._engine,
                path.fabric,
                params,
                perform=shell.perform,
                counts=shell.counts,
                sever=shell.sever,
                find=lambda: joined_link(
                    sa,
                    port.info,
                    pkey=config.pkey,
                    qkey=config.qkey,
                    mtu_bytes=asked_bytes,
                    may_control=port.may_control,
                ),
                resume=self._resume,
                all_groups=config.allmulticast,
            )
        try:
            shell.connected = path.connect(loop, shell.counts)
        except BaseException:
            if shell.subnet is not None:
                shell.subnet.close()
            loop.close()
            path.close()
            raise
        self._tap = Tap(loop, self._pump)
        self._thread = threading.Thread(
            target=loop.run_forever, name=f"ipoibu-{config.name}", daemon=True
        )
        self._loop = loop
        self._thread.start()
        try:
            self._call(self._shell.start)
        except BaseException:
            self.close()
            raise

    def _resume(self, params: PartitionParams) -> Fabric:
        """After a heavy flush: another queue pair and pump, over the same device, for the same engine."""
        path = DataPath.open(self.config, self._port, self._device, params)
        try:
            self._engine.renewed(params, path.hwaddr, path.datagram_mtu_bytes)
            connected = path.connect(self._shell.loop, self._shell.counts)
        except BaseException as error:
            path.close()
            if isinstance(error, UsageError):
                self._on_failure(str(error))
            raise
        mtu_bytes, self._path = self.mtu, path
        self._tap.follow(path.pump)
        self._shell.resume(path, connected)
        if self.mtu != mtu_bytes:
            self._on_mtu(self.mtu)
        return path.fabric

    def close(self) -> None:
        """Leave the groups, stop both threads, give everything back. Safe to repeat."""
        self._check_thread()
        with self._life:
            loop, thread = self._loop, self._thread
            if loop is None or thread is None:
                return
            try:
                self._call(self._shell.stop)
                asyncio.run_coroutine_threadsafe(_settled(), loop).result()
            finally:
                self._loop = None
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                self._thread = None
                loop.close()
                self._path.close()
                if self._queue is not None:
                    self._queue.detach()
                self._port.close()

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
        """Run `function` on the engine's thread and wait for what it returns or raises."""
        if threading.current_thread() is self._thread:
            self._check_open()
            return function(*args)

        async def run() -> _Result:
            return function(*args)

        with self._life:  # what the loop was given before `close` it does before it ends
            loop = self._check_open()
            future = asyncio.run_coroutine_threadsafe(run(), loop)
        return future.result()

    def _check_open(self) -> asyncio.AbstractEventLoop:
        """The engine's loop, while there is one."""
        loop = self._loop
        if loop is None:
            raise Closed(f"{self.config.name}: the endpoint is not open")
        return loop

    def _check_thread(self) -> None:
        """Its end would wait for itself."""
        if threading.current_thread() is self._thread:
            raise UsageError(f"{self.config.name}: not from a callback, which must not block")

    # ---- what the host or application tells us

    def address_added(self, address: IpInterface) -> None:
        """The interface has this address now: it is checked for duplicates, then announced."""
        self._call(lambda: self._input(self._engine.address_added, address))

    def address_removed(self, address: IpInterface) -> None:
        self._call(lambda: self._input(self._engine.address_removed, address))
        self._call(self._shell.announce)

    def route_added(self, network: IpNetwork, via: IpAddress | None, kind: str = "unicast") -> None:
        """Packets to `network` go to the gateway `via` (of either family), or are on-link without.

        `kind` is "unicast", "broadcast" (an IPv4 subnet's broadcast address) or "unreachable".
        Destinations without a route are on-link.
        """
        if kind not in ROUTE_KINDS:
            raise UsageError(f"{network}: a route is one of {', '.join(ROUTE_KINDS)}, not {kind!r}")
        self._call(lambda: self._shell.set_route(network, via, kind))

    def route_removed(self, network: IpNetwork) -> None:
        self._call(lambda: self._shell.remove_route(network))

    def router_changed(self, is_router: bool) -> None:
        """Whether we forward IPv6 packets of others, as neighbour advertisements tell: who has us as its
        default router goes to another one when they say no (RFC 4861 §7.2.5). At first we do not.
        """
        self._call(lambda: self._engine.router_changed(is_router))

    def join(self, group: IpAddress) -> None:
        """Receive the multicast group (what the kernel's IGMP and MLD do for a TUN)."""
        if not group.is_multicast:
            raise UsageError(f"{group} is not a multicast group")
        self._call(lambda: self._input(self._engine.join, group))

    def leave(self, group: IpAddress) -> None:
        self._call(lambda: self._input(self._engine.leave, group))

    def _input(self, method: Callable[..., Any], *args: Any) -> None:
        assert self._loop is not None
        self._shell.perform(method(self._loop.time(), *args))

    # ---- packets, without a TUN

    def _embedded(self) -> _core.QueueDevice:
        self._check_open()
        if self._queue is None:
            raise UsageError(f"{self.config.name}: its packets are the TUN's")
        return self._queue

    def send(self, packets: Iterable[Packet]) -> int:
        """Queue IP packets, each at most `mtu` bytes, in order; how many found room, from the first.

        Copies, never blocks. Datagram service: a packet taken may still be lost, counted in `stats`.
        """
        queue = self._embedded()
        batch = list(packets)
        mtu_bytes = self.mtu
        for packet in batch:
            if not 0 < len(packet) <= mtu_bytes:
                raise UsageError(
                    f"a packet of {len(packet)} bytes does not fit the MTU {mtu_bytes}"
                )
        return queue.send(batch)

    def recv(self, max: int = 64, timeout: float | None = None) -> list[bytes]:
        """At most `max` received IP packets; waits for the first, `timeout` seconds at most.

        An empty list after the time; `timeout` 0 only looks. One thread at a time.
        """
        return self._inbox.receive(self._embedded, _core.QueueDevice.recv, max, timeout)

    def reserve(self, max: int = 64) -> list[_core.Frame]:
        """Up to `max` frames of the data path's memory to be filled: views write to them, and `length`
        says how much of one is the packet. None while all are on their way. Docs: embedding.md.
        """
        return self._embedded().reserve(max)

    def send_frames(self, frames: Iterable[_core.Frame]) -> int:
        """As `send`, of reserved frames, without a copy; those taken are no longer the caller's.

        Raises BufferError while there is a view of a frame; the frames before it are taken.
        """
        return self._embedded().send_frames(frames)

    def recv_frames(self, max: int = 64, timeout: float | None = None) -> list[_core.Frame]:
        """As `recv`, without a copy: the packets are read where they are, by views of the frames.

        A frame goes back when it and its views are forgotten, or by `release`. Beyond half of all
        frames held (512 of datagrams, 64 of connections), further packets are copied. Frames stay
        readable after `close`.
        """
        return self._inbox.receive(self._embedded, _core.QueueDevice.recv_frames, max, timeout)

    async def asend(self, packets: Iterable[Packet]) -> int:
        """As `send`, but waits while there is no room until all are taken; returns their number."""
        batch = list(packets)
        done = self.send(batch)
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

    # ---- what is there

    @property
    def port(self) -> PortInfo:
        self._check_open()
        return self._port.info

    @property
    def hwaddr(self) -> HwAddr:
        """Our 20-byte address; a heavy flush changes the queue pair, a port may have another GID."""
        self._check_open()
        return self._path.hwaddr

    @property
    def mtu(self) -> int:
        """The IP MTU; after a heavy flush perhaps another."""
        self._check_open()
        return self._path.mtu_bytes

    @property
    def params(self) -> PartitionParams:
        """What all members of the link agree on."""
        self._check_open()
        return self._path.params

    @property
    def _pump(self) -> Pump:
        return self._path.pump

    @property
    def _fabric(self) -> Fabric:
        return self._path.fabric

    def show(self) -> dict[str, Any]:
        """The interface in words and numbers; the keys are stable."""
        info = self.port
        up, addresses = self._call(lambda: (self._engine.is_up, self._engine.addresses()))
        return {
            "name": self.config.name,
            "device": info.device,
            "port": info.port,
            "link_layer": info.link_layer,
            "netdev": info.netdev,
            "state": "up" if up else "down",
            "mode": self.config.mode,
            "mtu": self.mtu,
            "ib_mtu": self.params.mtu_bytes,
            "offload": list(self._device.offload),
            "queues": self.config.queues,
            "parent": self.config.parent,
            "pkey": str(self.params.pkey),
            "membership": "limited" if self.params.is_limited else "full",
            "qkey": f"0x{self.params.qkey:08x}",
            "hwaddr": str(self.hwaddr),
            "broadcast": str(mgid.hwaddr(mgid.broadcast(self.params.pkey, self.params.scope))),
            "qpn": str(self.hwaddr.qpn),
            "gid": str(info.gid),
            "guid": info.guid.hex(),
            "addresses": [
                {"address": str(entry.address), "state": entry.state.value} for entry in addresses
            ],
        }

    def neighbours(self) -> list[dict[str, Any]]:
        """Every neighbour: ip, hwaddr (None while unknown), state, age_s, pending, router."""
        infos = self._call(lambda: self._engine.neighbours(self._now()))
        return [
            {
                "ip": str(info.ip),
                "hwaddr": str(info.hwaddr) if info.hwaddr is not None else None,
                "state": info.state.value,
                "age_s": round(info.age_s, 3),
                "pending": info.pending,
                "router": info.is_router,
            }
            for info in infos
        ]

    def connections(self) -> list[dict[str, Any]]:
        """Every connection: role, state, peer, qpn, remote_qpn, mtu, superframes, age_s, idle_s,
        the messages and bytes of IP sent and received, and retries (packets sent again, None where
        the device does not say). No connections in datagram mode, but on a mesh: there `locator` says
        where the peer listens, and what is not known is None.

        `peer` is the hardware address without flags; `mtu` is 0 where we only receive.
        """
        self._check_open()
        connected = self._shell.connected
        if self._port.capabilities.mesh:
            return self._path.fabric.peers()
        return self._call(connected.snapshot) if connected is not None else []

    def groups(self) -> list[dict[str, Any]]:
        """Every multicast group: mgid, groups (the IP groups on it), state, kind, users, idle_s.

        `kind` is "full", "send-only" or, with `allmulticast`, "non-member".
        """
        infos, others = self._call(
            lambda: (self._engine.groups(self._now()), self._shell.other_groups())
        )
        return [
            {
                "mgid": str(info.mgid),
                "groups": [str(ip) for ip in info.ips],
                "state": info.state.value,
                "kind": info.kind.value,
                "users": info.users,
                "idle_s": round(info.idle_s, 3) if info.idle_s is not None else None,
            }
            for info in infos
        ] + [
            {
                "mgid": str(group),
                "groups": [str(ip)] if (ip := ip_group(group)) is not None else [],
                "state": "member",
                "kind": "non-member",
                "users": 0,
                "idle_s": None,
            }
            for group in others
        ]

    def stats(self) -> dict[str, int]:
        """Counters by name: the pump's plain, the fabric's under `fabric.`, ours under `engine.`."""
        return self._call(self._stats)

    def _stats(self) -> dict[str, int]:
        retired = self._shell.retired
        out = {name: value + retired[name] for name, value in self._pump.counters().items()}
        out |= {f"fabric.{name}": value for name, value in self._fabric.counters().items()}
        counts = self._shell.counts
        if self._shell.connected is not None:
            counts = counts + self._shell.connected.port_counts
        if self._port.sa is not None:
            counts = counts + Counter(self._port.sa.counters())
        out |= {f"engine.{name}": value for name, value in sorted(counts.items())}
        dropped = self._pump.commands_dropped + retired["commands_dropped"]
        out["engine.commands_dropped"] = dropped
        return out

    def _now(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def capture(self, sink: Sink, snap_bytes: int = SNAP_MAX_BYTES) -> Callable[[], None]:
        """Hand frames to `sink` in batches, on the engine's thread; call the result to end it.

        Each is a `CapturedFrame`: GRH (40 bytes), encapsulation header (4), payload. A sink that raises
        is logged, and gets nothing more.
        """
        self._call(lambda: self._tap.add(sink, snap_bytes))

        def end() -> None:
            if self._loop is not None:
                self._call(self._tap.remove, sink)

        return end


async def _settled() -> None:
    """What was cancelled has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=SETTLE_S)


def _open(config: EndpointConfig, lent: Port | None) -> SharedPort:
    port = lent or open_port(config.device, config.port)
    return SharedPort.wrap(port, lent=lent is not None)
