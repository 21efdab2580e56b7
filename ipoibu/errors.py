# SPDX-License-Identifier: BSD-2-Clause
"""The two families of errors: what a peer did (`BadFrame`) and what we or the user did (`IpoibuError`).

A `BadFrame` never leaves the library: whoever reads a peer's bytes turns it into a counter by reason.
Every `IpoibuError` carries the exit code the command line ends with, and a message of one line that
says what is wrong, where, and what to do.
"""

from __future__ import annotations


class BadFrame(ValueError):
    """A peer's bytes are not what they claim to be; `reason` is the drop counter's name.

    `reason` is a short snake_case word from a fixed set per codec, never text from the peer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class IpoibuError(Exception):
    """Base of every error that a user of the library can meet; `exit_code` is the command line's."""

    exit_code = 1


class UsageError(IpoibuError):
    """The caller's words are wrong: a malformed CIDR, P_Key, MTU or option."""

    exit_code = 2


class NoSuchDevice(IpoibuError):
    """The device, port or interface that was named does not exist."""

    exit_code = 3


class NotPermitted(IpoibuError):
    """The process lacks a privilege (CAP_NET_ADMIN, locked memory, a device node)."""

    exit_code = 4


class LinkError(IpoibuError):
    """The device is there but cannot carry IPoIB: no link-local address, MTU too small, port down."""


class Closed(IpoibuError):
    """The endpoint was closed while, or before, it was used."""
