# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import shutil
import subprocess

import pytest

from ipoibu.cli.completion import bash, fish
from ipoibu.cli.main import main
from ipoibu.cli.parser import COMMANDS, build


def _complete(*words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    line = " ".join(f"'{word}'" for word in ("ipoibu", *words))
    script = (
        f"{bash(build())}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _ipoibu;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands() -> None:
    assert set(COMMANDS) <= set(_complete(""))
    assert _complete("la") == ["lab"]


def test_bash_completes_the_options_of_the_command() -> None:
    assert _complete("up", "ib0", "--de") == ["--device"]
    assert _complete("show", "--w") == ["--watch"]
    assert _complete("completion", "z") == ["zsh"]
    assert _complete("child", "a") == ["add"]
    assert _complete("set", "ib0", "b") == ["busy-poll"]
    assert _complete("log", "ib0", "d") == ["debug"]
    assert _complete("child", "add", "ib0", "0x8001", "--a") == ["--address"]


def test_zsh_gets_the_same_script_behind_its_bash_emulation() -> None:
    script = bash(build(), zsh=True)
    assert script.splitlines()[0] == "autoload -U +X bashcompinit && bashcompinit"
    assert script.endswith(bash(build()))


def test_fish_has_a_line_for_every_command_and_option() -> None:
    lines = fish(build()).splitlines()
    for command in COMMANDS:
        assert any(f"-a {command} " in line for line in lines)
    assert any("from up'" in line and "-l device -r" in line for line in lines)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_understands_every_line() -> None:
    subprocess.run(["fish", "--no-execute"], input=fish(build()), text=True, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "ipoibu" in capsys.readouterr().out
