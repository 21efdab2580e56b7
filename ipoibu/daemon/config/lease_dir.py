# SPDX-License-Identifier: BSD-2-Clause
"""The directory that keeps DHCP leases over restarts: /var/lib/ipoibu, or the one of an ordinary user.

systemd names the one of a unit with StateDirectory= in $STATE_DIRECTORY.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

from ipoibu.sandbox.user import User

_log: Final = logging.getLogger(__name__)


def default_lease_dir() -> Path:
    given = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given)
    if os.geteuid() == 0:
        return Path("/var/lib/ipoibu")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local/state") / "ipoibu"


def make_lease_dir(directory: Path, user: User | None) -> None:
    """Make the directory, for `user` if the process becomes that user; log why it cannot."""
    try:
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        if user is not None and not any(directory.iterdir()):
            os.chown(directory, user.uid, user.gid)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        _log.warning("%s: leases of DHCP are not kept over restarts: %s", directory, reason)
