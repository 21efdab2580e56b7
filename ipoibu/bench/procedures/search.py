# SPDX-License-Identifier: BSD-2-Clause
"""The binary search of RFC 2544 §26.1: the highest rate, or the longest burst, that still passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

RESOLUTION: Final = 0.02  # of the result


def highest(
    passes: Callable[[float], bool],
    top: float,
    *,
    bottom: float = 0.0,
    resolution: float = RESOLUTION,
) -> float:
    """Return the highest value that passed, between `bottom`, which is not tried, and `top`; 0 if none.

    `top` is tried first. A search ends when what failed is within `resolution` of what passed, or
    below `bottom`.
    """
    if passes(top):
        return top
    low, high = 0.0, top
    while high - low > resolution * high and high > bottom:
        middle = max((low + high) / 2, bottom)
        if passes(middle):
            low = middle
        elif middle <= bottom:
            break
        else:
            high = middle
    return low
