# SPDX-License-Identifier: BSD-2-Clause
"""The output and the exit code of `ipoibu config check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.cli.main import main


def test_a_file_without_faults_prints_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("device = 'soft:eth0'\n[child.0x8001]\n")
    assert main(["config", "check", str(file)]) == 0
    assert capsys.readouterr() == ("", "")


def test_each_fault_of_each_file_is_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, none = (tmp_path / name for name in ("a.toml", "b.toml", "none"))
    first.write_text("mtu = 5\nmode = 'fast'\n")
    second.write_text("device = \n")
    assert main(["config", "check", str(first), str(none), str(second)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{first}:1", "mtu"],
        [f"{first}:2", "mode"],
        [str(none), "No such file or directory"],
        [f"{second}:1", "not a TOML file"],
    ]


def test_a_file_that_is_no_name_of_an_interface_is_checked_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "the-storage-network.toml"
    file.write_text("device = 'soft:eth0'\nmtu = 4000\n[child.0x8001]\n")
    assert main(["config", "check", str(file)]) == 0
    file.write_text("mtu = 4000\n")
    assert main(["config", "check", str(file)]) == 2
    assert "no device given" in capsys.readouterr().out


def test_up_refuses_a_faulty_file_with_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("device = 'soft:eth0'\nmtu = 5\n")
    assert main(["up", "ib0", "--config", str(file)]) == 2
    assert f"{file}:2: mtu: '5' is no MTU" in capsys.readouterr().err
    file.write_text("device = 'soft:eth0'\n[child.0xffff]\n")
    assert main(["up", "ib0", "--config", str(file)]) == 2
    assert f"{file}:2: child.0xffff: 0xffff is the partition of ib0" in capsys.readouterr().err
