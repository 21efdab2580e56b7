# SPDX-License-Identifier: BSD-2-Clause
"""The Ethernet between machines: datagram sockets that carry one frame each, off the host's network.

Two machines share a socket pair, which blocks the sender when it is full and so loses nothing. A switch
that floods joins more machines: every machine sees every frame, as on a hub. A capture needs the switch for
two machines, too, which then blocks the sender as the pair does; so does a subnet manager, and the switch is
an InfiniBand switch then.
"""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from ipoibu.base.closing import Closing

if TYPE_CHECKING:
    from ipoibu.lab.machines.capture import Capture
    from ipoibu.lab.machines.switch import Switch

BUFFER_BYTES = 4 << 20  # about 450 frames of 9000 bytes each way; the default holds 20
FRAME_BYTES = 1 << 16
SO_SNDBUFFORCE = 32  # <asm-generic/socket.h>


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return two joined datagram sockets with large buffers."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    for end in pair:
        # The kernel charges a unix socket's frames to their sender alone.
        try:
            end.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        except PermissionError:  # without CAP_NET_ADMIN, net.core.wmem_max is the limit
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    return pair


class Wire(Closing):
    """The wire of `count` machines, a context manager; `ends[i]` belongs to machine i.

    `capture` gets each frame, before any machine does. `switch` says where each one goes, and adds its own;
    without it a frame goes to all. The machines inherit the descriptors of `ends`; close
    the runner's copies (leave the context) only after the machines have ended, because a socket without a
    peer refuses frames.
    """

    def __init__(
        self, count: int, capture: Capture | None = None, switch: Switch | None = None
    ) -> None:
        """Make the sockets; where frames pass a switch, start a thread for each machine's."""
        self._capture = capture
        self._switch = switch
        self._dropped = [0] * count  # frames of machine i
        self._ports: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        if count == 2 and capture is None and switch is None:
            self.ends = list(socket_pair())
            return
        pairs = [socket_pair() for _ in range(count)]
        self.ends = [end for end, _ in pairs]
        self._ports = [port for _, port in pairs]
        self._threads = [
            threading.Thread(
                target=self._forward, args=(index,), name=f"lab-port-{index}", daemon=True
            )
            for index in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def dropped_frames(self) -> int:
        """The number of copies of frames that the switch has lost."""
        return sum(self._dropped)

    def close(self) -> None:
        """Stop the switch and close every socket."""
        for end in self.ends:
            end.close()  # lets go a thread that waits for room
        for port in self._ports:
            port.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for port in self._ports:
            port.close()

    def _forward(self, index: int) -> None:
        """Copy each frame of machine `index` to other ports, until its port is shut down.

        Between two machines it waits for room; among more, one that does not listen must not stop the
        others, so a port with a full buffer loses a frame, as on a switch.
        """
        source = self._ports[index]
        others = [port for port in self._ports if port is not source]
        flags = 0 if len(others) == 1 else socket.MSG_DONTWAIT
        while frame := source.recv(FRAME_BYTES):
            if self._capture is not None:
                self._capture.record(index, frame)
            if self._switch is None:
                copies = [(port, frame) for port in others]
            else:
                deliveries = self._switch.receive(index + 1, frame)
                copies = [(self._ports[to - 1], copy) for to, copy in deliveries]
            for port, copy in copies:
                try:
                    port.send(copy, flags)
                except OSError:
                    self._dropped[index] += 1
