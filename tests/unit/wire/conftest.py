# SPDX-License-Identifier: BSD-2-Clause
"""The golden vectors: by name as the fixture `golden`, each of them as a parameter."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

_TABLE: Final = Path(__file__).parents[2] / "golden" / "wire.toml"
_VECTORS: Final = {
    f"{codec}.{name}": bytes.fromhex(entry["hex"])
    for codec, entries in tomllib.loads(_TABLE.read_text("utf-8")).items()
    for name, entry in entries.items()
}
_CODECS: Final = {name.partition(".")[0] for name in _VECTORS}


@pytest.fixture(scope="session")
def golden() -> Callable[[str], bytes]:
    """`golden("arp.request")`: the bytes of a vector of tests/golden/wire.toml."""
    return _VECTORS.__getitem__


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`vector` is (codec, bytes) over the whole table, `sealed_vector` over those with a checksum."""
    for fixture, codecs in (("vector", _CODECS), ("sealed_vector", {"ndisc", "igmp", "mld"})):
        if fixture in metafunc.fixturenames:
            names = [name for name in _VECTORS if name.partition(".")[0] in codecs]
            values = [(name.partition(".")[0], _VECTORS[name]) for name in names]
            metafunc.parametrize(fixture, values, ids=names)
