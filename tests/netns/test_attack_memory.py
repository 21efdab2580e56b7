# SPDX-License-Identifier: BSD-2-Clause
"""An attack on a daemon that gets no more memory: it ends in order, with one line, or goes on."""

from __future__ import annotations

import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.daemon.control.client import Client
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import INTERFACE, Host
from tests.attack import attacks
from tests.attack.attacker import Attacker
from tests.attack.attacks import Target

pytestmark = [pytest.mark.netns, pytest.mark.serial]

Until = Callable[..., Any]

RATE: Final = 20_000


def _freeze(host: Host) -> None:
    """Give the daemon no more writable memory than it has."""
    status = Path(f"/proc/{host.pid}/status").read_text()
    size = re.search(r"VmData:\s+(\d+)", status)
    assert size is not None
    assert host.pid is not None
    resource.prlimit(host.pid, resource.RLIMIT_DATA, (int(size[1]) * 1024,) * 2)


def test_a_daemon_without_memory_ends_with_one_line_and_starts_again(
    attacker: Attacker, until: Until
) -> None:
    with NamespaceLab() as lab:
        near, far = lab.hosts
        target = Target.of(far.ask("show"), far.ipv4.ip, far.ipv6.ip, 0)
        with Client(INTERFACE, far.namespace.path) as deaf:
            deaf.begin_capture(65536)  # the daemon keeps for it what it does not read
            _freeze(far)
            with attacker.flood(near, far, attacks.introductions(target), RATE):
                last = until(far.ended, 120.0)
        assert last.startswith("ib0: there is no more memory: raise the limit")
        assert "Traceback" not in far.log()
        assert far.log().count("memory") == 1
        far.stop()
        far.start()
        ping = ["ping", "-c1", "-W1", str(far.ipv4.ip)]
        until(lambda: near.run(ping).returncode == 0)
