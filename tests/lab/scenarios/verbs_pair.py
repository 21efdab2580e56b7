# SPDX-License-Identifier: BSD-2-Clause
"""Two endpoints of one process on one rxe port, while the device makes trouble.

rxe loops back packets to itself, so one machine is enough. Each function writes a report.
"""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_interface

from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.pd import PD

from ipoibu import Endpoint, EndpointConfig
from ipoibu.base.ib import Destination
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.fabric.verbs.port import VerbsPort
from ipoibu.lab.machines.inside.meeting import until
from ipoibu.lab.machines.scenarios.verbs_machine import DEVICE, ipv4, on_a_veth, report, resources
from tests.unit.endpoint.queued import FakeQueues

LEFT, RIGHT = "10.0.0.1", "10.0.0.2"
GROUP = "239.9.9.9"


class Pair:
    """Two open endpoints with an address each."""

    def __init__(self, left: Endpoint, right: Endpoint) -> None:
        self.left, self.right = left, right
        left.address_added(ip_interface(f"{LEFT}/24"))
        right.address_added(ip_interface(f"{RIGHT}/24"))

    def exchange(self, packets: int = 20) -> None:
        """Exchange packets until all arrive, since UD may lose some; raise `Missed` after 10 s."""
        for source, target, sender, receiver in (
            (LEFT, RIGHT, self.left, self.right),
            (RIGHT, LEFT, self.right, self.left),
        ):
            stamp = str(time.monotonic_ns()).encode()
            wanted = {ipv4(source, target, b"%s %d" % (stamp, n)) for n in range(packets)}
            self._deliver(wanted, sender, receiver)

    @staticmethod
    def _deliver(wanted: set[bytes], sender: Endpoint, receiver: Endpoint) -> None:
        def arrived() -> bool:
            sender.send(wanted)
            wanted.difference_update(receiver.recv(1024, timeout=0.3))
            return not wanted

        until(arrived, f"{len(wanted)} packets", timeout_s=10)


@contextmanager
def pair(left_mtu: int | None = None) -> Iterator[Pair]:
    on_a_veth()
    with (
        Endpoint(EndpointConfig("left", DEVICE, mtu=left_mtu)) as left,
        Endpoint(EndpointConfig("right", DEVICE)) as right,
    ):
        both = Pair(left, right)
        both.exchange()
        yield both


def broken() -> None:
    """The queue pair breaks twenty times, with everything posted, and comes back each time."""
    with pair() as both:
        fabric = both.left._opened().fabric
        counters = both.left._pump.counters
        for times in range(1, 21):
            fabric.break_queue_pair()  # type: ignore[attr-defined]
            until(_reaches(counters, "fabric_recoveries", times), "recovery")
        both.exchange(400)  # more packets than frames: every frame came back
        report({**counters(), **fabric.counters()})


def oversize() -> None:
    """A peer sends more than our link carries: its datagrams arrive, or are lost; nothing breaks."""
    with pair(left_mtu=4092) as both:
        # The frame bypasses the neighbour table, which would refuse it, as a careless host's would.
        destination = Destination(both.right.port.gid, both.right.hwaddr.qpn)
        frame = bytes.fromhex("08000000") + ipv4(LEFT, RIGHT, bytes(3000))
        for _ in range(50):
            both.left._call(both.left._pump.send_frame, destination, frame)
        both.exchange()
        report(both.right._pump.counters())


def _failed_a_send(endpoint: Endpoint) -> bool:
    endpoint.send([ipv4(LEFT, RIGHT, b"into the void")] * 8)
    return endpoint._pump.counters()["fabric_errors"] > 0


def unplugged() -> None:
    """The net device goes down while we send: a send fails on rxe, and the link comes back."""
    with pair() as both:
        # The port's event ends sending at once, so it must not reach the engine before a send fails.
        heard = threading.Event()
        loop = both.left._opened().loop
        loop.call_soon_threadsafe(heard.wait)
        try:
            subprocess.run(["ip", "link", "set", "va", "down"], check=True)
            until(lambda: _failed_a_send(both.left), "a send to fail")
        finally:
            heard.set()
        until(_shows(both.left, "down"), "the link to go down")
        failures = both.left._pump.counters()["fabric_errors"]
        subprocess.run(["ip", "link", "set", "va", "up"], check=True)
        until(_shows(both.left, "up"), "the link to come up", timeout_s=10)
        until(_shows(both.right, "up"), "the link to come up", timeout_s=10)
        both.exchange()
        report({"failures": failures, **both.left._pump.counters()})


def removed() -> None:
    """Delete the network device; the RDMA device goes with it as soon as nobody has it open."""
    on_a_veth()
    failures: list[str] = []
    with Endpoint(
        EndpointConfig("left", DEVICE), callbacks=Callbacks(on_failure=failures.append)
    ) as left:
        left.address_added(ip_interface(f"{LEFT}/24"))
        with subprocess.Popen(["ip", "link", "delete", "va"]) as deletion:
            until(lambda: bool(failures), "the endpoint to fail")
            left.close()
            deletion.wait(10)
    devices = subprocess.run(["rdma", "link"], check=True, capture_output=True, text=True).stdout
    report({"failures": failures, "devices": devices})


