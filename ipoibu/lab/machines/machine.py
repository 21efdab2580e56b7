# SPDX-License-Identifier: BSD-2-Clause
"""A machine of a running lab, in which a test runs commands."""

from __future__ import annotations

import itertools
import os
import shlex
import shutil
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.agent import MERGED, Agent, Command, Log, MachineEnded
from ipoibu.lab.machines.plan import Plan
from ipoibu.lab.machines.runner import MachineFailed
from ipoibu.lab.machines.shared import SharedDirectory
from ipoibu.lab.machines.stream import end_of

COMMAND_S: Final = 900.0  # that a command may take, unless the caller says otherwise
RETRY_S: Final = 0.1  # between two attempts of `wait_until_succeeds`
SIGKILL: Final = 9


class CommandFailed(LabError):
    """A command did not end as wanted; the message has the command and the end of its output.

    `status` is its exit status, or None if it ran out of time.
    """

    def __init__(self, machine: str, command: str, status: int | None, text: str) -> None:
        ending = "ran out of time" if status is None else f"exit status {status}"
        super().__init__(f"machine {machine}: {command}: {ending}\n{end_of(text.rstrip())}")
        self.machine = machine
        self.command = command
        self.status = status


class Execution(NamedTuple):
    """How a command ended: its exit status, and what it wrote to stdout."""

    status: int
    output: str


