# SPDX-License-Identifier: BSD-2-Clause
"""The way of each received packet to the sockets of its endpoint."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from ipoibu.aio.address import Flow, Place, shown
from ipoibu.aio.ends import Ends
from ipoibu.aio.icmp import Icmp
from ipoibu.aio.network import Network, Targets
from ipoibu.aio.reassembly import Reassembly
from ipoibu.base.errors import BadFrame, Closed, UsageError
from ipoibu.base.limits import AIO_FLOWS_MAX
from ipoibu.wire import fragment, ip, udp

if TYPE_CHECKING:
    from ipoibu.endpoint.api.endpoint import Endpoint

Runs = list[tuple[bytes, list[bytes]]]


class Receiver:
    """Takes the packets of a host's endpoint."""

    @property
    def is_dead(self) -> bool:
        """Return whether it can never take a packet again."""
        return False

    def abandon(self) -> None:
        """End, although there are sockets."""


class Host(Network):
    """One for each endpoint with sockets (`host_of`). It has no thread: a receiver calls `dispatch` and
    `look`, and the sockets' owner everything else, on the same thread or under one lock.

    `receiver` takes the endpoint's packets while there are sockets.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__(endpoint)
        self.receiver: Receiver | None = None
        self.starting = threading.RLock()  # of a receiver, by whichever thread
        self._reassembly = Reassembly(self.counts)
        self._icmp = Icmp(self)
        self._link_mtu = 0
        self._end_watch: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Follow the endpoint's addresses, for the first socket."""
        self._is_stale = True
        self._end_watch = self.endpoint.watch(self._note)

    def stop(self) -> None:
        """Forget everything, after the last socket."""
        with suppress(Closed):
            self._end_watch()
        self.forget_flows()
        self._local.clear()
        self._reassembly = Reassembly(self.counts)

    def look(self, now: float) -> None:
        """Forget what is too old, and take over a new MTU of the link. `Closed` if the endpoint is."""
        mtu = self.endpoint.mtu
        self._reassembly.expire(now)
        if self.path_mtus.expire(now) or mtu != self._link_mtu:
            self._link_mtu = mtu
            for each in self.ports:
                each.on_change()

    def lose(self, problem: Exception) -> None:
        """Tell every socket that the endpoint is gone."""
        for each in self.ports:
            each.on_lost(problem)

    # -- received packets ------------------------------------------------------------------------

    def dispatch(self, now: float, runs: Runs) -> None:
        """Hand packets, as `QueueDevice.recv_runs` returns them, to the sockets."""
        for flow, payloads in runs:
            targets = self._flows.get(flow)
            if targets is None:
                if not flow:
                    for packet in payloads:
                        self._take_other_untrusted(now, packet)
                    continue
                targets = self._find_targets(flow)
                if not targets:
                    self._refuse_untrusted(now, flow, payloads)
                    continue
            for deliver, address in targets:
                deliver(payloads, address)

    def _find_targets(self, packed: bytes) -> Targets:
        flow = Flow.unpack(packed)
        self._refresh()
        source, destination = flow.source.ip, flow.destination.ip
        if source.is_multicast or source in self._broadcasts:
            return ()
        sockets: Iterable[Ends]
        if destination in self._own:
            best = self.ports.best_for(flow)
            sockets = () if best is None else (best,)
        elif destination.is_multicast or destination in self._broadcasts:
            sockets = self.ports.all_for(flow)
        else:
            return ()
        targets = tuple((it.on_datagrams, shown(flow.source, it.family)) for it in sockets)
        if targets:
            if len(self._flows) >= AIO_FLOWS_MAX:
                self.counts["flow_table_full"] += len(self._flows)
                self._flows.clear()
            self._flows[packed] = targets
        return targets

    def _refuse_untrusted(self, now: float, packed: bytes, payloads: list[bytes]) -> None:
        """Answer datagrams that no socket takes."""
        flow = Flow.unpack(packed)
        if flow.destination.ip not in self._own:
            self.counts["no_listener"] += len(payloads)
            return
        self.counts["no_socket"] += len(payloads)
        for payload in payloads:
            self._icmp.refuse(now, flow, payload)

    def _take_other_untrusted(self, now: float, raw: bytes) -> None:
        """Take a packet that is no plain datagram: a fragment, a message of ICMP, or one with options."""
        try:
            packet: ip.Packet | None = ip.parse_untrusted(raw)
            assert packet is not None
            part = fragment.parse_untrusted(packet)
            if part is not None:
                packet = self._reassembly.add(now, part)
            if packet is not None:
                self._take_whole_untrusted(now, packet)
        except BadFrame:
            self.counts["malformed"] += 1

    def _take_whole_untrusted(self, now: float, packet: ip.Packet) -> None:
        datagram = udp.parse_untrusted(packet)
        if datagram is not None:
            flow = Flow(
                Place(datagram.source, datagram.source_port),
                Place(datagram.destination, datagram.destination_port),
            )
            self.dispatch(now, [(flow.pack(), [datagram.payload])])
        elif packet.upper_untrusted().protocol in (ip.ICMP, ip.ICMPV6):
            self._icmp.take_untrusted(now, packet)
        else:
            self.counts["unknown_protocol"] += 1

    # -- packets to ourselves --------------------------------------------------------------------

    def deliver_local(self) -> None:
        """Deliver what was waiting when the call began."""
        for _ in range(len(self._local)):
            if not self._local:
                return
            packed, payload = self._local.popleft()
            targets = self._flows.get(packed) or self._find_targets(packed)
            for deliver, address in targets:
                deliver([payload], address)
            if not targets:
                self._icmp.refuse_own(Flow.unpack(packed))
        if self._local:
            self.schedule(self.deliver_local)


_hosts_lock = threading.Lock()


def host_of(endpoint: Endpoint) -> Host:
    """Return the host of this endpoint's sockets."""
    with _hosts_lock:
        host = endpoint.sockets
        if host is None:
            host = endpoint.sockets = Host(endpoint)
        assert isinstance(host, Host)
        return host


def stats(endpoint: Endpoint) -> dict[str, int]:
    """Return the counters of the sockets on an endpoint by name (docs/reference/counters.md). Any thread may
    call."""
    return {f"aio.{name}": value for name, value in sorted(host_of(endpoint).counts.items())}


def refuse_other_receiver(host: Host, kind: str) -> None:
    """`UsageError` if something takes the endpoint's packets already."""
    if host.receiver is not None and host.receiver.is_dead:
        host.receiver.abandon()
    if host.receiver is not None:
        raise UsageError(
            f"{host.endpoint.config.name}: its packets already go to other sockets, not to {kind}:"
            " one endpoint serves one event loop, or blocking sockets"
        )
