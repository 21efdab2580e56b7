# SPDX-License-Identifier: BSD-2-Clause
"""IP over InfiniBand in user space: the public names.

Python loads a name at its first use, so that `ipoibu doctor` can report why a C core does not load,
and commands that only ask a daemon start at once.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipoibu._core import CDevice
    from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
    from ipoibu.base.errors import (
        Closed,
        IpoibuError,
        LinkError,
        NoSuchDevice,
        NotPermitted,
        NotReady,
        UsageError,
    )
    from ipoibu.endpoint.api.endpoint import Endpoint
    from ipoibu.endpoint.callbacks import Callbacks
    from ipoibu.endpoint.config import EndpointConfig

__all__ = [
    "CDevice",
    "Callbacks",
    "Closed",
    "Endpoint",
    "EndpointConfig",
    "Gid",
    "HwAddr",
    "IpoibuError",
    "LinkError",
    "NoSuchDevice",
    "NotPermitted",
    "NotReady",
    "PKey",
    "Qpn",
    "UsageError",
    "__version__",
    "get_include",
]

__version__: str

_HOMES = {
    "ipoibu._core": ("CDevice",),
    "ipoibu.base.addr": ("Gid", "HwAddr", "PKey", "Qpn"),
    "ipoibu.endpoint.api.endpoint": ("Endpoint",),
    "ipoibu.endpoint.callbacks": ("Callbacks",),
    "ipoibu.endpoint.config": ("EndpointConfig",),
    "ipoibu.base.errors": (
        "Closed",
        "IpoibuError",
        "LinkError",
        "NoSuchDevice",
        "NotPermitted",
        "NotReady",
        "UsageError",
    ),
}


def __getattr__(name: str) -> Any:  # PEP 562
    if name == "__version__":
        from importlib.metadata import version  # loads a parser of mails

        return version("ipoibu")
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def get_include() -> str:
    """Return the directory of the C header <ipoibu/packet_device.h>, and of ipoibu.pc for pkg-config."""
    return str(Path(__file__).parent / "include")
