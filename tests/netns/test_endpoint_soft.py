# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints in this process on the built-in HCA, in a namespace with a veth pair."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable

import pytest

from ipoibu.lab import NamespaceLab
from tests.netns.conftest import Until

pytestmark = pytest.mark.netns

BOTH = """
    import gc, ipaddress
    from ipoibu import Endpoint, EndpointConfig
    from ipoibu.base.errors import IpoibuError

    def packet(data):
        head = bytes.fromhex("450000000000000040fd0000") + bytes([10, 0, 0, 1, 10, 0, 0, 2])
        return head[:2] + (20 + len(data)).to_bytes(2, "big") + head[4:] + data
"""


@pytest.fixture
def python(bare: NamespaceLab) -> Callable[[str], str]:
    """Run a program in the first bare host's namespace; return its output."""

    def run(program: str) -> str:
        text = textwrap.dedent(BOTH) + textwrap.dedent(program)
        done = bare.hosts[0].run([sys.executable, "-X", "faulthandler", "-c", text], timeout_s=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_a_closed_endpoint_is_freed_at_any_later_time(python: Callable[[str], str]) -> None:
    """The pump's address handles outlive the queue pair, and the collector picks its own order."""
    out = python("""
        endpoints = []
        for _ in range(5):
            with Endpoint(EndpointConfig("a", "soft:eth0")) as endpoint:
                endpoint.address_added(ipaddress.ip_interface("10.0.0.1/24"))
                endpoint.send([packet(b"x")])
                endpoint.join(ipaddress.ip_address("224.1.1.1"))
            endpoints.append(endpoint)
        endpoints.append(endpoints)  # a cycle
        del endpoint, endpoints
        print(gc.collect() >= 0)
    """)
    assert out.split() == ["True"]


def test_a_second_hca_on_the_device_is_refused_by_name(python: Callable[[str], str]) -> None:
    out = python("""
        with Endpoint(EndpointConfig("a", "soft:eth0")):
            try:
                Endpoint(EndpointConfig("b", "soft:eth0")).open()
            except IpoibuError as error:
                print(error)
    """)
    assert "UDP port 4791 is taken" in out


PAIR = """
    import contextlib, subprocess, time
    subprocess.run("ip link del va; ip link add va mtu 9000 type veth peer name vb mtu 9000 &&"
                   " ip link set va up && ip link set vb up",
                   shell=True, check=True, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    for name in ("va", "vb"):
        while "fe80" not in (out := subprocess.run(
            ["ip", "-6", "addr", "show", "dev", name, "scope", "link"],
            capture_output=True, text=True).stdout) or "tentative" in out:
            assert time.monotonic() < deadline, out
            time.sleep(0.05)

    @contextlib.contextmanager
    def pair(a, b):
        with Endpoint(EndpointConfig("a", "soft:va", **a)) as left:
            with Endpoint(EndpointConfig("b", "soft:vb", **b)) as right:
                left.address_added(ipaddress.ip_interface("10.0.0.1/24"))
                right.address_added(ipaddress.ip_interface("10.0.0.2/24"))
                yield left, right
"""


def test_the_links_q_key_and_p_key_are_used_on_all_of_it(python: Callable[[str], str]) -> None:
    """E6, E7: one Q_Key for the link; another key or partition hears nothing."""
    out = python(
        textwrap.dedent(PAIR)
        + textwrap.dedent("""
        from ipoibu import PKey

        def hello(a, b, wait_s=30):
            with pair(a, b) as (left, right):
                left.send([packet(b"hello")])
                got = right.recv(timeout=wait_s)
                end = time.monotonic() + 30
                while b.get("qkey") and not right.stats()["fabric.drop_qkey"]:
                    assert time.monotonic() < end
                    left.send([packet(b"hello")])
                    time.sleep(0.05)
                counters = right.stats()
                print(got == [packet(b"hello")], counters["fabric.drop_qkey"] > 0)

        hello({}, {})
        hello({}, {"qkey": 0x1234}, 3)
        hello({"pkey": PKey(0x8001)}, {"pkey": PKey(0x8002)}, 3)
        hello({"pkey": PKey(0x8001)}, {"pkey": PKey(0x0001)})
    """)
    )
    assert out.splitlines() == [
        "True False",
        "False True",
        "False False",  # another partition has other groups: no packet even arrives
        "True False",  # E7: the full-membership bit is set in any case
    ]


def test_frames_of_a_connection_are_read_where_they_came(
    python: Callable[[str], str], until: Until
) -> None:
    """The data path lends messages of up to 64 KiB as it lends datagrams: half of their 128 frames, then
    copies.

    On a busy machine a connection may break for want of acknowledgements, which loses packets: try again.
    """
    program = textwrap.dedent(PAIR) + textwrap.dedent("""
        def exchange(left, right, numbers):
            packets = [packet(number.to_bytes(2, "big") * 30000) for number in numbers]
            waiting, kept = list(packets), []
            while len(kept) < len(packets):
                if time.monotonic() > deadline:
                    print("lost")
                    raise SystemExit
                under_way = len(packets) - len(waiting) - len(kept)
                frames = left.reserve(min(len(waiting), 8 - under_way))
                for frame in frames:
                    data = waiting.pop(0)
                    frame.length = len(data)
                    memoryview(frame)[:] = data
                assert left.send_frames(frames) == len(frames)
                kept += right.recv_frames(timeout=0.01)
            assert [bytes(frame) for frame in kept] == packets
            return kept

        deadline = time.monotonic() + 30
        with pair({"mode": "connected"}, {"mode": "connected"}) as (left, right):
            while not any(row["state"] == "live" for row in left.connections()):
                if time.monotonic() > deadline:
                    print("lost")
                    raise SystemExit
                left.send([packet(b"hello")])
                time.sleep(0.05)
            while right.recv(timeout=1):
                pass
            for _ in range(2):
                kept = exchange(left, right, range(64))
                print(right.stats()["rx_copied"])
                more = exchange(left, right, range(64, 96))
                print(right.stats()["rx_copied"])
                del kept, more  # they go round again
            (last,) = exchange(left, right, range(1))
        print(bytes(last) == packet(bytes(60000)))
    """)
    out = until(lambda: "lost" not in (out := python(program)) and out, 200)
    assert out.split() == ["0", "32", "32", "64", "True"]


def test_the_built_in_hca_keeps_the_contracts_of_a_fabric(python: Callable[[str], str]) -> None:
    out = python(
        textwrap.dedent(PAIR)
        + textwrap.dedent("""
        from ipoibu.fabric.device import open_port
        from tests.doubles.port_contract import check_packets, check_port

        check_port(open_port("soft:va"))
        check_packets(open_port("soft:va"), open_port("soft:vb"))
        print("kept")
    """)
    )
    assert out.split() == ["kept"]
