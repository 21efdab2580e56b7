# SPDX-License-Identifier: BSD-2-Clause
"""An IPoIB endpoint, the embedding API: an interface on a thread of its own; any thread may call it."""

from __future__ import annotations

from dataclasses import replace

from ipoibu.base.addr import PKey
from ipoibu.endpoint.api.arguments import pkey_of
from ipoibu.endpoint.api.host_inputs import HostInputs
from ipoibu.endpoint.api.packets import Packets
from ipoibu.endpoint.api.questions import Questions
from ipoibu.endpoint.api.views import Views
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.datapath.datapath import HostDevice, queues_of
from ipoibu.endpoint.dhcp_config import DhcpConfig
from ipoibu.endpoint.handover import Handover


class Endpoint(HostInputs, Packets, Questions, Views):
    """One IPoIB interface in user space.

    Without a `device`, packets come from and go to the application: `send`, `recv`, `asend`, `arecv`, or
    without copies `reserve`, `send_frames`, `recv_frames`, `arecv_frames`. With a device (a `TunRing` or
    `TunDevice` with `config.queues` queues), the kernel's stack is on the other side; with a `CDevice`, the
    application's code in C. `port` hands in a
    port that is already open, such as a `MemoryPort`; the caller closes it. `kept` has what an earlier
    process has left: neighbours, checked addresses, and of the built-in HCA the socket and queue pairs.

    `with` and `async with` open and close it; on an event loop use the methods whose names begin with `a`,
    and `async for packets in endpoint.batches()`. Addresses may be objects or text, times are in seconds,
    sizes in bytes, and a packet is a whole IP packet.

    Threads: any thread may call every method, but only one thread at a time may receive. The engine runs on
    a thread of its own, the data path on a C thread that never takes the GIL. The engine's thread calls the
    functions of `callbacks`, which must not block; `open` and `close` block, and raise `UsageError` there.

    Errors: `open` raises `NoSuchDevice`, `NotPermitted`, `LinkError` or `UsageError`; everything else
    raises `Closed` before `open` and after `close`. The caller may open a closed endpoint again.
    """

    def child(
        self,
        pkey: PKey | int | str,
        *,
        mtu: int | None = None,
        dhcp: DhcpConfig | None = None,
        dhcp6: DhcpConfig | None = None,
        device: HostDevice | None = None,
        callbacks: Callbacks | None = None,
    ) -> Endpoint:
        """Return an endpoint, not open yet, in another partition of the port that this endpoint has open.

        Its name is NAME.P_KEY, as the kernel names children. Once open, it is independent of this endpoint:
        the last of them to close closes the device. Its `open` raises `Closed` while this endpoint is not
        open.
        """
        full = pkey_of(pkey).full
        config = replace(
            self.config,
            name=full.child_of(self.config.name),
            pkey=full,
            mtu=mtu,
            parent=self.config.name,
            rail_monitor=(),
            dhcp=dhcp,
            dhcp6=dhcp6,
            queues=queues_of(device) if device is not None else 1,
        )
        return self.share_port(
            config,
            device=device,
            callbacks=callbacks,
        )

    def share_port(
        self,
        config: EndpointConfig,
        *,
        device: HostDevice | None = None,
        callbacks: Callbacks | None = None,
        kept: Handover | None = None,
    ) -> Endpoint:
        """Return a child with this whole configuration, of which `device`, `port` and `backups` do not
        count: the child has the ports of this endpoint."""
        own = self.config
        config = replace(config, device=own.device, port=own.port, backups=own.backups)
        child = Endpoint(
            config,
            device=device,
            callbacks=callbacks,
            kept=kept,
        )
        child._take_port = lambda kept: self._shared_port()
        if own.backups:
            child._parent_rails = self._shared_rails
        return child
