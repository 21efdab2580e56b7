# SPDX-License-Identifier: BSD-2-Clause
"""A wire that loses frames, and the capture that shows it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.lab import Lab

pytestmark = pytest.mark.lab

PINGS = 300


def frames(path: Path, filters: str) -> int:
    """Return the number of frames in a capture."""
    words = ["tshark", "-r", str(path), "-Y", filters, "-T", "fields", "-e", "frame.number"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return len(done.stdout.splitlines())


def test_a_fifth_of_the_frames_is_lost_and_the_capture_has_the_others(
    lab_kernel: Path, tmp_path: Path
) -> None:
    path = tmp_path / "wire.pcapng"
    with Lab(2, kernel=lab_kernel, impair="b:delay 1ms", capture=path) as lab:
        lab.a.succeed(f"ping -c 1 -W 10 {lab.b.ipv4}")
        shown = "tc qdisc show dev vec0"
        assert "delay 1ms" in lab.b.succeed(shown)
        assert "netem" not in lab.a.succeed(shown)
        lab.mend()
        lab.impair("loss 20%", "a")
        assert "netem" not in lab.b.succeed(shown)
        _, output = lab.a.execute(f"ping -q -c {PINGS} -i 0.002 {lab.b.ipv4}")
        match = re.search(rf"{PINGS} packets transmitted, (\d+) received", output)
        assert match is not None
        assert int(match[1]) < PINGS - 25  # five standard deviations
        lab.mend("a")
        assert "netem" not in lab.a.succeed(shown)
        with pytest.raises(UsageError, match="no machine 'c' but a, b"):
            lab.impair("loss 20%", "c")
        with pytest.raises(UsageError, match="Unknown loss parameter"):
            lab.impair("loss x")
    requests = frames(path, 'frame.interface_name == "a" && infiniband && icmp.type == 8')
    assert PINGS - 100 < requests <= PINGS - 25 + 1
    assert frames(path, 'frame.interface_name == "b" && infiniband && icmp.type == 0') > 100
    assert frames(path, "_ws.malformed") == 0
    assert lab.capture is not None
    assert (lab.capture.frames > requests, lab.capture.dropped_frames) == (True, 0)


def test_wrong_words_are_refused_before_anything_boots(tmp_path: Path) -> None:
    path = tmp_path / "wire.pcapng"
    with pytest.raises(UsageError, match="tc says: Unknown loss parameter"):
        Lab(2, impair="loss much", capture=path)
    assert not path.exists()
