# SPDX-License-Identifier: BSD-2-Clause
"""How long nobody answers for a VRRP address that keepalived moves: on ipoibu's ib0, and on the wire below.

As root: `.venv/bin/python -m bench.vrrp [ROUNDS]`. Each round has the master stop, and come back; a
client sends a datagram to the address every 2 ms, and measures the gap between the last answer of the one
host and the first answer of the other. The interfaces take turns. See bench/notes/vrrp.md.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

PORT = 7777
PROBE_S = 0.002
NETS = {"ib0": "10.77.0", "eth0": "10.88.0"}
STEPS = ("master stops", "master returns")
LIMIT_S = 20.0
SETTLE_S = 2.0  # the announcements of a take-over end

CONFIG = """
vrrp_instance one {{
  interface {interface}
  state BACKUP
  virtual_router_id 51
  priority {priority}
  advert_int 0.2
  unicast_src_ip {net}.{own}
  unicast_peer {{ {net}.{peer} }}
  virtual_ipaddress {{ {net}.100/24 dev {interface} }}
}}
"""


class Echo(threading.Thread):
    """Answers each datagram with the number of its host."""

    def __init__(self, host: Host) -> None:
        super().__init__(daemon=True)
        self._number = bytes((host.number,))
        self._socket = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", PORT))

    def run(self) -> None:
        while True:
            _, sender = self._socket.recvfrom(64)
            with contextlib.suppress(OSError):
                self._socket.sendto(self._number, sender)


class Keepalived:
    """keepalived in the foreground of a host, with a directory of its own."""

    def __init__(self, host: Host, peer: Host, interface: str, priority: int) -> None:
        self._work = tempfile.TemporaryDirectory()
        work, net = self._work.name, NETS[interface]
        config = Path(work, "keepalived.conf")
        config.write_text(
            CONFIG.format(
                interface=interface, priority=priority, net=net, own=host.number, peer=peer.number
            )
        )
        command = ["keepalived", "--dont-fork", "--log-console", "--vrrp", "-f", str(config)]
        command += ["-p", f"{work}/pid", "-r", f"{work}/vrrp", "-c", f"{work}/checkers"]
        self._process = host.namespace.popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )

    def stop(self) -> None:
        """Begin to stop gracefully: the master says that it leaves."""
        self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._work.cleanup()


class Client:
    """Sends a datagram every PROBE_S, and notes which host answers when."""

    def __init__(self, host: Host, interface: str) -> None:
        self._socket = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._to = (f"{NETS[interface]}.100", PORT)
        self._last: dict[int, float] = {}

    def until(self, number: int) -> float:
        """Probe until `number` answers; return the time since another host's last answer, in s."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                self._socket.sendto(b"?", self._to)
            end = time.monotonic() + PROBE_S
            while (left := end - time.monotonic()) > 0:
                if not select.select([self._socket], [], [], left)[0]:
                    break
                with contextlib.suppress(OSError):
                    answer, now = self._socket.recv(64)[0], time.monotonic()
                    if answer == number:
                        former = max(
                            (at for each, at in self._last.items() if each != number), default=now
                        )
                        self._last[number] = now
                        return now - former
                    self._last[answer] = now
        raise SystemExit(f"host {number} did not answer within {LIMIT_S} s")

    def during(self, number: int, duration_s: float) -> None:
        end = time.monotonic() + duration_s
        while time.monotonic() < end:
            self.until(number)

    def close(self) -> None:
        self._socket.close()


def measure(lab: NamespaceLab, interface: str) -> tuple[float, float]:
    """One round: the master stops, and comes back. Returns both gaps in s."""
    master, backup, host = lab.hosts
    client = Client(host, interface)
    with contextlib.ExitStack() as stack:
        stack.callback(client.close)

        def start(host: Host, peer: Host, priority: int) -> Keepalived:
            started = Keepalived(host, peer, interface, priority)
            stack.callback(started.close)
            return started

        start(backup, master, 50)
        preferred = start(master, backup, 100)
        client.until(master.number)
        client.during(master.number, SETTLE_S)
        preferred.stop()
        stopped = client.until(backup.number)
        client.during(backup.number, SETTLE_S)
        start(master, backup, 100)
        returned = client.until(master.number)
    return stopped, returned


def main(rounds: int) -> None:
    with NamespaceLab(3) as lab:
        for host in lab.hosts:
            address = f"{NETS['eth0']}.{host.number}/24"
            host.run(["ip", "address", "add", address, "dev", "eth0"])
            Echo(host).start()
        gaps: dict[str, list[tuple[float, float]]] = {interface: [] for interface in NETS}
        for _ in range(rounds):
            for interface, found in gaps.items():
                found.append(measure(lab, interface))
        for interface, found in gaps.items():
            for what, values in zip(STEPS, zip(*found, strict=True), strict=True):
                ms = sorted(1000 * value for value in values)
                print(
                    f"{interface:5} {what:15} median {statistics.median(ms):6.1f} ms, "
                    f"least {ms[0]:.1f}, most {ms[-1]:.1f}"
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
