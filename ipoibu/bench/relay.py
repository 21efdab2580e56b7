# SPDX-License-Identifier: BSD-2-Clause
"""A process that joins a TUN in each of two network namespaces: `relay INTERFACE NETNS NETNS`.

It prints "ready" when both interfaces exist. They end with the process.
"""

from __future__ import annotations

import os
import sys

from ipoibu import _core
from ipoibu.host.tun import Tun
from ipoibu.lab.namespace import LabNamespace


def main(arguments: list[str]) -> None:
    name, *paths = arguments
    spaces = [LabNamespace(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC)) for path in paths]
    first, second = (space.inside(lambda: Tun.open(name)) for space in spaces)
    print("ready", flush=True)
    _core.relay(first.fd, second.fd)


if __name__ == "__main__":
    main(sys.argv[1:])
