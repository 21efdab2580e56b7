# SPDX-License-Identifier: BSD-2-Clause
"""asyncio without TLS, for processes of ours: they have no use for it, and OpenSSL is 4 MiB of their memory.

asyncio works without the module `ssl`, as in a Python that was built without OpenSSL. A program that embeds
an endpoint loads asyncio itself, and has TLS.
"""

from __future__ import annotations

import sys
from importlib import import_module

_ASYNCIO = "asyncio"
_TLS = "ssl"


def load_plain_asyncio() -> None:
    """Load asyncio for the whole process, without `ssl`, which a later import loads as ever. Does nothing if
    either is loaded already."""
    if _ASYNCIO in sys.modules or _TLS in sys.modules:
        return
    sys.modules[_TLS] = None  # type: ignore[assignment]  # its import fails
    try:
        import_module(_ASYNCIO)
    finally:
        del sys.modules[_TLS]
