# SPDX-License-Identifier: BSD-2-Clause
"""Reads the lines of the control socket as a client does."""

from __future__ import annotations

import asyncio
import json
from typing import Any


def without_signs(data: bytes) -> list[dict[str, Any]]:
    """Return the lines, without those that only say that the daemon works."""
    lines = [json.loads(line) for line in data.splitlines()]
    return [line for line in lines if "working" not in line]


async def next_line(reader: asyncio.StreamReader) -> dict[str, Any]:
    while not (lines := without_signs(await reader.readline())):
        pass
    return lines[0]
