# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from ipoibu.cli.completion import bash, fish, zsh
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


def _zsh(tmp_path: Path, line: str, end: str) -> str:
    """Type `line` and a tab into a zsh at a terminal; return what it shows, at most until `end`."""
    script = tmp_path / "_ipoibu"
    script.write_text(zsh(build()))
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "HOME": str(tmp_path), "COLUMNS": "200"}
    shell = subprocess.Popen(
        ["zsh", "-f", "-i"], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    shown = ""
    try:
        setup = (
            "PS1=; unsetopt zle_bracketed_paste; zstyle ':completion:*' list-prompt ''; LISTMAX=999"
        )
        ready = f"autoload -U compinit; compinit -u -D; source {script}; {setup}; echo rea''dy"
        os.write(master, f"{ready}\n".encode())
        shown = _read_until(master, "ready")
        os.write(master, f"{line}\t\t".encode())
        shown = _read_until(master, end)
    finally:
        shell.kill()
        shell.wait()
        os.close(master)
    return shown


def _read_until(fd: int, end: str) -> str:
    shown, deadline = "", time.monotonic() + 15
    while end not in shown and time.monotonic() < deadline:
        if select.select([fd], [], [], 0.2)[0]:
            shown += os.read(fd, 65536).decode(errors="replace")
    return shown


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("ipoibu comp", "completion "),
        ("ipoibu up ib0 --devi", "--device "),
        ("ipoibu up ib0 --dhcp", "give the address back"),
        ("ipoibu completion f", "fish "),
        ("ipoibu set ib0 busy", "busy-poll"),
        ("ipoibu child add ib0 0x8001 --addr", "--address "),
    ],
)
def test_zsh_completes_commands_options_and_values(tmp_path: Path, line: str, shown: str) -> None:
    assert shown in _zsh(tmp_path, line, shown)


def test_zsh_gets_a_file_for_its_fpath_that_it_may_source_too() -> None:
    lines = zsh(build()).splitlines()
    assert lines[0] == "#compdef ipoibu"
    assert "compdef _ipoibu ipoibu" in lines[-1]


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
