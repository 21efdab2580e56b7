# SPDX-License-Identifier: BSD-2-Clause
"""A packet device in C on a link with the kernel's stack: super-frames cross whole, both ways."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab import NamespaceLab
from tests.doubles.c_example import build

pytestmark = pytest.mark.netns

PROGRAM: Final = Path(__file__).with_name("c_device_host.py")


def test_an_echo_in_c_takes_and_gives_super_frames(tmp_path: Path) -> None:
    """The kernel's super-frames of 42 000 bytes come back as they went, in fewer pieces than packets."""
    build(tmp_path)
    with NamespaceLab(start=False) as lab:
        lab.hosts[0].start()
        echo = str(lab.hosts[1].ipv4)
        with lab.hosts[1].namespace.popen(
            [sys.executable, str(PROGRAM), "serve", str(tmp_path), echo],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as serving:
            assert serving.stdin is not None
            assert serving.stdout is not None
            try:
                assert str(serving.stdout.readline()) == "ready\n"
                words = [sys.executable, str(PROGRAM), "ask", echo.partition("/")[0]]
                asked = lab.hosts[0].run(words, timeout_s=120)
                assert asked.returncode == 0, asked.stderr
            finally:
                serving.stdin.close()
            served = json.loads(serving.stdout.readline())
    said = json.loads(asked.stdout)
    assert said["rounds"] == 20
    assert said["reads"] < 20 * 30
    assert served["tx_super_frames"] >= 20
    assert served["rx_merged_frames"] >= 20
