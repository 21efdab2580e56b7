# SPDX-License-Identifier: BSD-2-Clause
"""What machines wrote to the directory they share with the test."""

import json
from pathlib import Path
from typing import Any


def load(directory: Path, name: str) -> Any:
    """Return what is in NAME.json."""
    return json.loads((directory / f"{name}.json").read_text())


def received_bytes(directory: Path, name: str) -> int:
    """Return how much the receiver of an iperf3 client's report NAME.json counted.

    The receiver stops at the client's last word, so up to a socket's buffer of what was sent is missing.
    """
    return int(load(directory, name)["end"]["sum_received"]["bytes"])
