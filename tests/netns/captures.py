# SPDX-License-Identifier: BSD-2-Clause
"""Programs that write and read captures, as root of the machine and as root of a user namespace.

tcpdump becomes another user where it is root, which a user namespace with one user refuses.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

# It reads as nobody: it writes no file, and opens no device.
TCPDUMP: Final = ("unshare", "--user", "tcpdump")

WRITES: Final = "File:"  # a line of dumpcap begins with it, once packets reach the file


def dumpcap(netdev: str, file: Path) -> list[str]:
    """The words that write the packets of a net device to or from port 4791 to `file`, as pcap."""
    buffer = ["-B", "16"]  # MiB
    return ["dumpcap", "-q", "-P", *buffer, "-i", netdev, "-w", str(file), "-f", "udp port 4791"]


def wait_written(file: Path) -> None:
    """Wait until dumpcap has written all packets so far, which it does every half a second."""
    size = -1
    while size != file.stat().st_size:
        size = file.stat().st_size
        time.sleep(5)  # it may get no CPU
