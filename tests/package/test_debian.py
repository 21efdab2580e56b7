# SPDX-License-Identifier: BSD-2-Clause
"""The Debian package: built, and installed, upgraded and removed in bare roots of Debian 12 and 13."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

PROJECT: Final = Path(__file__).parents[2]
ENTER: Final = Path(__file__).with_name("debian_root.sh")
MIRROR: Final = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
VERSION: Final = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
WHEELS: Final = ("cython>=3.0,<3.2", "setuptools>=77", "packaging>=24.2", "wheel")
NEXT: Final = "99"  # the version of the upgrade


class Root:
    """A bare root of one release; `build` and `install` run on copies of it."""

    def __init__(self, suite: str, directory: Path) -> None:
        self._bare = directory / "bare"
        self._upper = directory
        self.shared = directory / "shared"
        self.shared.mkdir()
        unshare = ["unshare", "-m", "--propagation", "private"]
        command = ["debootstrap", "--variant=minbase", suite, str(self._bare), MIRROR]
        self._check([*unshare, *command])

    def run(self, copy: str, command: str, *, sysctl: bool = False) -> str:
        """Run a shell command on the copy of this name; return its output."""
        enter = ["sh", str(ENTER), str(self._bare), str(self._upper / copy), str(self.shared)]
        unshare = ["unshare", "-m", "-p", "-f", "-u", "-i", "--kill-child"]
        return self._check([*unshare, *enter, "sh", "-ec", command], SYSCTL="1" if sysctl else "")

    @staticmethod
    def _check(command: list[str], **environment: str) -> str:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, **environment},
        )
        assert done.returncode == 0, done.stdout[-8000:]
        return done.stdout


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Root:
    directory = tmp_path_factory.mktemp(request.param)
    root = Root(request.param, directory)
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
    subprocess.run([*pip, "-d", str(root.shared / "wheels"), *WHEELS], check=True)
    source = root.shared / "ipoibu"
    subprocess.run(["git", "clone", "-q", str(PROJECT), str(source)], check=True)
    return root


def test_the_package_is_built_and_lintian_is_content(root: Root) -> None:
    root.run(
        "build",
        "apt-get update -qq; apt-get install -qq -y --no-install-recommends lintian build-essential;"
        "cd /shared/ipoibu; apt-get build-dep -qq -y --no-install-recommends ./",
    )
    built = root.run("build", "cd /shared/ipoibu; dpkg-buildpackage -us -uc -b")
    assert "dpkg-deb: building package 'ipoibu'" in built
    said = root.run(
        "build", "lintian --allow-root --fail-on error,warning --pedantic /shared/*.changes"
    )
    assert re.findall(r"^[EWP]: .*$", said, re.MULTILINE) == []
    package = f"/shared/ipoibu_{VERSION}_amd64.deb"
    root.run(
        "build",
        f"cd /tmp; dpkg-deb -R {package} next; sed -i 's/^Version: .*/Version: {NEXT}/' next/DEBIAN/control;"
        f"dpkg-deb --root-owner-group -b next /shared/ipoibu_{NEXT}_amd64.deb",
    )


def test_the_package_works_in_a_bare_root(root: Root) -> None:
    root.run(
        "bare-install",
        "apt-get update -qq; apt-get install -qq -y --no-install-recommends iproute2 iputils-ping"
        f" libisal2 liburing2 /shared/ipoibu_{VERSION}_amd64.deb",
    )
    said = root.run("bare-install", "sh /shared/ipoibu/debian/tests/smoke", sysctl=True)
    assert " 0% packet loss" in said
    assert root.run("bare-install", "getent passwd ipoibu").startswith("ipoibu:")
    pages = root.run("bare-install", "dpkg -L ipoibu | grep share/man/ | grep gz")
    assert len(pages.split()) == 3


def test_an_upgrade_keeps_the_configuration_and_a_removal_nothing_else(root: Root) -> None:
    root.run("bare-install", "echo 'device = \"soft:eth0\"' >/etc/ipoibu/ib0.toml")
    root.run("bare-install", f"apt-get install -qq -y /shared/ipoibu_{NEXT}_amd64.deb")
    assert root.run("bare-install", "dpkg-query -W -f '${Version}' ipoibu") == NEXT
    assert "ipoibu" in root.run("bare-install", "ipoibu --version")
    root.run("bare-install", "apt-get purge -qq -y ipoibu")
    left = root.run("bare-install", "find / -xdev -name '*ipoibu*' -not -path '/shared*'")
    assert left.split() == ["/etc/ipoibu"]
    assert root.run("bare-install", "ls /etc/ipoibu").split() == ["ib0.toml"]
