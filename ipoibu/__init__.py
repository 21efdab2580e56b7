# SPDX-License-Identifier: BSD-2-Clause
"""IP over InfiniBand in user space: the public names."""

from importlib.metadata import version

from ipoibu.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.endpoint import Endpoint, EndpointConfig
from ipoibu.errors import (
    Closed,
    IpoibuError,
    LinkError,
    NoSuchDevice,
    NotPermitted,
    UsageError,
)

__all__ = [
    "Closed",
    "Endpoint",
    "EndpointConfig",
    "Gid",
    "HwAddr",
    "IpoibuError",
    "LinkError",
    "NoSuchDevice",
    "NotPermitted",
    "PKey",
    "Qpn",
    "UsageError",
    "__version__",
]

__version__ = version("ipoibu")
