# SPDX-License-Identifier: BSD-2-Clause
"""The Ethernet between machines: datagram sockets that carry one frame each, off the host's network.

Two machines share a socket pair, which blocks the sender when it is full and so loses nothing. A switch
that floods joins more machines: every machine sees every frame, as on a hub.
"""

import selectors
import socket
import threading

from ipoibu.base.closing import Closing

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

    The machines inherit the descriptors of `ends`; close the runner's copies (leave
    the context) only after the machines have ended, because a socket without a peer refuses frames.
    """

    def __init__(self, count: int) -> None:
        """Make the sockets and, for more than two machines, start the switch's thread."""
        self.dropped_frames = 0
        self._ports: list[socket.socket] = []
        self._switch: threading.Thread | None = None
        if count == 2:
            self.ends = list(socket_pair())
            return
        pairs = [socket_pair() for _ in range(count)]
        self.ends = [end for end, _ in pairs]
        self._ports = [port for _, port in pairs]
        self._stop, self._stopped = socket.socketpair()
        self._switch = threading.Thread(target=self._flood, name="lab-switch", daemon=True)
        self._switch.start()

    def close(self) -> None:
        """Stop the switch and close every socket."""
        if self._switch is not None:
            self._stop.close()
            self._switch.join()
            self._stopped.close()
        for end in (*self.ends, *self._ports):
            end.close()

    def _flood(self) -> None:
        """Copy each frame to all other ports, until `_stop` is closed."""
        with selectors.DefaultSelector() as selector:
            for port in (*self._ports, self._stopped):
                port.setblocking(False)
                selector.register(port, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._stopped in ready:
                    return
                for port in self._ports:
                    if port in ready:
                        self._forward(port)

    def _forward(self, source: socket.socket) -> None:
        """Forward the frames of one port; a port with a full buffer loses a frame, as on a switch."""
        while True:
            try:
                frame = source.recv(FRAME_BYTES)
            except BlockingIOError:
                return
            for port in self._ports:
                if port is not source:
                    try:
                        port.send(frame)
                    except OSError:
                        self.dropped_frames += 1
