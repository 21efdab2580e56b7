# SPDX-License-Identifier: BSD-2-Clause
"""Labs of ordinary users: in namespaces where the user is root, below a /run of their own."""

from __future__ import annotations

from ipoibu.lab.namespace import mount_own_run
from ipoibu.rootless import namespaces
from ipoibu.sandbox.capabilities import CAP_SYS_ADMIN, permitted


def enter_user_namespace() -> bool:
    """Make a process that may not make network namespaces, and has one thread, root of a user, network and
    mount namespace of its own. Return whether that was necessary.

    Nothing outside changes: the namespaces of its labs, and their control sockets, are in a /run that
    this process and its children alone see. `NotPermitted` names the setting that forbids it.
    """
    if permitted() >> CAP_SYS_ADMIN & 1:
        return False
    namespaces.become_root()
    mount_own_run()
    return True
