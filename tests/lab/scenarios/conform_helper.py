# SPDX-License-Identifier: BSD-2-Clause
"""The helper of `ipoibu conform` in a lab: `serve` runs on the graded machine, `ask` on the tester's.

The scripts go over vec0, the wire's own Ethernet, which the tests leave alone.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Final

PORT: Final = 7070
SCRIPT_MAX: Final = 65536


def serve() -> None:
    """Run each script that a connection brings, and answer its exit status, as one byte."""
    with socket.create_server(("::", PORT), family=socket.AF_INET6) as server:
        while True:
            connection, _ = server.accept()
            with connection:
                script = connection.makefile("rb").read(SCRIPT_MAX)
                done = subprocess.run(["sh", "-c", script], stdin=subprocess.DEVNULL, check=False)
                connection.sendall(bytes((done.returncode & 0xFF,)))


def ask(host: str, script: str) -> int:
    """Have the script run, and return its exit status."""
    with socket.create_connection((host, PORT), timeout=30) as connection:
        connection.sendall(script.encode())
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1)[0]


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    sys.exit(ask(sys.argv[2], sys.argv[3]))
