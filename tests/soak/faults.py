# SPDX-License-Identifier: BSD-2-Clause
"""The faults of a soak: each is a block in which something is wrong with one host of the lab."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

from ipoibu.lab import LabSubnet, NamespaceLab
from ipoibu.lab.host import NETDEV, Host
from ipoibu.lab.namespace_lab import NETDEV_MTU
from ipoibu.lab.subnet import ONE_LINK

SMALL_NETDEV_MTU: Final = 1500  # below what the port's InfiniBand MTU needs: the port goes down
LOSS_MAX: Final = 0.2


class Faults:
    """Draws faults from a seed and carries them out; a fault's name and host are in its description."""

    def __init__(self, lab: NamespaceLab, seed: int, subnet: LabSubnet | None = None) -> None:
        self._lab = lab
        self._random = random.Random(seed)
        self._subnet = subnet
        self._options = {host.number: list(host.options) for host in lab.hosts}
        self.kinds: list[Callable[[Host], Iterator[None]]] = [
            self._flap,
            self._tun_mtu,
            self._stop,
            self._restart,
            self._kill,
        ]
        if subnet is None:
            self.kinds += [self._loss, self._netdev_mtu]
        else:
            self.kinds += [self._sweep, self._sm_restart, self._sm_handover]

    def draw(self) -> tuple[str, contextlib.AbstractContextManager[None]]:
        """Return the description of the next fault, and the block during which the fault lasts."""
        host = self._random.choice(self._lab.hosts)
        kind = self._random.choice(self.kinds)
        name = kind.__name__.strip("_").replace("_", " ")
        return f"{name} of {host.name}", contextlib.contextmanager(kind)(host)

    def mend(self) -> None:
        """Start the hosts that a fault left without a daemon."""
        for host in self._lab.hosts:
            if host.pid is None or host.ended() is not None:
                host.stop()
                host.options = list(self._options[host.number])
                host.start()

    def _pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self._random.uniform(least_s, most_s))

    def _set_link(self, host: Host, netdev: str, *words: str) -> None:
        done = host.run(["ip", "link", "set", netdev, *words])
        assert done.returncode == 0, f"{host.name}: ip link set {netdev}: {done.stderr}"

    def _kill(self, host: Host) -> Iterator[None]:
        """The daemon ends as in a crash, and starts anew."""
        host.kill()
        try:
            self._pause(0.2, 2)
            yield
        finally:
            host.start()

    def _restart(self, host: Host) -> Iterator[None]:
        """An operator ends the daemon and starts it."""
        host.stop()
        try:
            yield
        finally:
            host.start()

    def _loss(self, host: Host) -> Iterator[None]:
        """The host loses up to a fifth of its datagrams, between two restarts."""
        loss, seed = self._random.uniform(0, LOSS_MAX), self._random.randrange(1 << 30)
        host.stop()
        host.options = [*self._options[host.number], "--faults", f"loss={loss:.3f},seed={seed}"]
        try:
            host.start()
            self._pause(1, 4)
            yield
        finally:
            host.stop()
            host.options = list(self._options[host.number])
            host.start()

    def _flap(self, host: Host) -> Iterator[None]:
        """The host's net device loses its carrier a few times."""
        bridge = self._lab.bridge
        assert bridge is not None, "a soak has 3 hosts or more"
        times = self._random.randint(1, 3)
        for turn in range(times):
            self._set_carrier(host, up=False)
            self._pause(0.1, 1)
            if turn + 1 < times:
                self._set_carrier(host, up=True)
                self._pause(0.1, 0.5)
        try:
            yield
        finally:
            self._set_carrier(host, up=True)

    def _set_carrier(self, host: Host, *, up: bool) -> None:
        bridge = self._lab.bridge
        assert bridge is not None
        words = ["ip", "link", "set", f"p{host.number}", "up" if up else "down"]
        with bridge.popen(words) as process:
            assert process.wait(60) == 0, " ".join(words)

    def _netdev_mtu(self, host: Host) -> Iterator[None]:
        """The net device's MTU falls below what the port needs."""
        self._set_link(host, NETDEV, "mtu", str(SMALL_NETDEV_MTU))
        try:
            self._pause(0.2, 2)
            yield
        finally:
            self._set_link(host, NETDEV, "mtu", str(NETDEV_MTU))

    def _tun_mtu(self, host: Host) -> Iterator[None]:
        """An operator makes the interface's MTU smaller."""
        self._set_link(host, "ib0", "mtu", str(self._random.choice([1280, 1500, 2000])))
        try:
            self._pause(0.2, 2)
            yield
        finally:
            self._set_link(host, "ib0", "mtu", str(host.ask("show")["mtu"]))

    def _stop(self, host: Host) -> Iterator[None]:
        """The daemon gets no CPU for a while."""
        assert host.pid is not None
        os.kill(host.pid, signal.SIGSTOP)
        try:
            self._pause(0.3, 2.5)
            yield
        finally:
            os.kill(host.pid, signal.SIGCONT)

    def _sweep(self, host: Host) -> Iterator[None]:
        """OpenSM reads its configuration again and sweeps the subnet."""
        assert self._subnet is not None
        self._subnet.reload(ONE_LINK)
        yield

    def _sm_restart(self, _host: Host) -> Iterator[None]:
        """OpenSM and its standby die, and both start anew."""
        assert self._subnet is not None
        self._subnet.restart(self._random.uniform(0, 2))
        yield

    def _sm_handover(self, _host: Host) -> Iterator[None]:
        """OpenSM dies, and its standby takes over; then that one dies, too."""
        assert self._subnet is not None
        self._subnet.hand_over()
        self._pause(0.2, 2)
        yield
        self._subnet.restart()
