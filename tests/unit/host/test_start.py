# SPDX-License-Identifier: BSD-2-Clause
"""The start loads few modules, because peers wait for it at each restart."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = (
    "import ipoibu.cli.up, ipoibu.daemon.daemon, ipoibu.endpoint.api.endpoint, ipoibu.host.netlink"
)


def run(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "pyroute2",
        "importlib.metadata",
        "difflib",
        "hashlib",
        "ipoibu.fabric.cm.service",
        "ipoibu.fabric.mesh.peer_list",
        "ipoibu.fabric.sa.client",
        "ipoibu.fabric.unicast.fabric",
        "ipoibu.proto.ethernet.host",
        "ipoibu.proto.rc.policy",
        "ipoibu.wire.dhcp",
        "ipoibu.wire.dhcp6",
    ],
)
def test_the_start_does_not_load_what_few_interfaces_need(module: str) -> None:
    run(f"{START}; import sys; assert {module!r} not in sys.modules")
