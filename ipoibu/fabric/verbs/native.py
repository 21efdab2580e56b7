# SPDX-License-Identifier: BSD-2-Clause
"""The optional compiled module of the RDMA devices."""

from __future__ import annotations

import importlib
from types import ModuleType

from ipoibu.base.distribution import install
from ipoibu.base.errors import NoSuchDevice


def native() -> ModuleType:
    """Import the module; `NoSuchDevice` if it was not built, or libibverbs is missing."""
    try:
        return importlib.import_module("ipoibu._verbs")
    except ModuleNotFoundError as error:
        raise NoSuchDevice(
            "RDMA devices need ipoibu's verbs extension, which was not built: "
            f"{install('verbs headers')}, then install ipoibu again"
        ) from error
    except ImportError as error:
        raise NoSuchDevice(
            f"ipoibu's verbs extension does not load ({error}): {install('libibverbs')}"
        ) from error
