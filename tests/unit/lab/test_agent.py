# SPDX-License-Identifier: BSD-2-Clause
"""The agent of lab machines, as a program of the host, and the lab's side of it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines import agent as module
from ipoibu.lab.machines import stream
from ipoibu.lab.machines.agent import MERGED, TERMINAL, Agent, Command, MachineEnded, Refused
from ipoibu.lab.machines.mounts import INSIDE
from tests.doubles.packets import until

PATIENCE_S = 60.0


@dataclass
class Line:
    """A running agent, and what it has logged."""

    agent: Agent
    process: subprocess.Popen[bytes]
    logged: bytearray = field(default_factory=bytearray)


@pytest.fixture
def line() -> Iterator[Line]:
    ours, theirs = socket.socketpair()
    with subprocess.Popen([str(INSIDE / "agent")], stdin=theirs.fileno()) as process:
        theirs.close()
        logged = bytearray()
        with Agent(ours, logged.extend) as agent:
            assert agent.wait_until_ready(PATIENCE_S)
            yield Line(agent, process, logged)


def shell(agent: Agent, script: str, flags: int = 0) -> Command:
    command = agent.run(["sh", "-c", script], flags)
    assert command.wait(PATIENCE_S) is not None
    return command


def test_status_output_and_errors_come_apart(line: Line) -> None:
    command = shell(line.agent, "echo out; echo err >&2; exit 7")
    assert (command.status, bytes(command.output), bytes(command.errors)) == (7, b"out\n", b"err\n")
    merged = shell(line.agent, "echo out; echo err >&2; kill -9 $$", MERGED)
    assert (merged.status, bytes(merged.output)) == (137, b"out\nerr\n")
    assert sorted(line.logged.decode().split()) == ["err", "err", "out", "out"]


def test_all_of_the_output_comes_before_the_status(line: Line) -> None:
    text = "".join(f"{number}\n" for number in range(1, 100001)).encode()
    assert bytes(shell(line.agent, "seq 100000").output) == text


def test_commands_run_side_by_side_up_to_a_cap(line: Line) -> None:
    cats = [line.agent.run(["sleep", "1000"]) for _ in range(64)]
    with pytest.raises(Refused, match="as many commands as it can"):
        line.agent.run(["true"]).wait(PATIENCE_S)
    for command in cats:
        assert command.wait(0) is None
        command.kill(9)
    assert [command.wait(PATIENCE_S) for command in cats] == [137] * 64
    assert shell(line.agent, "true").status == 0


def test_the_background_of_a_command_goes_on_and_is_heard(line: Line) -> None:
    read_fd, write_fd = os.pipe()
    path = f"/proc/{os.getpid()}/fd/{read_fd}"
    command = shell(line.agent, f"(read word <{path}; echo late $word) & echo begun")
    assert (command.status, bytes(command.output)) == (0, b"begun\n")
    os.write(write_fd, b"guest\n")
    until(lambda: line.logged == b"begun\nlate guest\n")
    assert bytes(command.output) == b"begun\n"
    os.close(read_fd)
    os.close(write_fd)


def test_a_program_that_is_none_has_the_status_of_a_shell(line: Line) -> None:
    command = line.agent.run(["/nonexistent/program"])
    assert command.wait(PATIENCE_S) == 127
    assert "No such file" in str(command.errors)


def test_a_terminal_has_a_size_job_control_and_an_interrupt(line: Line) -> None:
    command = line.agent.run(["sh", "-c", "stty size; tty; exec sleep 1000"], TERMINAL)
    until(lambda: b"/dev/pts/" in bytes(command.output))
    command.resize(33, 99)
    command.write(b"\x03")
    assert command.wait(PATIENCE_S) == 130
    shown = line.agent.run(["sh", "-c", "read line; stty size; echo got $line"], TERMINAL)
    shown.resize(33, 99)
    shown.write(b"words\n")
    assert shown.wait(PATIENCE_S) == 0
    assert b"33 99\r\ngot words\r\n" in bytes(shown.output)


def test_rubbish_on_the_line_is_skipped_by_both_sides(line: Line) -> None:
    line.agent._channel.sendall(b"rubbish LAB, LA, L\n" * 100)
    assert shell(line.agent, "echo out").status == 0
    shell(line.agent, f"printf 'rubbish LAB L' >/proc/{line.process.pid}/fd/0 || true")
    assert bytes(shell(line.agent, "echo out").output) == b"out\n"


def test_rubbish_from_the_machine_is_counted() -> None:
    ours, theirs = socket.socketpair()
    with Agent(ours) as agent:
        frame = module._HEADER.pack(b"LAB", b"H", 0, 0)
        for rubbish in (b"LAB" + b"\xff" * 20, b"x" * 70_000, b"LABLAB"):
            theirs.sendall(rubbish + frame)
        theirs.sendall(module._HEADER.pack(b"LAB", b"X", 99, 4) + b"1234")  # of no command
        theirs.sendall(b"\0")
        assert agent.wait_until_ready(PATIENCE_S)
        until(lambda: agent.skipped_bytes > 70_000)
        theirs.close()
        with pytest.raises(MachineEnded):
            agent.run(["true"]).wait(PATIENCE_S)


def test_a_command_is_bounded(line: Line) -> None:
    with pytest.raises(LabError, match="put it into a file"):
        line.agent.run(["echo", "x" * module.REQUEST_BYTES])
    with pytest.raises(Refused, match="too many arguments"):
        line.agent.run(["echo", *("x" * 2000)]).wait(PATIENCE_S)


def test_what_is_kept_of_the_output_is_bounded(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "OUTPUT_BYTES", 1000)
    command = shell(line.agent, "seq 10000")
    assert len(bytes(command.output)) == 1000
    assert str(command.output).endswith("\n[47894 bytes dropped]\n")


def test_commands_learn_of_the_end(line: Line) -> None:
    command = line.agent.run(["sleep", "1000"])
    line.agent.ask_to_finish()
    assert line.agent.wait_until_finished(PATIENCE_S)
    assert line.process.wait(PATIENCE_S) == 0
    with pytest.raises(MachineEnded):
        command.wait(PATIENCE_S)
    with pytest.raises(MachineEnded):
        line.agent.run(["true"]).wait(PATIENCE_S)
