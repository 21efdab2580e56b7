# SPDX-License-Identifier: BSD-2-Clause
"""Connected mode on the kernel's Soft-RoCE, by librdmacm, and between it and the built-in HCA."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .runner import run, shell

pytestmark = pytest.mark.lab

PRELUDE = (
    '. "$LAB_INSIDE/../scenarios/verbs_host.sh"\n. "$LAB_INSIDE/../scenarios/connected_host.sh"\n'
)
MTU = 65520


def host(device: str, command: str) -> list[str]:
    """A guest that runs a function of connected_host.sh where the device is."""
    return shell(f"{PRELUDE}as_host {device} {command}")


def load(directory: Path, name: str) -> Any:
    return json.loads((directory / f"{name}.json").read_text())


def live(directory: Path, name: str, role: str) -> list[dict[str, Any]]:
    found = load(directory, f"conn-{name}")
    rows = found[0]["connections"] if found and "connections" in found[0] else found
    return [row for row in rows if row["role"] == role and row["state"] == "live"]


@pytest.mark.parametrize(
    ("first", "second"),
    [("rxe0", "rxe0"), ("rxe0", "soft:vec0"), ("soft:vec0", "rxe0")],
)
def test_two_hosts_converse_by_connection(
    lab_kernel: Path, tmp_path: Path, first: str, second: str
) -> None:
    commands = [host(first, f"connect {first}"), host(second, f"connect {second}")]
    results = run(lab_kernel, commands, directory=tmp_path, timeout_s=150)
    for result in results:
        pings = re.findall(r"(\d) packets transmitted, (\d) received", result.check().output)
        assert len(pings) == 4, result.output
        assert all(sent == received for sent, received in pings[1:]), result.output
