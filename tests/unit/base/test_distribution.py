# SPDX-License-Identifier: BSD-2-Clause
"""Each distribution's own names of packages, in the remedies of `doctor` and of errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base import distribution

PYVERBS = {
    "debian": "apt-get install python3-pyverbs ibverbs-providers",
    "fedora": "dnf install python3-pyverbs libibverbs",
    "suse": "zypper install python3-pyverbs libibverbs",
}


@pytest.mark.parametrize(
    ("content", "family"),
    [
        ("ID=debian\n", "debian"),
        ('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n', "debian"),
        ("ID=linuxmint\nID_LIKE='ubuntu debian'\n", "debian"),
        ("ID=fedora\n", "fedora"),
        ('ID="rhel"\nID_LIKE="fedora"\n', "fedora"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"\n', "suse"),
        ('ID="sles"\nID_LIKE="suse"\n', "suse"),
    ],
)
def test_a_distribution_is_known_by_its_name_or_its_relatives(
    tmp_path: Path, content: str, family: str
) -> None:
    path = tmp_path / "os-release"
    path.write_text(content)
    assert distribution.family(path) == family
    assert distribution.install("pyverbs", path) == PYVERBS[family]


@pytest.mark.parametrize("content", ["ID=arch\n", "VERSION_ID=debian\n", "", None])
def test_an_unknown_distribution_gets_debians_names(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "os-release"
    if content is not None:
        path.write_text(content)
    assert distribution.family(path) is None
    assert distribution.install("verbs headers", path) == (
        "install what your distribution calls libibverbs-dev (Debian's name)"
    )
