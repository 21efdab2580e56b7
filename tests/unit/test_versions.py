# SPDX-License-Identifier: BSD-2-Clause
"""The packages, the changelog and the library have one version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def first(path: str, pattern: str) -> str:
    found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert found, path
    return found[1]


def test_every_place_has_the_version_of_the_library() -> None:
    assert first("debian/changelog", r"^ipoibu \((.*)\)") == VERSION
    assert first("packaging/rpm/ipoibu.spec", r"^Version: +(.*)$") == VERSION
    assert first("packaging/rpm/ipoibu.spec", r"^\* .* - (.*)-1$") == VERSION
    assert first("CHANGELOG.md", r"^## (\S+)") == VERSION
    assert first("docs/use/packaging.md", r"ipoibu_(.*)_amd64\.deb") == VERSION
