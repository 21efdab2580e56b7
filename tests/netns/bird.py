# SPDX-License-Identifier: BSD-2-Clause
"""bird in hosts of a lab and in pods."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.netns.programs import Station, namespace_of


@contextmanager
def bird(host: Station, text: str) -> Iterator[Path]:
    """Run bird in the foreground with this configuration; yield its control socket."""
    with tempfile.TemporaryDirectory() as work:
        config, control = Path(work, "bird.conf"), Path(work, "bird.ctl")
        config.write_text(text)
        command = ["bird", "-f", "-c", str(config), "-s", str(control), "-P", f"{work}/pid"]
        process = namespace_of(host).popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            yield control
        finally:
            process.terminate()
            process.wait(60)


def ask(host: Station, control: Path, *words: str) -> str:
    """What `birdc` prints."""
    return host.run(["birdc", "-s", str(control), *words]).stdout