class Machine:
    """A machine of a `Lab`. Any thread may call it; commands of several threads run side by side.

    A command is a text for `bash -euo pipefail`; its directory is /src if the lab shares one. Its stdin is
    /dev/null. What it leaves in the background goes on, and does not
    keep it waiting. Every method raises `MachineFailed` if the machine ends meanwhile, with its kernel log.
    """

    def __init__(
        self,
        plan: Plan,
        agent: Agent,
        shared: SharedDirectory,
        failure: Callable[[], MachineFailed],
    ) -> None:
        self._agent = agent
        self._shared = shared
        self._failure = failure
        self._numbers = itertools.count(1)
        self.name: Final = plan.name
        self.index: Final = plan.index
        self.interface: Final = plan.interface
        self.ipv4: Final = plan.ipv4
        self.ipv6: Final = plan.ipv6
        self.description: Final = plan.description

    def __repr__(self) -> str:
        return f"<machine {self.name}: {self.description}>"

    @property
    def has_ended(self) -> bool:
        """Whether the machine has ended, so that it runs no command any more."""
        return self._agent.has_ended

    def execute(self, command: str, timeout: float = COMMAND_S) -> Execution:
        """Run `command` and return how it ended; `CommandFailed` if it takes longer than `timeout` seconds.

        Its processes are killed then.
        """
        ended = self._run(command, timeout)
        assert ended.status is not None
        return Execution(ended.status, str(ended.output))

    def succeed(self, *commands: str, timeout: float = COMMAND_S) -> str:
        """Run the commands one after the other and return what they wrote to stdout.

        `CommandFailed` if one has another exit status than 0; the message has its errors, too.
        """
        return self._run_each(commands, timeout, lambda status: status == 0)

    def fail(self, *commands: str, timeout: float = COMMAND_S) -> str:
        """Run the commands and return their stdout; `CommandFailed` if one has the exit status 0."""
        return self._run_each(commands, timeout, lambda status: status != 0)

    def wait_until_succeeds(self, command: str, timeout: float = COMMAND_S) -> str:
        """Repeat `command` until it succeeds, and return its stdout then; `CommandFailed` after `timeout`."""
        return self._wait_until(command, timeout, lambda status: status == 0)

    def wait_until_fails(self, command: str, timeout: float = COMMAND_S) -> str:
        """Repeat `command` until it fails, and return its stdout then; `CommandFailed` after `timeout`."""
        return self._wait_until(command, timeout, lambda status: status != 0)

    def start(self, command: str) -> Running:
        """Start `command` and return at once; the lab's end ends it."""
        return Running(self, command, self._started(shell_words(command), 0))

    def put(self, source: str | Path, target: str) -> None:
        """Copy a file or a directory of the host to `target`, which must not exist, in the machine."""
        name = f"put-{next(self._numbers)}"
        into = shlex.quote(target)
        try:
            if Path(source).is_dir():
                with (
                    self._shared.create(name) as file,
                    tarfile.open(fileobj=file, mode="w|") as tar,
                ):
                    tar.add(source, ".")
                self.succeed(f"mkdir {into}; tar -x -f {self._inside(name)} -C {into}")
            else:
                executable = os.access(source, os.X_OK)
                with Path(source).open("rb") as file:
                    self.share_file(name, file, executable=executable)
                self.succeed(f"cp -p -T -- {self._inside(name)} {into}")
        finally:
            self._shared.remove(name)

    def share_file(self, name: str, source: BinaryIO, *, executable: bool) -> str:
        """Copy a file into the machine's own directory, and return its path for the machine.

        `FileExistsError` if it is there already.
        """
        with self._shared.create(name, 0o755 if executable else 0o644) as file:
            shutil.copyfileobj(source, file)
        return self._inside(name)

    def get(self, source: str, target: str | Path | None = None) -> bytes:
        """Return the bytes of a file of the machine; write them to `target`, if any, on the host.

        `CommandFailed` if the machine has no such file, `LabError` if it is longer than
        `stream.OUTPUT_BYTES`.
        """
        command = f"cat -- {shlex.quote(source)}"
        ended = self._run(command, COMMAND_S)
        if ended.status != 0:
            raise self._failed(command, ended, ended.status)
        if ended.output.dropped_bytes:
            raise LabError(f"machine {self.name}: {source} is too long to get")
        data = bytes(ended.output)
        if target is not None:
            Path(target).write_bytes(data)
        return data

    def run_words(
        self, argv: Sequence[str], flags: int = MERGED, on_output: Log | None = None
    ) -> Command:
        """Start a program with its arguments, without a shell; for the rest of this package."""
        return self._started(argv, flags, on_output)

    def _inside(self, name: str) -> str:
        return f"/run/lab/{self.name}/{name}"

    def wait_for(self, command: Command, timeout: float | None) -> int | None:
        """Wait for a command's exit status, or until `timeout`, when it is None."""
        try:
            return command.wait(timeout)
        except MachineEnded as error:
            raise self._failure() from error

    def _started(self, argv: Sequence[str], flags: int, on_output: Log | None = None) -> Command:
        try:
            return self._agent.run(argv, flags, on_output)
        except MachineEnded as error:
            raise self._failure() from error

    def _run(self, command: str, timeout: float) -> Command:
        started = self._started(shell_words(command), 0)
        if self.wait_for(started, timeout) is None:
            started.kill(SIGKILL)  # which gives it a status, soon or at once
            raise self._failed(command, started, None)
        return started

    def _run_each(
        self, commands: Sequence[str], timeout: float, good: Callable[[int], bool]
    ) -> str:
        output = ""
        for command in commands:
            ended = self._run(command, timeout)
            assert ended.status is not None
            if not good(ended.status):
                raise self._failed(command, ended, ended.status)
            output += str(ended.output)
        return output

    def _wait_until(self, command: str, timeout: float, good: Callable[[int], bool]) -> str:
        deadline = time.monotonic() + timeout
        while True:
            ended = self._run(command, max(RETRY_S, deadline - time.monotonic()))
            assert ended.status is not None
            if good(ended.status):
                return str(ended.output)
            if time.monotonic() > deadline:
                raise self._failed(command, ended, ended.status)
            time.sleep(RETRY_S)

    def _failed(self, command: str, ended: Command, status: int | None) -> CommandFailed:
        text = str(ended.output) + str(ended.errors)
        return CommandFailed(self.name, command, status, text)


class Running:
    """A command that `Machine.start` has started; any thread may use it."""

    def __init__(self, machine: Machine, command: str, started: Command) -> None:
        self._machine = machine
        self._command = command
        self._started = started

    @property
    def is_running(self) -> bool:
        """Whether the command has not ended yet."""
        return self._started.status is None

    @property
    def output(self) -> str:
        """What the command has written to stdout by now."""
        return str(self._started.output)

    @property
    def errors(self) -> str:
        """What the command has written to stderr by now."""
        return str(self._started.errors)

    def wait(self, timeout: float = COMMAND_S) -> Execution:
        """Wait for the command's end; `CommandFailed` if it has not ended after `timeout` seconds."""
        status = self._machine.wait_for(self._started, timeout)
        if status is None:
            text = self.output + self.errors
            raise CommandFailed(self._machine.name, self._command, None, text)
        return Execution(status, self.output)

    def kill(self, signal: int = 15) -> None:
        """Send a signal to the command and what it has started."""
        self._started.kill(signal)


def shell_words(command: str) -> list[str]:
    """Return the words that run `command` in bash."""
    return ["bash", "-euo", "pipefail", "-c", command]
