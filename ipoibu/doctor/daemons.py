# SPDX-License-Identifier: BSD-2-Clause
"""The part of the checkup about the daemons of this network namespace: asks each of them once, for all parts
that explain running interfaces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ipoibu.base.errors import IpoibuError
from ipoibu.daemon.control.client import Client, NotAnswering
from ipoibu.daemon.control.socket_paths import names
from ipoibu.doctor.finding import Finding

CHECK: Final = "daemon"

Shown = Mapping[str, Mapping[str, Any]]
"""What `ipoibu show` says about each interface, by name."""


def daemons() -> tuple[Shown, list[Finding]]:
    """Return what the daemons show, as far as this user may ask them, and a finding about each that does not
    answer. An interface that is in another namespace has an @ in its name."""
    shown: dict[str, Mapping[str, Any]] = {}
    silent: list[Finding] = []
    running: list[str] = []
    with suppress(IpoibuError, OSError):
        running = names()
    for name in running:
        with suppress(IpoibuError, OSError):
            try:
                with Client(name) as client:
                    shown[name] = client.request("show")
            except NotAnswering as error:
                silent.append(Finding(CHECK, "fail", str(error)))
    return shown, silent
