# SPDX-License-Identifier: BSD-2-Clause
"""The views of an endpoint: its parameters, tables, counters, transitions and frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ipoibu.base.addr import HwAddr, IpInterface
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.limits import STATUS_PAGE
from ipoibu.endpoint.api import status
from ipoibu.endpoint.api.arguments import sink_of
from ipoibu.endpoint.api.life import Life
from ipoibu.endpoint.datapath.capture import SNAP_MAX_BYTES, Sink
from ipoibu.endpoint.interface.interface import Interface
from ipoibu.proto.machine.transition import Transition


class Views(Life):
    """The part of `Endpoint` that shows and watches; the keys of its plain values are stable."""

    @property
    def port(self) -> PortInfo:
        return self._opened().port.info

    @property
    def socket_fd(self) -> int | None:
        """The descriptor by which a later process goes on with the port (`kept`); None if it cannot."""
        return self._opened().port.socket_fd

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

    @property
    def mode(self) -> str:
        """The sending mode: datagram or connected."""
        return self._opened().config.mode

    def show(self) -> dict[str, Any]:
        """Return the interface as plain values; the keys are stable."""
        return self._call(status.show, self._opened())

    def addresses(self) -> list[IpInterface]:
        """Return the own addresses that packets may come from, one for each prefix length."""
        return self._call(self._opened().engine.usable_addresses)

    def neighbours(self) -> list[dict[str, Any]]:
        """Every neighbour: ip, hwaddr (None while unknown), underlay (the IP address to which its datagrams
        go on RoCE and iWARP, else None), state, age_s, pending, router.

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
        """Every connection: role, state, peer, qpn, remote_qpn, mtu, path_mtu, superframes, age_s, idle_s,
        the messages and bytes of IP sent and received, and retries (packets sent again, None where
        the device does not count them). Datagram mode has none, except those of `peers`, whose unknown
        values are None.

        `peer` is the hardware address without flags; `mtu` is 0 where we only receive; `path_mtu` is the
        payload in bytes of the longest InfiniBand packet, 0 before both ends have agreed.
        """
        return self._call(self._opened().rc.snapshot)

    def peers(self) -> list[dict[str, Any]]:
        """Every peer of a mesh or of a link without multicast, in both modes; none elsewhere: peer (its
        hardware address without flags), locator (where it listens, by underlay address and TCP port), state,
        role, mtu, addresses (its IP addresses on the link), and groups (the MGIDs that it wants to receive).
        The other keys are those of `connections`.
        """
        return self._opened().fabric.peers()

    def groups(self) -> list[dict[str, Any]]:
        """Every multicast group: mgid, groups (the IP groups on it), state, kind, users, idle_s.

        `kind` is "full", "send-only" or, with `allmulticast`, "non-member".
        """
        return self._call(status.groups, self._opened())

    def guests(self) -> list[dict[str, Any]]:
        """The guests with `EndpointConfig.ethernet`, then the hosts of the link, then the refusals, each
        with kind (guest, host or refused), ip (None of a host), mac, hwaddr (of a host, and of a guest with
        a queue pair of its own), state, age_s, count (of messages) and holder (a MAC), both of a refusal
        alone.

        The state of a guest's address is that of docs/reference/state-machines.md; a host is "used" once
        a guest has sent to its MAC, else "heard". A refusal says that the guest `mac` used `ip`, which is
        "bound" to `holder` or "held" by it, or that the guest is bound to "others".
        """
        return status.guests(*self._call(status.handed_off, self._opened()))

    def stats(self) -> dict[str, int]:
        """Return the counters by name: the pump's without a prefix, the fabric's under `fabric.`, the
        engine's under `engine.`."""
        return self._call(status.stats, self._opened())

    def drop_sources(self) -> dict[str, str]:
        """Return, by counter of `stats`, the IP address that the last packet dropped there names as its
        sender's. The built-in HCA knows the sender of what it drops on reception; other fabrics do not."""
        sources = self._call(self._opened().fabric_drop_sources)
        return {f"fabric.{name}": str(gid.ip) for name, gid in sources.items()}

    def capture(self, sink: Sink, snap_bytes: int = SNAP_MAX_BYTES) -> Callable[[], None]:
        """Hand frames to `sink` in batches, on the engine's thread; call the result to end it.

        Each is a `CapturedFrame`: GRH (40 bytes), encapsulation header (4), payload. If a sink raises, the
        endpoint logs the error and hands the sink nothing more.
        """
        interface = self._opened()
        self._call(interface.tap.add, sink_of(sink), snap_bytes)

        def end() -> None:
            if self._interface is interface:
                self._call(interface.tap.remove, sink)

        return end

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
        gids = self._call(interface.engine.paths.gids)
        return self._in_pages(status.paths, interface, gids)

    def watch(self, sink: Callable[[Transition], None]) -> Callable[[], None]:
        """Hand each transition of the link, addresses, neighbours, groups, connections and paths to
        `sink`, on the engine's thread; call the result to end it. The sink must not block.
        """
        interface = self._opened()
        self._call(interface.transitions.add, sink_of(sink))

        def end() -> None:
            if self._interface is interface:
                self._call(interface.transitions.remove, sink)

        return end
