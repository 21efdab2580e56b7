# SPDX-License-Identifier: BSD-2-Clause
"""The distribution at hand, and what its packages are called: os-release(5).

Tests install Debian's packages. The names of Fedora and openSUSE come from the spec files of rdma-core
and of their own builds; we have not installed those.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Final

# The words of ID and ID_LIKE by which we know a family of distributions, and how it installs packages
_FAMILIES: Final = {
    "debian": ({"debian", "ubuntu"}, "apt-get install"),
    "fedora": ({"fedora", "rhel", "centos"}, "dnf install"),
    "suse": ({"suse", "opensuse", "sles"}, "zypper install"),
}

# The packages of each family in the order of `_FAMILIES`
_PACKAGES: Final = {
    "pyverbs": (
        "python3-pyverbs ibverbs-providers",
        "python3-pyverbs libibverbs",
        "python3-pyverbs libibverbs",
    ),
    "verbs headers": ("libibverbs-dev", "rdma-core-devel", "rdma-core-devel"),
    "libibverbs": ("libibverbs1", "libibverbs", "libibverbs1"),
    "isa-l": ("libisal2", "isa-l", "libisal2"),
    "liburing": ("liburing2", "liburing", "liburing2"),
    "liburing headers": ("liburing-dev", "liburing-devel", "liburing-devel"),
    "pyyaml": ("python3-yaml", "python3-pyyaml", "python3-PyYAML"),
}

OS_RELEASE: Final = Path("/etc/os-release")


def family(os_release: Path = OS_RELEASE) -> str | None:
    """Return "debian", "fedora" or "suse"; None for another distribution."""
    try:
        content = os_release.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    values = dict(re.findall(r"""^(ID|ID_LIKE)=["']?([^"'\n]*)""", content, re.MULTILINE))
    for line in (values.get("ID", ""), values.get("ID_LIKE", "")):
        for name, (words, _) in _FAMILIES.items():
            if words & {word.partition("-")[0] for word in line.lower().split()}:
                return name
    return None


@cache
def install(thing: str, os_release: Path = OS_RELEASE) -> str:
    """Return the command that installs `thing`, a key of the table above; Debian's names where we do
    not know the distribution."""
    names = _PACKAGES[thing]
    found = family(os_release)
    if found is None:
        return f"install what your distribution calls {names[0]} (Debian's name)"
    return f"{_FAMILIES[found][1]} {names[list(_FAMILIES).index(found)]}"
