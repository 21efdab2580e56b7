# SPDX-License-Identifier: BSD-2-Clause
"""The records between the engine and the pump: C declares them once, and Python agrees with C."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from ipoibu import _core
from ipoibu.endpoint.datapath.tx_queues import TxQueues
from ipoibu.endpoint.interface import shell
from ipoibu.proto.effects import Effect, NeighAction
from ipoibu.wire import ndisc

ROOT = Path(__file__).parents[3]
HEADER = (ROOT / "ext/pump/records/pump_abi.h").read_text(encoding="utf-8")
MODULE = (ROOT / "ext/python/pump.pyx").read_text(encoding="utf-8")
COMMANDS = re.findall(
    r"\bX\((\w+), (\w+)\)", HEADER.split("#define IPU_COMMANDS(X)")[1].split("\n\n")[0]
)


def test_the_engine_numbers_neighbour_actions_as_the_pump_does() -> None:
    for action in NeighAction:
        assert action == getattr(_core, f"NEIGH_{action.name}")


@pytest.mark.parametrize("script", ["stubs.py", "c_limits.py"])
def test_stubs_and_shared_numbers_are_made_from_the_sources(script: str) -> None:
    subprocess.run([sys.executable, ROOT / "ext/python" / script, "--check"], check=True)


def test_each_command_has_a_handler_and_a_method() -> None:
    """Three places: the struct and its line in the header, the handler, the method."""
    handlers = (ROOT / "ext/pump/loop/command.c").read_text(encoding="utf-8")
    assert len(COMMANDS) >= 12
    for name, handler in COMMANDS:
        assert f"do_{handler}(" in handlers
        assert f"self.put(IPU_COMMAND_{name}, " in MODULE
        assert callable(getattr(_core.Pump, handler))


def test_each_event_has_a_line_of_the_shell() -> None:
    """Two places: its line in the header, which makes its constant, and what becomes of it."""
    assert len(_core.EVENTS) >= 12
    for name, number in _core.EVENTS.items():
        assert getattr(_core, f"EVENT_{name}") == number
    assert set(shell.EVENTS) == set(_core.EVENTS.values())


def test_the_engine_reads_each_icmpv6_message_that_the_pump_gives_it() -> None:
    header = (ROOT / "ext/pump/packets/classify.h").read_text(encoding="utf-8")
    rows = re.findall(r"\bX\(\w+, (\d+), IPU_TX_\w+, (IPU_RX_\w+), IPU_ICMP6_\w+\)", header)
    assert len(rows) >= 9
    assert {int(kind) for kind, of_link in rows if of_link == "IPU_RX_ENGINE"} == set(ndisc.Kind)


def test_each_member_of_an_event_is_decoded() -> None:
    decoder = MODULE.split("cdef void decode(")[1].split("\n\n\n")[0]
    members = HEADER.split("#define IPU_EVENT_MEMBERS(X)")[1].split("\n\n")[0]
    names = re.findall(r"X\((\w+)\)", members)
    assert len(names) >= 8
    for name in names:
        assert name == "data" or re.search(rf"\bIPU_EVENT_OF_{name}:", decoder)


def test_each_effect_has_one_line_of_the_shell() -> None:
    assert set(shell.EFFECTS) ^ set(shell.COMMANDS) == set(get_args(Effect))
    assert not set(shell.EFFECTS) & set(shell.COMMANDS)


class Recorder:
    """A pump that keeps what it is commanded."""

    event_fd = capture_fd = property(lambda self: self._fds[0])

    def __init__(self, fd: int) -> None:
        self._fds = (fd,)
        self.commands: list[tuple[bytes, int]] = []

    def route_del(self, prefix: bytes, prefix_len: int) -> None:
        self.commands.append((prefix, prefix_len))

    def close(self) -> None: ...


def test_a_command_that_changes_a_table_goes_to_every_queue() -> None:
    read, write = os.pipe()
    pumps = [Recorder(read), Recorder(write)]
    queues = TxQueues(pumps)  # type: ignore[arg-type]
    queues.route_del(bytes(16), 96)
    assert [pump.commands for pump in pumps] == [[(bytes(16), 96)]] * 2
    with pytest.raises(AttributeError, match="no command 'route_dell'"):
        queues.route_dell(bytes(16), 96)
    queues.close()
