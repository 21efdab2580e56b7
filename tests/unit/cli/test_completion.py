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
from ipoibu.daemon.control.socket_paths import namespace_dir

FAKE = """ipoibu() {
    case "$*" in
        'completion --words interfaces') printf 'ib0\\nib0.8001\\n' ;;
        'completion --words devices') printf 'soft:eth0\\nsoft:eth1\\nmlx5_0\\n' ;;
    esac
}"""


def _complete(*words: str) -> list[str]:
    """Return the completions that bash offers for the last word."""
    script = (
        f"{bash(build())}\n{FAKE}\nCOMP_LINE=$1; COMP_POINT=${{#1}}; _ipoibu;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    line = " ".join(("ipoibu", *words))
    done = subprocess.run(
        ["bash", "-c", script, "bash", line], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
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


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("up ib0 --mode ", "datagram connected"),
        ("up ib0 --mode c", "connected"),
        ("up ib0 --mode=c", "connected"),
        ("up ib0 --offload ", "on off"),
        ("up ib0 --busy-poll ", "auto"),
        ("up ib0 --device ", "soft:eth0 soft:eth1 mlx5_0"),
        ("up ib0 --device soft:e", "eth0 eth1"),  # bash replaces what follows the colon
        ("up ib0 --device=m", "mlx5_0"),
        ("up ib0 --mtu ", ""),
        ("up ib0 --config ", ""),
        ("child add ib0 0x8001 --mode ", "datagram connected"),
        ("child del ib0.", "ib0.8001"),
        ("child ", "add del list -h --help"),
        ("show ib0.", "ib0.8001"),
        ("show dev i", "ib0 ib0.8001"),
        ("neigh flush dev i", "ib0 ib0.8001"),
        ("neigh f", "flush"),
        ("set ib0 mode ", "datagram connected"),
        ("set ib0 log-level w", "warning"),
        ("down i", "ib0 ib0.8001"),
        ("capture i", "ib0 ib0.8001"),
        ("completion --words ", "interfaces devices"),
    ],
)
def test_bash_completes_values_and_the_names_of_interfaces(words: str, expected: str) -> None:
    assert _complete(*words.split(" ")) == expected.split()


def test_the_words_of_the_scripts_are_printed_without_asking_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("IPOIBU_RUNTIME_DIR", str(tmp_path))
    directory = namespace_dir()
    directory.mkdir()
    for name in ("ib0", "ib7"):
        (directory / f"{name}.sock").touch()  # nobody listens
    assert main(["completion", "--words", "interfaces"]) == 0
    assert capsys.readouterr().out == "ib0\nib7\n"
    assert main(["completion", "--words", "devices"]) == 0
    netdevs = [f"soft:{name}" for name in sorted(os.listdir("/sys/class/net")) if name != "lo"]
    assert capsys.readouterr().out.split()[: len(netdevs)] == netdevs


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
        (tmp_path / "fake").write_text(FAKE)
        sources = f"source {script}; source {tmp_path / 'fake'}"
        ready = f"autoload -U compinit; compinit -u -D; {sources}; {setup}; echo rea''dy"
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
        ("ipoibu up ib0 --mode c", "connected"),
        ("ipoibu show ib0.", "ib0.8001"),
        ("ipoibu up ib0 --device m", "mlx5_0"),
        ("ipoibu up ib0 --device s", "soft:eth1"),
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
    assert any("from up'" in line and "-l device -x -a '(ipoibu" in line for line in lines)


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("ipoibu up ib0 --mode ", ["connected", "datagram"]),
        ("ipoibu show i", ["ib0", "ib0.8001"]),
        ("ipoibu up ib0 --device m", ["mlx5_0"]),
        ("ipoibu child add ib0 0x8001 --mo", ["--mode"]),
        ("ipoibu child del ib0.", ["ib0.8001"]),
    ],
)
def test_fish_completes_values_and_the_names_of_interfaces(
    tmp_path: Path, line: str, expected: list[str]
) -> None:
    program = tmp_path / "ipoibu"
    program.write_text(f'#!/bin/sh\n{FAKE}\nipoibu "$@"\n'.replace("ipoibu()", "ipoibu ()"))
    program.chmod(0o755)
    (tmp_path / "script").write_text(fish(build()))
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source {tmp_path}/script; complete -C '{line}'"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)},
    )
    assert sorted(it.split("\t")[0] for it in done.stdout.splitlines()) == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_understands_every_line() -> None:
    subprocess.run(["fish", "--no-execute"], input=fish(build()), text=True, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "ipoibu" in capsys.readouterr().out
