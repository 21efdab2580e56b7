# SPDX-License-Identifier: BSD-2-Clause
"""Network namespaces by name, path and process."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.errors import NoSuchDevice, UsageError
from ipoibu.host.netns import NetworkNamespace


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("blue", "{}/blue"),
        ("cni-0f5e", "{}/cni-0f5e"),
        ("4711", "/proc/4711/ns/net"),
        ("42", "{}/42"),  # the name wins over the process, as for ip(8)
        ("/proc/1/ns/net", "/proc/1/ns/net"),
        ("./file", "file"),
    ],
)
def test_the_words_of_ip(tmp_path: Path, text: str, path: str) -> None:
    (tmp_path / "42").touch()
    assert NetworkNamespace.parse(text, tmp_path).path == Path(path.format(tmp_path))


@pytest.mark.parametrize("text", ["", ".", "..", "a\0b"])
def test_what_is_no_word_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is no network namespace"):
        NetworkNamespace.parse(text)


def test_a_file_of_no_namespace_is_missing_or_refused(tmp_path: Path) -> None:
    absent = NetworkNamespace.parse(str(tmp_path / "absent"))
    with pytest.raises(NoSuchDevice, match="there is no"):
        absent.open()
    assert absent.is_gone()
    assert NetworkNamespace.parse(str(tmp_path)).is_gone()
    assert not NetworkNamespace.parse("/proc/self/ns/net").is_gone()


def test_an_open_namespace_is_the_one_that_was_found(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/proc/self/ns/net")
    with NetworkNamespace.parse(str(link)).open() as namespace:
        link.unlink()
        assert namespace.inode() == Path("/proc/self/ns/net").stat().st_ino
        assert namespace.name.is_gone()
