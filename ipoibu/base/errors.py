# SPDX-License-Identifier: BSD-2-Clause
"""The two families of errors: a peer's (`BadFrame`), and ours or the user's (`IpoibuError`).

A `BadFrame` never leaves the library: the code that reads a peer's bytes counts it by its reason.
Every `IpoibuError` has the exit code of the command line, and a message of one line with the fault,
its place and its remedy.
"""

from __future__ import annotations


class BadFrame(ValueError):
    """A peer's bytes are invalid; `reason` is the drop counter's name.

    `reason` is a short snake_case name from the codec's fixed set, never text from the peer.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class IpoibuError(Exception):
    """Base of every error that the library raises to its user; `exit_code` is the command line's."""

    exit_code = 1


class UsageError(IpoibuError):
    """The caller gave a malformed CIDR, P_Key, MTU or option."""

    exit_code = 2


class NoSuchDevice(IpoibuError):
    """The named device, port or interface does not exist."""

    exit_code = 3


class NotPermitted(IpoibuError):
    """The process lacks a privilege (CAP_NET_ADMIN, locked memory, a device node)."""

    exit_code = 4


class LinkError(IpoibuError):
    """The device exists but cannot carry IPoIB: no link-local address, MTU too small, port down."""


class NotReady(LinkError):
    """The device cannot carry IPoIB yet: it is down, or its address is not usable. Waiting may help."""


class Closed(IpoibuError):
    """The caller uses an endpoint that is closed, or that another thread closes meanwhile."""
