# SPDX-License-Identifier: BSD-2-Clause
"""The network managers of docs/use/import.md keep a TUN, to which ipoibu attaches as an ordinary user."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ipoibu
from tests.netns.ordinary_user import IPOIBU

pytestmark = pytest.mark.netns

PAGE: Final = Path(__file__).parents[2] / "docs/use/import.md"
SCRIPT: Final = Path(__file__).with_name("attached_tun.sh")
PATHS: Final = {
    "NetworkManager": ["NetworkManager/system-connections/ib0.nmconnection"],
    "networkd": ["systemd/network/ib0.netdev", "systemd/network/ib0.network"],
    "netplan": ["systemd/network/ib0.netdev", "netplan/ib0.yaml"],
    "ifupdown": ["network/interfaces"],
}
NOBODY: Final = 65534


def files_of_the_page() -> dict[str, str]:
    """The files whose blocks begin with their name, by their path below /etc."""
    found = re.findall(
        r"^```\w*\n(# /etc/(\S+)\n.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    return {path: text for text, path in found}


def test_every_file_of_the_page_is_tried() -> None:
    assert set(files_of_the_page()) == {path for paths in PATHS.values() for path in paths}


@pytest.mark.parametrize("manager", sorted(PATHS))
def test_a_manager_keeps_the_tun(tmp_path: Path, manager: str) -> None:
    files = files_of_the_page()
    for name in PATHS[manager]:
        path = tmp_path / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name])
        path.chmod(0o600 if manager == "NetworkManager" else 0o644)
    become = f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"
    bare = "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"
    unshare = ["unshare", "-m", "-n", "-p", "-f", "-i", "-u", "--kill-child"]
    done = subprocess.run(
        [*unshare, "sh", SCRIPT, tmp_path, manager, "setpriv", *become, *bare, *IPOIBU],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHON": sys.executable,
            "PYTHONPATH": str(Path(ipoibu.__file__).parent.parent),
            "container": "other",
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    parts = dict(re.findall(r"^--- (\w+)\n(.*?)(?=^---|\Z)", done.stdout, re.M | re.S))
    assert list(parts) == ["before", "first", "second", "after"], done.stdout
    for part in parts.values():
        assert "10.0.0.1/24" in part
        assert "mtu 1424" in part
        assert "10.9.0.0/16 via 10.0.0.2" in part
