# SPDX-License-Identifier: BSD-2-Clause
"""What 2 to 1000 peers cost a host of a link without multicast, as root:
python bench/unicast_peers.py [--key] [--json FILE] [PEERS ...]

One host is real. The peers are TCP connections of this process, which greet like hosts and tell their
groups; their datagrams go over a veth pair to addresses that answer nothing. So the figures are those of the
host alone, and the time to connect includes the work of this process.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import selectors
import socket
import struct
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.base.limits import MESH_PORT
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.wire import mesh, mgid
from ipoibu.wire.mesh import Greeting, Operation
from ipoibu.wire.mesh_key import KeyExchange
from ipoibu.wire.mesh_stream import FrameKind, FrameReader, frame

COUNTS: Final = (2, 16, 256, 1000)
DIALS: Final = 32  # attempts at a time: a host takes 64 callers that have not greeted it
BROADCASTS: Final = 200
PKEY: Final = PKey(0xFFFF)
KEY: Final = bytes(32)


class Peer:
    """A TCP client that greets as host `number`, and then only reads."""

    def __init__(self, number: int, target: tuple[Any, ...], mtu: int, *, has_key: bool) -> None:
        gid = Gid(ipaddress.IPv6Address(f"fe80::5:{number:x}").packed)
        self.greeting = Greeting(HwAddr(Qpn(0x1000 + number), gid), mtu, 1, PKEY, MESH_PORT)
        self.exchange = KeyExchange(KEY, number.to_bytes(32), is_ours=True) if has_key else None
        self.reader = FrameReader(self.exchange)
        self.heard = 0
        self.is_met = False
        self.address = ipaddress.IPv4Address("10.77.1.0") + number
        self.sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
        self.sock.connect(target)
        if self.exchange is not None:
            self.sock.sendall(frame(FrameKind.NONCE, self.exchange.ours))
        else:
            self._greet()

    def _greet(self) -> None:
        self._say(FrameKind.GREETING, self.greeting.pack())

    def _say(self, kind: FrameKind, body: bytes) -> None:
        seal = self.exchange.seal if self.exchange is not None else None
        self.sock.sendall(frame(kind, body, seal))

    def read(self) -> None:
        data = self.sock.recv(65536)
        if not data:
            raise SystemExit(f"the host hung up on peer {self.greeting.hwaddr}")
        self.heard += len(data)
        for kind, body in self.reader.frames_untrusted(data):
            if kind is FrameKind.NONCE:
                self._greet()
            elif kind is FrameKind.GREETING:
                groups = [
                    mgid.broadcast(PKEY),
                    mgid.of_group(ipaddress.ip_address("224.0.0.1"), PKEY),
                ]
                for message in mesh.groups(Operation.GROUPS, groups):
                    self._say(FrameKind.CONTROL, message)
                self._say(FrameKind.CONTROL, mesh.addresses([self.address]))
            elif kind is FrameKind.CONTROL:
                self.is_met |= mesh.operation_untrusted(body) is Operation.GROUPS
            else:
                raise SystemExit(f"the host answers with {kind.name}")


def memory_kb(pid: int) -> int:
    (line,) = (it for it in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmRSS" in it)
    return int(line.split()[1])


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def way(host: Host, other: Host, count: int) -> None:
    """Give the host a neighbour on the wire for each peer, all at the other end of the veth pair."""
    mac = other.run(["cat", "/sys/class/net/eth0/address"]).stdout.strip()
    with tempfile.NamedTemporaryFile("w", suffix=".batch") as file:
        file.writelines(
            f"neigh replace fe80::5:{number:x} lladdr {mac} dev eth0 nud permanent\n"
            for number in range(1, count + 1)
        )
        file.flush()
        sysctl = "sysctl -qw net.ipv6.neigh.default.gc_thresh1=4096 net.ipv6.neigh.default.gc_thresh2=8192"
        done = host.run(
            [
                "sh",
                "-c",
                f"{sysctl} net.ipv6.neigh.default.gc_thresh3=16384; ip -6 -batch {file.name}",
            ]
        )
        if done.returncode:
            raise SystemExit(done.stderr)


def connect(host: Host, other: Host, count: int, *, has_key: bool) -> Iterator[Peer]:
    shown = host.ask("show")
    target = (str(Gid.parse(shown["gid"]).ip), MESH_PORT, 0, other.interface_index("eth0"))
    waiting, peers = selectors.DefaultSelector(), []
    under_way = 0
    numbers = iter(range(1, count + 1))
    while len(peers) < count or under_way:
        while under_way < DIALS and (number := next(numbers, None)) is not None:
            peer = Peer(number, target, shown["mtu"], has_key=has_key)
            peers.append(peer)
            waiting.register(peer.sock, selectors.EVENT_READ, peer)
            under_way += 1
        for key, _ in waiting.select():
            was_met = key.data.is_met
            key.data.read()
            under_way -= key.data.is_met and not was_met
    waiting.close()
    yield from peers


def broadcasts(host: Host) -> dict[str, float]:
    """Send to the broadcast group as fast as the copies leave; the cost is the CPU time of the daemon."""
    pid = host.pid
    assert pid is not None
    names = [f"fabric.unicast_{it}" for it in ("tx_groups", "tx_copies", "tx_full", "tx_no_route")]
    before, cpu, began = host.ask("stats"), cpu_s(pid), time.monotonic()
    with host.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        for _ in range(BROADCASTS):
            sock.sendto(bytes(1000), ("10.77.0.255", 7777))
            time.sleep(0.002)
    quiet = 0
    copies = -1
    while quiet < 3:
        now = host.ask("stats")
        quiet = quiet + 1 if now[names[1]] == copies else 0
        copies = now[names[1]]
        time.sleep(0.05)
    groups, copies, full, no_route = (now[it] - before[it] for it in names)
    return {
        "groups": groups,
        "copies": copies,
        "lost_full": full,
        "lost_no_route": no_route,
        "cpu_us_each_copy": round(1e6 * (cpu_s(pid) - cpu) / max(1, copies), 2),
        "wall_s": round(time.monotonic() - began, 2),
    }


def one_broadcast(host: Host) -> float:
    """The time from a packet's way into the interface to its last copy, in ms: the median of 21."""
    times = []
    with (
        host.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock,
        host.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as wire,
    ):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        wire.bind(("eth0", 3))
        wire.settimeout(0.2)
        wire.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)  # SO_RCVBUFFORCE
        wire.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        for _ in range(21):
            began = time.time()
            sock.sendto(bytes(1000), ("10.77.0.255", 7777))
            last = began
            try:
                while True:
                    data, extra, _, _ = wire.recvmsg(2048, 256)
                    if len(data) > 1000 and extra:
                        seconds, ns = struct.unpack("qq", extra[0][2][:16])
                        last = seconds + ns / 1e9
            except TimeoutError:
                times.append(1000 * (last - began))
    return round(sorted(times)[len(times) // 2], 3)


def measure(count: int, *, has_key: bool) -> dict[str, object]:
    with ExitStack() as stack:
        lab = stack.enter_context(NamespaceLab(2, start=False))
        host, other = lab.hosts
        host.options += ["--peer", "127.0.0.1:9"]
        if has_key:
            key = stack.enter_context(tempfile.NamedTemporaryFile("w"))
            key.write(KEY.hex())
            key.flush()
            host.options += ["--peer-key-file", key.name]
        way(host, other, count)
        host.start()
        pid = host.pid
        assert pid is not None
        memory, cpu, began = memory_kb(pid), cpu_s(pid), time.monotonic()
        peers = other.namespace.inside(lambda: list(connect(host, other, count, has_key=has_key)))
        seconds = time.monotonic() - began
        cpu = cpu_s(pid) - cpu
        live = sum(it["state"] == "live" for it in host.ask("peers"))
        if live != count:
            raise SystemExit(f"{live} of {count} peers")
        result = {
            "peers": count,
            "key": has_key,
            "connect_s": round(seconds, 3),
            "connect_cpu_s": round(cpu, 2),
            "memory_kb_each": round((memory_kb(pid) - memory) / count, 1),
            "bytes_from_host_each": sum(it.heard for it in peers) // count,
            "one_broadcast_ms": one_broadcast(host),
            "broadcasts": broadcasts(host),
        }
        began = time.monotonic()
        for peer in peers:
            peer.sock.close()
        while host.ask("peers"):
            time.sleep(0.01)
        result["part_s"] = round(time.monotonic() - began, 2)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", metavar="PEERS", nargs="*", type=int, default=COUNTS)
    parser.add_argument("--key", action="store_true", help="the hosts share a key")
    parser.add_argument("--json", metavar="FILE", type=Path)
    options = parser.parse_args()
    results = []
    for count in options.counts:
        results.append(measure(count, has_key=options.key))
        print(json.dumps(results[-1]), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
