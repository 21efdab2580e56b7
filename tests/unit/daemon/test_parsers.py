# SPDX-License-Identifier: BSD-2-Clause
"""Paths of options whose files a daemon reads again."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.parsers import parse_directory, parse_file


def test_a_path_is_absolute_and_a_link_stays_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who changes the file may replace the link."""
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    monkeypatch.chdir(tmp_path)
    assert parse_file("link") == tmp_path / "link"
    assert parse_file("absent") == tmp_path / "absent"


@pytest.mark.parametrize("directory", ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"])
def test_a_descriptor_stands_for_the_file_that_it_has_open(tmp_path: Path, directory: str) -> None:
    """A daemon without privileges may not look at its descriptors."""
    file = tmp_path / "file"
    file.touch()
    for path, parse in ((file, parse_file), (tmp_path, parse_directory)):
        fd = os.open(path, os.O_RDONLY)
        try:
            assert parse(f"{directory}/{fd}") == path
        finally:
            os.close(fd)


def test_a_descriptor_of_a_file_without_a_name_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("w") as opened:
        file.unlink()
        path = f"/proc/self/fd/{opened.fileno()}"
        assert parse_file(path) == Path(path)


@pytest.fixture
def pipe() -> Callable[[bytes], str]:
    def make(content: bytes) -> str:
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        return f"/dev/fd/{reader}"

    return make


def test_a_pipe_is_refused_where_a_file_is_read_again(pipe: Callable[[bytes], str]) -> None:
    """Its second reading would find nothing: no peers, no partitions."""
    with pytest.raises(UsageError, match=r"/dev/fd/\d+: a pipe can be read only once: give a file"):
        parse_file(pipe(b"192.0.2.1\n"))


def test_a_configuration_from_a_pipe_is_read_once(pipe: Callable[[bytes], str]) -> None:
    config = InterfaceConfig.build("ib0", {}, Path(pipe(b'device = "soft:eth0"\n')))
    assert config.endpoint.device == "soft:eth0"
    assert config.file is None
