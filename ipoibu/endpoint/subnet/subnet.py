# SPDX-License-Identifier: BSD-2-Clause
"""An interface's part of a subnet that nobody administers: the fabric itself carries out what the engine
asks, and the configuration has the parameters of the link.

`sa_subnet.py` has the part of a subnet with an administrator, and `Interface.open_subnet` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from ipoibu.base.addr import Gid
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.interface_contract import InterfaceContract
from ipoibu.endpoint.subnet.link import wishes
from ipoibu.fabric.link import static_params
from ipoibu.proto.effects import Attach, Detach, Effect, FindPath, JoinToSend, LeaveToSend

Request = Attach | Detach | FindPath | JoinToSend | LeaveToSend


class Subnet:
    """Every method runs on the interface's loop. Without an administrator most have nothing to do."""

    def __init__(self, interface: InterfaceContract) -> None:
        self._interface = interface

    def note_pkey(self, params: PartitionParams) -> None:
        """Note the P_Key to which the queue pair will be bound, before the queue pair exists, so that we
        miss no change."""

    def note_renewed(self) -> None:
        """The interface has a queue pair on the link of its `params`."""

    def stop_listening(self) -> None:
        """Get no more flushes and notices."""

    def close(self) -> None:
        """End all requests; the engine's own `Detach` effects have left the groups."""

    def leave_port(self, restart: Callable[[], None]) -> None:
        """End, because another port carries the traffic; `restart` begins a search for the link anew."""

    def hand_over(self) -> Sequence[Request]:
        """End, but stay in the groups that we receive, because the port of another rail carries the traffic
        now; return the requests under way."""
        return ()

    # ---- effects

    def request(self, effect: Request) -> Iterable[Effect]:
        """Carry the effect out; return those that this causes at once."""
        fabric = self._interface.fabric
        match effect:
            case Attach(mgid):
                return self._attach(mgid)
            case Detach(mgid):
                fabric.detach(mgid)
        return ()

    def _attach(self, mgid: Gid) -> Iterable[Effect]:
        interface, now = self._interface, self._interface.loop.time()
        try:
            interface.fabric.attach(mgid)
        except LinkError as error:
            return interface.engine.note_attach_failed(now, mgid, str(error))
        return interface.engine.note_attached(now, mgid)

    # ---- groups

    @property
    def received(self) -> Collection[Gid]:
        """The groups that we receive, as full members."""
        return ()

    def others(self) -> Collection[Gid]:
        """Return the groups that we receive for a multicast router only."""
        return ()

    def follow_allmulticast(self) -> bool:
        """Begin or end to receive for a router, as the interface says; return False where nobody knows which
        groups there are."""
        return False

    def close_all_groups(self) -> None:
        """Stop receiving for a router, because the link goes down."""

    # ---- flushes

    def refresh(self) -> None:
        """Flush lightly: the SA may have forgotten us."""

    def why_heavy(self) -> str | None:
        """Return why the port's P_Key table calls for another queue pair; None if it does not."""
        return None

    async def find_link(self) -> PartitionParams:
        """Join the link again, and return the parameters that it has now. Without an SA they stay, unless
        the port has another GID: one of the other IP version has another MTU."""
        interface = self._interface
        if interface.fabric.is_stale:
            return static_params(interface.port, **wishes(interface.config))
        return interface.params

    def leave_link(self) -> None:
        """Undo `find_link`."""
