# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints open and close hundreds of times in one process, and leave nothing on the device."""

import ctypes
import gc
import os
import time
from collections.abc import Callable
from functools import partial

from pyverbs.device import Context
from pyverbs.pd import PD

from ipoibu import Endpoint, EndpointConfig
from ipoibu.base.addr import MULTICAST_QPN, Gid, Qpn
from ipoibu.base.ib import Destination
from ipoibu.fabric.verbs.port import VerbsPort
from ipoibu.lab.machines.scenarios.verbs_machine import DEVICE, on_a_veth, report, resources

BATCH = 100  # frames
SEND_S = 20  # for one batch; the machine is busy


def own_device(cycles: str, handles: str) -> None:
    """Open and close an endpoint by the device's name; report resources before and after."""
    on_a_veth()
    _report(int(cycles), int(handles), lambda: Endpoint(EndpointConfig("cycle", DEVICE)))


def lent_device(cycles: str, handles: str) -> None:
    """Do the same on the application's context and protection domain, which stay open.

    Closing a context frees forgotten objects; an open one shows them.
    """
    on_a_veth()
    context = Context(name=DEVICE)
    port = VerbsPort(context=context, pd=PD(context))
    config = EndpointConfig("cycle", DEVICE)
    _report(int(cycles), int(handles), lambda: Endpoint(config, port=port))
    port.close()
    context.close()


def _report(cycles: int, handles: int, endpoint: Callable[[], Endpoint]) -> None:
    for _ in range(20):  # allocates what the process allocates once
        _cycle(endpoint(), handles)
    before = _measure()
    made = sum(_cycle(endpoint(), handles) for _ in range(cycles))
    report({"before": before, "after": _measure(), "handles": made})


def _cycle(endpoint: Endpoint, handles: int) -> int:
    """Open, make address handles, send, close; return the number of handles."""
    frame = bytes.fromhex("08060000") + bytes(56)

    def send_to(numbers: range) -> None:
        for number in numbers:
            group = Gid.parse(f"ff12:401b:ffff::e000:{number:x}")
            endpoint._pump.send_frame(Destination(group, Qpn(MULTICAST_QPN)), frame)

    with endpoint:
        # A pump that gets no time loses what its memory has no room for, so few frames wait at once.
        for first in range(0, handles, BATCH):
            last = min(first + BATCH, handles)
            endpoint._call(partial(send_to, range(first, last)))
            deadline = time.monotonic() + SEND_S
            while endpoint._pump.counters()["tx_packets"] < last:
                assert time.monotonic() < deadline, endpoint.stats()
                time.sleep(0.002)
        fabric = endpoint._opened().fabric
    counters = fabric.counters()
    assert counters["handles_created"] == counters["handles_destroyed"] >= handles, counters
    return counters["handles_created"]


def _measure() -> dict[str, object]:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what the allocator keeps for later is no leak, and varies
    with open("/proc/self/statm") as statm:
        rss_kib = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024
    return {
        "resources": resources(),
        "rss_kib": rss_kib,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }
