# SPDX-License-Identifier: BSD-2-Clause
"""Configurations of daemons as they stand on docs/use/routers.md."""

from __future__ import annotations

from tests.doubles.page_blocks import blocks

PAGE = "docs/use/routers.md"


def config(title: str) -> str:
    """The block of the page whose first line, a comment, is `title`."""
    (block,) = (each for each in blocks(PAGE, "text") if each.lines[0] == title)
    return block.text


def swapped(text: str, number: int) -> str:
    """The configuration of the second host, made of the first one's: the page names both by their numbers, as
    the last digit of an address or of an AS number."""
    if number == 1:
        return text
    for ending in ("10.255.9.{}", "fe80::200:ff:fe00:{}", "as 6500{}", "router bgp 6500{}"):
        one, other = ending.format(1), ending.format(2)
        text = text.replace(one, "\0").replace(other, one).replace("\0", other)
    return text
