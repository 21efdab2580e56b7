# SPDX-License-Identifier: BSD-2-Clause
"""How files are recognised, and which belong to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.errors import UsageError
from ipoibu.migration.sources import read_files


def test_a_file_that_belongs_to_another_is_read_with_it_once(tmp_path: Path) -> None:
    (tmp_path / "ifcfg-ib0").write_text("TYPE=InfiniBand\n")
    (tmp_path / "route-ib0").write_text("10.9.0.0/16 dev ib0\n")
    (tmp_path / "a.network").write_text("[Match]\nName=ib1\n")
    (tmp_path / "a.network.d").mkdir()
    (tmp_path / "a.network.d/b.conf").write_text("[Network]\nAddress=10.0.0.1/24\n")
    names = ["route-ib0", "ifcfg-ib0", "a.network.d/b.conf", "a.network"]
    drafts = read_files(tmp_path / name for name in names).drafts
    assert [draft.name for draft in drafts] == ["ib0", "ib1"]
    assert [len(draft.settings) for draft in drafts] == [1, 1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("route-ib7", "ifcfg-ib7, to which it belongs, is not beside it"),
        ("a.network.d/b.conf", "a.network, to which it belongs, does not exist"),
        ("interfaces", "not the name of a keyfile"),
        ("none", "No such file or directory"),
    ],
)
def test_other_files_are_refused_with_their_path(tmp_path: Path, name: str, why: str) -> None:
    path = tmp_path / name
    if name != "none":
        path.parent.mkdir(exist_ok=True)
        path.write_text("auto ib0\n")
    with pytest.raises(UsageError, match=why) as caught:
        read_files([path])
    assert str(path) in str(caught.value)
