# SPDX-License-Identifier: BSD-2-Clause
"""keepalived in hosts of a lab and in pods."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.netns.programs import Station, namespace_of


@contextmanager
def keepalived(host: Station, text: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run keepalived in the foreground with this configuration, and a directory of its own."""
    with tempfile.TemporaryDirectory() as work:
        config = Path(work, "keepalived.conf")
        config.write_text(text)
        command = ["keepalived", "--dont-fork", "--log-console", "--vrrp", "-f", str(config)]
        command += ["-p", f"{work}/pid", "-r", f"{work}/vrrp", "-c", f"{work}/checkers"]
        process = namespace_of(host).popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()
            process.wait(60)
