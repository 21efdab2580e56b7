# SPDX-License-Identifier: BSD-2-Clause
"""`--netns`: the interface in another network namespace than its device."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.control.socket_paths import link_outside
from ipoibu.daemon.daemon import Daemon
from ipoibu.daemon.handover.keeper import Keeper
from ipoibu.daemon.outside_threads import OutsideThreads
from ipoibu.daemon.privilege import confine_daemon
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.netns import OpenNamespace


def run_in_netns(
    config: InterfaceConfig,
    namespace: OpenNamespace,
    helper: NamespaceHelper | None,
    announce: Callable[[str], None],
    keeper: Keeper | None = None,
) -> None:
    """Run the interface in `namespace`, over a device of the caller's namespace, until it ends."""
    link = link_outside(config.name, os.getpid(), namespace.inode(), config.user)
    with link, OutsideThreads() as outside:
        namespace.enter()
        Daemon(
            config,
            announce=announce,
            confine=partial(confine_daemon, outside=outside),
            executor=outside,
            namespace=namespace.name,
            helper=helper,
            keeper=keeper,
        ).run()
