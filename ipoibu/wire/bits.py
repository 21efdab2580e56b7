# SPDX-License-Identifier: BSD-2-Clause
"""Fields of odd widths in one number, the most significant first."""

from __future__ import annotations


def join(*fields: tuple[int, int]) -> int:
    """Return the number that (value, width in bits) pairs make; `ValueError` for a value that
    exceeds its width."""
    word = 0
    for value, width in fields:
        if not 0 <= value < 1 << width:
            raise ValueError(f"{value:#x} does not fit {width} bits")
        word = word << width | value
    return word


def split(word: int, *widths: int) -> tuple[int, ...]:
    """Return the fields of a number that has as many bits as the sum of the widths."""
    fields = []
    for width in reversed(widths):
        fields.append(word & ((1 << width) - 1))
        word >>= width
    return tuple(reversed(fields))
