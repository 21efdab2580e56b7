# SPDX-License-Identifier: BSD-2-Clause
"""The core is readable without the rest: two endpoints exchange packets, and load nothing else.

The docstring of each room of the core says "Part of the core", and names the files that are not.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.unit.test_layers import COMPILED, CORE
from tests.unit.test_rooms import ROOMS, docstring

IS_CORE: Final = re.compile(r"^Part of the core(?:, but for (.+?))?\.$", re.MULTILINE | re.DOTALL)

# A file of the core that only a type checker loads.
CONTRACT: Final = "ipoibu.endpoint.contract"

# Rooms that no plain pair may ever load; the docstrings say it of all others.
NEVER: Final = (
    "proto.dhcp",
    "proto.ethernet",
    "proto.sa",
    "proto.cm",
    "proto.rc",
    "proto.mesh",
    "fabric.sa",
    "fabric.cm",
    "fabric.mesh",
    "fabric.unicast",
    "fabric.verbs",
    "endpoint.dhcp",
    "endpoint.rails",
    "host",
    "sandbox",
    "daemon",
    "importer",
    "aio",
    "doctor",
    "rootless",
    "lab",
    "bench",
    "conform",
    "cli",
)

PAIR: Final = """
import json, sys
from ipoibu import Endpoint, EndpointConfig, Gid
from ipoibu.fabric.memory import MemoryPort, MemorySwitch

switch = MemorySwitch()
pair = []
for number in 1, 2:
    port = MemoryPort(switch, Gid.parse(f"fe80::{number}"))
    endpoint = Endpoint(EndpointConfig(f"ib{number}", "memory"), port=port)
    endpoint.open()
    for address in f"10.0.0.{number}/24", f"fd00::{number}/64":
        endpoint.address_added(address)
    pair.append(endpoint)
alice, bob = pair
for endpoint in pair:
    assert endpoint.wait_up(60)
head = "45000019000000004011" "0000" "0a0000%02x0a0000%02x"
tail = b"hello"
alice.send([bytes.fromhex(head % (1, 2)) + tail])
assert bob.recv(timeout=30)[0].endswith(tail)
bob.send([bytes.fromhex(head % (2, 1)) + tail])
assert alice.recv(timeout=30)[0].endswith(tail)
methods = [alice.ping(ip, timeout=30)["method"] for ip in ("10.0.0.2", "fd00::2")]
assert methods == ["arp", "nd"], methods
for endpoint in pair:
    endpoint.close()
print(json.dumps([name for name in sys.modules if name.startswith("ipoibu.")]))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """The modules that a pair has loaded at its end, in an interpreter of its own."""
    command = (sys.executable, "-c", PAIR)
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    return set(json.loads(output))


@cache
def core() -> dict[str, set[str]]:
    """The rooms of the core, each with its files."""
    rooms = {}
    for room, directory in ROOMS.items():
        found = IS_CORE.search(docstring(room))
        if found is None:
            continue
        files = {path.stem for path in Path(directory).glob("*.py")} - {"__init__"}
        others = set(re.findall(r"`(\w+)`", found[1] or ""))
        assert others <= files, f"{room} has no {others - files}"
        rooms[room] = files - others
    return rooms


def test_a_pair_loads_the_core_and_nothing_else(loaded: set[str]) -> None:
    modules = {f"{room}.{name}" for room, files in core().items() for name in files}
    assert (loaded | {CONTRACT}) - COMPILED - {CORE} == modules | set(core())


def test_no_room_of_the_core_is_one_that_a_plain_pair_never_loads() -> None:
    assert not [room for room in core() for it in NEVER if f"{room}.".startswith(f"ipoibu.{it}.")]
    assert {f"ipoibu.{it}" for it in NEVER} <= set(ROOMS)
