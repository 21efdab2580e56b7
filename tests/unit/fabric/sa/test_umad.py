# SPDX-License-Identifier: BSD-2-Clause
"""A missing libibumad, and the attributes of a port. tests/opensm tests the library itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError
from ipoibu.fabric.sa import umad
from ipoibu.fabric.sa.mad_port import MadPortInfo
from ipoibu.fabric.sa.umad import UmadPort


@pytest.fixture(autouse=True)
def _forgets_the_library() -> Iterator[None]:
    umad._library.cache_clear()
    yield
    umad._library.cache_clear()


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(umad, "LIBRARY", "libibumad.so.0-absent")
    with pytest.raises(LinkError, match="install libibumad3") as caught:
        UmadPort("mlx5_0")
    assert "\n" not in str(caught.value)
    with pytest.raises(LinkError, match=r"InfiniBand ports need libibumad\.so\.0-absent"):
        umad.devices()


def info(*pkeys: int) -> MadPortInfo:
    gid = Gid.parse("fe80::2:c903:e:b72")
    return MadPortInfo("mlx5_0", 1, True, 3, 1, 0, gid, tuple(PKey(key) for key in pkeys))


def test_a3_the_guid_is_the_gids_lower_half() -> None:
    """A3."""
    assert info().guid == 0x0002C903000E0B72


@pytest.mark.parametrize(
    ("table", "index"),
    [((0xFFFF,), 0), ((0x8001, 0x7FFF), 1), ((0x8001, 0, 0, 0xFFFF), 3), ((0x8001,), 0), ((), 0)],
)
def test_the_sa_is_asked_with_the_default_partitions_key(
    table: tuple[int, ...], index: int
) -> None:
    assert info(*table).sa_pkey_index == index


def test_e7_a_limited_member_is_in_the_partition_too() -> None:
    """E7."""
    port = info(0xFFFF, 0x0001, 0x8002, 0)
    assert [port.has_pkey(PKey(key)) for key in (0x8001, 0x0002, 0x7FFF, 0x8003)] == [
        True,
        True,
        True,
        False,
    ]
