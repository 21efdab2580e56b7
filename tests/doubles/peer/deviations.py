# SPDX-License-Identifier: BSD-2-Clause
"""Every deviation that the host can have, with the one clause that it breaks."""

from __future__ import annotations

from typing import Final

DEVIATIONS: Final = {
    "ARP of hardware type 1": "R1",
    "ARP with another queue pair": "A1",
    "answers any hardware type": "R1",
    "learns nothing from a request": "R2",
}
