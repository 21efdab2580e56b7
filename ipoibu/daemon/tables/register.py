# SPDX-License-Identifier: BSD-2-Clause
"""The register of every table, queue and list that somebody outside of the process can fill.

SECURITY.md shows it (docs/make/list_tables.py). tests/unit/tables fills each row to twice its cap;
it also finds the containers of the code that are neither here nor in its list of those that nobody outside
can fill.
"""

from __future__ import annotations

from typing import Final

from ipoibu.daemon.tables.core import CORE
from ipoibu.daemon.tables.engine import ENGINE
from ipoibu.daemon.tables.ethernet import ETHERNET
from ipoibu.daemon.tables.host import HOST
from ipoibu.daemon.tables.peers import CONNECTIONS, MANAGEMENT, MESH
from ipoibu.daemon.tables.sockets import SOCKETS

TABLES: Final = (
    *ENGINE,
    *ETHERNET,
    *CONNECTIONS,
    *MESH,
    *MANAGEMENT,
    *HOST,
    *SOCKETS,
    *CORE,
)
"""Every row; names are unique."""
