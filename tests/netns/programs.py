# SPDX-License-Identifier: BSD-2-Clause
"""Programs in hosts of a lab and in pods, with directories of their own where they write to the system's."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace

Station = Host | LabNamespace

_PRIVATE = """
mount --make-rprivate / &&
for at in /run /var/lib /var/log /var/tmp; do mount -t tmpfs none $at || exit; done &&
mkdir -p /run/dbus /run/avahi-daemon /var/lib/chrony /var/lib/nginx /var/log/nginx && exec "$@"
"""


def namespace_of(station: Station) -> LabNamespace:
    return station.namespace if isinstance(station, Host) else station


@contextmanager
def running(station: Station, work: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run programs with /run, /var/lib, /var/log and /var/tmp of their own; end all of them. They write to
    NAME.log in `work`."""
    with (work / f"{station.name}.log").open("ab") as log:
        process = namespace_of(station).popen(
            ["unshare", "-m", "sh", "-c", _PRIVATE, "sh", *command],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def enter(station: Station, process: subprocess.Popen[bytes], *command: str) -> str:
    """Run a command where `process` runs, and return its output."""
    return station.run(["nsenter", "-m", "-t", str(process.pid), *command]).stdout
