# SPDX-License-Identifier: BSD-2-Clause
"""Errors of every kind are one line on stderr and the right exit code, never a traceback."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, NotPermitted, UsageError
from ipoibu.cli import lab, up
from ipoibu.cli.main import main
from ipoibu.cli.options import add_options
from ipoibu.cli.parser import COMMANDS
from ipoibu.cli.parser import build as build_parser
from ipoibu.daemon.config.config_file import ConfigFile
from ipoibu.daemon.config.options import OPTIONS
from ipoibu.daemon.daemon import Daemon
from tests.doubles.recording_client import record_requests

Errors = Callable[[], str]


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Errors:
    """Return the one line on stderr; fail if there is another number of lines."""

    def read() -> str:
        text = capsys.readouterr().err
        assert text.count("\n") == 1, text
        assert text.startswith("ipoibu: ")
        return text.removeprefix("ipoibu: ").rstrip("\n")

    return read


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["fly"],
        ["up"],
        ["up", "ib0"],
        ["up", "ib0", "--device"],
        ["up", "ib0", "--device", "soft:eth0", "--speed", "9"],
        ["up", "ib0", "--dev", "soft:eth0"],
        ["up", "ib0", "--device", "soft:eth0", "--address", "10.0.0.1"],
        ["up", "ib0", "--device", "soft:eth0", "--address", "10.0.0.300/24"],
        ["up", "ib0", "--device", "soft:eth0", "--pkey", "0x8000"],
        ["up", "ib0", "--device", "soft:eth0", "--pkey", "red"],
        ["up", "ib0", "--device", "soft:eth0", "--mode", "unreliable"],
        ["up", "a-name-that-is-too-long", "--device", "soft:eth0"],
        ["up", "ib0", "--config", "/not/there"],
        ["lab", "--hosts", "1"],
        ["lab", "--hosts", "many"],
        ["lab", "--fabric", "token-ring"],
        ["lab", "--fabric", "ib", "--hosts", "8"],
        ["lab", "--fabric", "ib", "--partitions", "/nosuchfile"],
        ["lab", "--hosts", "101"],
        ["lab", "--device", "rxe0"],
        ["lab", "--mode", "unreliable"],
        ["lab", "--faults", "loss=7"],
        ["lab", "--mtu", "1"],
        ["lab", "ls"],
        ["show", "--watch", "0"],
        ["show", "--watch", "nan"],
        ["stats", "a", "b"],
        ["capture", "ib0"],
        ["capture", "ib0", "-w", "x", "-c", "0"],
        ["capture", "ib0", "-w", "x", "-s", "10"],
        ["completion"],
        ["completion", "csh"],
    ],
    ids=" ".join,
)
def test_wrong_words_are_exit_code_2(argv: list[str], stderr: Errors) -> None:
    assert main(argv) == 2
    assert stderr()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "up ib0 --device soft:eth0 --adress 10.0.0.1/24",
            "unrecognized arguments: --adress 10.0.0.1/24; did you mean --address?"
            " (see `ipoibu up --help`)",
        ),
        (
            "up ib0 --dev=soft:eth0",
            "--dev=soft:eth0; did you mean --device? (see `ipoibu up --help`)",
        ),
        ("child add ib0 0x8001 --mtus 9", "did you mean --mtu? (see `ipoibu child add --help`)"),
        ("show ib0 ib1", "unrecognized arguments: ib1 (see `ipoibu show --help`)"),
        ("stats --zzz", "unrecognized arguments: --zzz (see `ipoibu stats --help`)"),
        ("shwo", "did you mean show? (see `ipoibu --help`)"),
        ("child ad ib0 1", "did you mean add? (see `ipoibu child --help`)"),
        ("completion bsh", "'bsh' is none of bash, zsh, fish; did you mean bash?"),
    ],
)
def test_a_word_that_nobody_knows_names_the_help_and_the_nearest_one(
    words: str, text: str, stderr: Errors
) -> None:
    assert main(words.split()) == 2
    assert text in stderr()


@pytest.mark.parametrize(
    ("words", "option", "value"),
    [
        ("set ib0 mode Connected", "mode", "connected"),
        ("log ib0 DEBUG", "log-level", "debug"),
        ("set ib0 log-level Info", "log-level", "info"),
    ],
)
def test_a_word_of_a_choice_is_taken_in_any_case(
    words: str, option: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = record_requests(monkeypatch, lambda name, command: {"value": "", "before": ""})
    assert main(words.split()) == 0
    assert asked == [("ib0", "set", {"option": option, "value": value})]


def test_an_interface_that_nobody_runs_is_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: Errors
) -> None:
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(tmp_path))
    for command in ("show", "neigh", "mcast", "conn", "peers", "guests", "stats"):
        assert main([command, "ib7"]) == 3
        assert "'ib7'" in stderr()
    assert main(["capture", "ib7", "-w", str(tmp_path / "x")]) == 3
    assert "'ib7'" in stderr()
    assert not (tmp_path / "x").exists()


def test_no_interface_at_all_is_nothing_to_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(tmp_path))
    assert main(["show"]) == 0
    assert capsys.readouterr().out == ""
    assert main(["show", "-j"]) == 0
    assert capsys.readouterr().out == "[]\n"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (IpoibuError("a\nb"), 1, "a b"),
        (LinkError("soft:eth0: down"), 1, "soft:eth0: down"),
        (UsageError("no"), 2, "no"),
        (NoSuchDevice("eth9"), 3, "eth9"),
        (NotPermitted("root"), 4, "root"),
        (OSError(28, "No space left on device", "/x"), 1, "/x: No space left on device"),
        (ImportError("x", name="ipoibu._core"), 1, "make build"),
        (ValueError("what"), 1, "internal error: ValueError: what; please report it"),
        (AssertionError(), 1, "internal error: AssertionError"),
    ],
)
def test_each_error_has_its_line_and_code(
    monkeypatch: pytest.MonkeyPatch, stderr: Errors, error: Exception, code: int, text: str
) -> None:
    def fail(self: Daemon) -> None:
        raise error

    monkeypatch.setattr(Daemon, "run", fail)
    assert main(["up", "ib0", "--device", "soft:eth0"]) == code
    assert text in stderr()


def test_an_interrupt_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(options: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(up, "run", interrupt)
    assert main(["up", "ib0"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("words", "code"), [("show", 0), ("show ib7", 3)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_one_that_nobody_reads(
    tmp_path: Path, words: str, code: int, closed: str
) -> None:
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m ipoibu.cli {words} {closed}', sys.executable],
        env={**os.environ, "IPOIBU_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert "internal error" not in done.stderr
    assert done.stdout == ""


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], *([command] for command in COMMANDS)):
        with pytest.raises(SystemExit) as caught:
            build_parser().parse_args([*words, "--help"])
        assert caught.value.code == 0
        assert "usage: ipoibu" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("ipoibu ")


def test_what_follows_two_dashes_belongs_to_the_labs_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[argparse.Namespace] = []

    def run(options: argparse.Namespace) -> int:
        seen.append(options)
        return 7

    monkeypatch.setattr("ipoibu.cli.lab.run", run)
    assert main(["lab", "--check", "--", "ls", "--check", "--", "x"]) == 7
    assert seen[0].rest == ["ls", "--check", "--", "x"]
    assert seen[0].check


def test_elsewhere_two_dashes_only_end_the_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: Errors
) -> None:
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(tmp_path))
    assert main(["show", "--", "ib7"]) == 3
    assert "'ib7'" in stderr()
    assert main(["doctor", "--", "soft:eth0"]) == 2
    assert "unrecognized arguments: " in stderr()


def test_up_has_an_option_for_each_key_of_the_configuration(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, "up")
    assert {
        action.option_strings[0].removeprefix("--"): isinstance(action, argparse._AppendAction)
        for action in parser._actions
        if action.dest != "help"
    } == {option.name: option.several for option in OPTIONS}
    for option in OPTIONS:
        file = tmp_path / option.name
        file.write_text(f"{option.name} = {json.dumps(option.example)}\n")
        value = option.read(option.example)
        expected = (value,) if option.several else value
        assert ConfigFile(file).values == {option.name: expected}


def test_options_given_to_the_lab_reach_every_host(monkeypatch: pytest.MonkeyPatch) -> None:
    class Built(Exception):
        pass

    def build(hosts: int, **options: object) -> None:
        assert options["options"] == ["--mode=connected", "--mtu=1500", "--faults=loss=0.5"]
        raise Built

    monkeypatch.setattr("ipoibu.lab.NamespaceLab", build)
    words = ["--mtu", "1500", "--faults", "loss=0.5", "--mode", "connected"]
    with pytest.raises(Built):
        lab.run(build_parser().parse_args(["lab", *words]))


def test_options_given_to_up_reach_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = []

    def run(self: Daemon) -> None:
        configs.append(self._config)

    monkeypatch.setattr(Daemon, "run", run)
    words = ["--pkey", "0x8001", "--mtu", "1500", "--route", "10.1.0.0/16,via=10.0.0.9"]
    words += ["--address", "10.0.0.1/24", "--address", "fd00::1/64"]
    words += ["--faults", "loss=0.5,seed=3"]
    assert main(["up", "ib0", "--device", "rxe0/1", *words]) == 0
    (config,) = configs
    endpoint = config.endpoint
    assert (endpoint.device, endpoint.port) == ("rxe0", 1)
    assert endpoint.mtu == 1500
    assert len(config.address) == 2
    assert str(config.route[0]) == "10.1.0.0/16,via=10.0.0.9"
    assert endpoint.faults is not None
    assert endpoint.faults.loss == 0.5


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "libibverbs.so.1: cannot open shared object file: No such file or directory",
            "libibverbs.so.1: cannot open shared object file: install it again"
            " (Debian: libibverbs1), or build ipoibu again without it",
        ),
        (
            "/lib/x86_64-linux-gnu/libibverbs.so.1: file too short",
            "libibverbs.so.1: file too short: install it again (Debian: libibverbs1), or build"
            " ipoibu again without it",
        ),
        (
            "libnew.so.7: version `NEW_7.1' not found (required by fabric.so)",
            "libnew.so.7: version `NEW_7.1' not found (required by fabric.so): install it again,"
            " or build ipoibu again without it",
        ),
    ],
)
def test_a_missing_shared_library_is_named_with_its_package(
    text: str, line: str, monkeypatch: pytest.MonkeyPatch, stderr: Errors
) -> None:
    def load(options: argparse.Namespace) -> int:
        raise ImportError(text)

    monkeypatch.setattr("ipoibu.cli.up.run", load)
    assert main(["up", "ib0", "--device", "soft:eth0"]) == 1
    assert stderr() == line
