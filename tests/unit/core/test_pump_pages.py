# SPDX-License-Identifier: BSD-2-Clause
"""Huge pages under the frames: an idle pump asks for none, and a stream for all."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

PAIR: Final = """
import json, re
from pathlib import Path
from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

def huge_mappings():
    smaps = Path("/proc/self/smaps").read_text(encoding="utf-8")
    return sum("hg" in flags.split() for flags in re.findall("VmFlags:(.*)", smaps))

switch = MemorySwitch()
pair = []
for number in 1, 2:
    port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
    endpoint = Endpoint(EndpointConfig(f"ib{number}", "memory"), port=port)
    endpoint.open()
    endpoint.address_added(f"10.0.0.{number}/24")
    pair.append(endpoint)
alice, bob = pair
assert all(endpoint.wait_up(60) for endpoint in pair)
packet = bytes.fromhex("450005dc000000004011" "0000" "0a000001" "0a000002") + bytes(1480)
found = [huge_mappings()]
alice.send([packet])
assert bob.recv(timeout=30)
found.append(huge_mappings())
while huge_mappings() == 0:
    alice.send([packet] * 64)
    assert bob.recv(timeout=30)
print(json.dumps(found))
for endpoint in pair:
    endpoint.close()
"""


def test_frames_ask_for_huge_pages_with_the_first_stream() -> None:
    """The test does not end where no stream makes the pump ask."""
    command = (sys.executable, "-c", PAIR)
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    assert json.loads(output) == [0, 0]