def readdressed() -> None:
    """The net device gets another MAC, so the port another GID: the endpoints move to it."""
    with pair() as both:
        before = str(both.left.hwaddr)
        for change in (["address", "02:00:00:00:09:09"], ["down"], ["up"]):
            subprocess.run(["ip", "link", "set", "va", *change], check=True)
        until(lambda: str(both.left.hwaddr) != before, "another address", timeout_s=10)
        for endpoint in (both.left, both.right):
            until(_shows(endpoint, "up"), "the link to come up", timeout_s=10)
        both.exchange()
        report({"before": before, "after": str(both.left.hwaddr)})


def tx_queues() -> None:
    """Three queues: each comes back after a break and moves to another GID, and receives no echo."""
    on_a_veth()
    alone, tun = resources(), FakeQueues(3)
    left = Endpoint(EndpointConfig("left", DEVICE, queues=3), device=tun.device)
    with left, Endpoint(EndpointConfig("right", DEVICE)) as right:
        Pair(left, right)
        during = resources()

        def each_sends() -> None:
            for queue in range(3):
                packet = ipv4(LEFT, RIGHT, b"%d %d" % (queue, time.monotonic_ns()))

                def arrived(queue: int = queue, packet: bytes = packet) -> bool:
                    tun.give(queue, packet)
                    return packet in right.recv(timeout=0.3)

                until(arrived, f"a packet of queue {queue}", timeout_s=10)

        each_sends()
        counters = left._pump.counters
        for times, tx_queue in enumerate(left._opened().fabric._tx_queues, start=1):  # type: ignore[attr-defined]
            tx_queue.fabric.break_queue_pair()
            until(_reaches(counters, "fabric_recoveries", times), "recovery")
        each_sends()
        before = str(left.hwaddr)
        for change in (["address", "02:00:00:00:09:09"], ["down"], ["up"]):
            subprocess.run(["ip", "link", "set", "va", *change], check=True)
        until(lambda: str(left.hwaddr) != before, "another address", timeout_s=10)
        for endpoint in (left, right):
            until(_shows(endpoint, "up"), "the link to come up", timeout_s=10)
        each_sends()
        for endpoint in (left, right):
            endpoint.join(ip_address(GROUP))
        until(lambda: _receives(left) and _receives(right), "the group", timeout_s=10)
        echoes = counters()["rx_echo"]
        groups = {ipv4(LEFT, GROUP, b"queue %d" % queue) for queue in range(3)}

        def heard() -> bool:
            for queue, packet in enumerate(sorted(groups)):
                tun.give(queue, packet)
            groups.difference_update(right.recv(timeout=0.3))
            return not groups

        tun.take_all()
        until(heard, "the group's packets", timeout_s=10)
        until(lambda: counters()["rx_echo"] >= echoes + 3, "the echo")
        report(
            {
                "alone": alone,
                "during": during,
                "after": str(left.hwaddr),
                "echo": [packet.hex() for packet in tun.take_all()],
                **counters(),
            }
        )
    tun.close()


def _receives(endpoint: Endpoint) -> bool:
    return any(
        GROUP in entry["groups"] and entry["state"] == "member" for entry in endpoint.groups()
    )


def narrowed() -> None:
    """The net device's MTU shrinks below what the link carries: the port counts as down."""
    with pair() as both:
        subprocess.run(["ip", "link", "set", "va", "mtu", "1500"], check=True)
        until(_shows(both.left, "down"), "the link to go down")
        subprocess.run(["ip", "link", "set", "va", "mtu", "9000"], check=True)
        until(_shows(both.left, "up"), "the link to come up")
        until(_shows(both.right, "up"), "the link to come up")
        both.exchange()
        report("came back")


def lent() -> None:
    """Endpoints use the application's context and protection domain, which stay usable afterwards."""
    on_a_veth()
    context = Context(name=DEVICE)
    pd = PD(context)
    alone = resources()
    port = VerbsPort(context=context, pd=pd)
    with (
        Endpoint(EndpointConfig("left", DEVICE), port=port) as left,
        Endpoint(EndpointConfig("right", DEVICE), port=port) as right,
    ):
        Pair(left, right).exchange()
        during = resources()
    port.close()
    after = resources()
    CQ(context, 8).close()
    pd.close()
    context.close()
    report({"alone": alone, "during": during, "after": after})


def _reaches(counters: Callable[[], dict[str, int]], name: str, value: int) -> Callable[[], bool]:
    return lambda: counters()[name] >= value


def _shows(endpoint: Endpoint, state: str) -> Callable[[], bool]:
    return lambda: bool(endpoint.show()["state"] == state)
