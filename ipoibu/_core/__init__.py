# SPDX-License-Identifier: BSD-2-Clause
"""The C core: its fabrics, packet devices and the pump, each an extension module (ext/python)."""

from typing import Final

from ipoibu._core.device import *  # noqa: F403
from ipoibu._core.device import DEVICE_FEATURES
from ipoibu._core.fabric import *  # noqa: F403
from ipoibu._core.fabric import FABRIC_FEATURES
from ipoibu._core.pump import *  # noqa: F403

FEATURES: Final[dict[str, bool]] = {**FABRIC_FEATURES, **DEVICE_FEATURES}
