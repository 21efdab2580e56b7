# SPDX-License-Identifier: BSD-2-Clause
"""The host's side of a machine's agent (ext/agent), which runs commands in the machine.

Both sides send frames over a serial line: "LAB", a type, the number of a command, a length, and so many
bytes. What a program in the machine writes into the line between frames is skipped.

| type | from the host | | type | from the agent |
|---|---|---|---|---|
| S | bytes for the kernel's random numbers | | H | it is there |
| R | run: flags, then arguments that end with NUL | | O, E | output, errors |
| I | input, to a terminal | | X | exit status; output may follow from the background |
| W | rows and columns of a terminal | | N | why it did not run the command |
| K | a signal for the command's session | | | |
| Q | write files, then end | | Q | all files are written |
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from ipoibu.base.closing import Closing
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.stream import Output

MERGED: Final = 1  # errors go to the output, in order
TERMINAL: Final = 2  # the command has a terminal

REQUEST_BYTES: Final = 60_000  # of a command's arguments
SEED_BYTES: Final = 64
_HEADER: Final = struct.Struct("=3scII")
_PAYLOAD_BYTES: Final = 1 << 16
_INPUT_BYTES: Final = 1 << 10

Log = Callable[[bytes], None]


class MachineEnded(LabError):
    """The machine has ended, so its agent answers no more."""


class Refused(LabError):
    """The agent could not start a command; the message says why."""


class Command:
    """A command that an `Agent` has started; any thread may use it."""

    def __init__(
        self, agent: Agent, number: int, argv: Sequence[str], on_output: Log | None = None
    ) -> None:
        self.on_output = on_output
        self._agent = agent
        self._number = number
        self.argv = tuple(argv)
        self.output = Output()
        self.errors = Output()
        self.status: int | None = None
        self.refusal: str | None = None
        self.started_s = time.monotonic()
        self.ended_s: float | None = None

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit status (128 + n after signal n), or None if the command still runs then.

        `MachineEnded` if the machine ends first, `Refused` if its agent could not start the command.
        """
        self._agent.wait_for(lambda: self.has_ended, timeout_s)
        if self.refusal is not None:
            raise Refused(f"{self.argv[0]}: {self.refusal}")
        return self.status

    @property
    def has_ended(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self.status is not None or self.refusal is not None

    def kill(self, signal: int = 15) -> None:
        """Send a signal to the command and all processes of its session."""
        self._agent.send(b"K", self._number, bytes([signal]))

    def write(self, data: bytes) -> None:
        """Type `data` into the command's terminal."""
        for start in range(0, len(data), _INPUT_BYTES):
            self._agent.send(b"I", self._number, data[start : start + _INPUT_BYTES])

    def resize(self, rows: int, columns: int) -> None:
        """Tell the command's terminal its size."""
        self._agent.send(b"W", self._number, struct.pack("=HH", rows, columns))


class Agent(Closing):
    """Runs commands in one machine; any thread may call it, a thread of its own listens.

    `log` gets the output of every command as it comes, on that thread; it must not wait for a command.
    `changed` is notified when a command or the machine ends; several agents may share it.
    """

    def __init__(
        self,
        channel: socket.socket,
        log: Log = lambda data: None,
        changed: threading.Condition | None = None,
    ) -> None:
        self._channel = channel
        self._log = log
        self._commands: dict[int, Command] = {}
        self._changed = changed or threading.Condition()
        self._sending = threading.Lock()
        self._last = 0
        self._is_ready = False
        self._is_done = False
        self._has_ended = False
        self.skipped_bytes = 0  # that were no frames
        self._thread = threading.Thread(target=self._listen, name="lab-agent", daemon=True)
        self._thread.start()

    def wait_until_ready(self, timeout_s: float) -> bool:
        """Return True as soon as the agent answers, False after `timeout_s`; give it random numbers."""
        if not self.wait_for(lambda: self._is_ready, timeout_s):
            return False
        self.send(b"S", 0, os.urandom(SEED_BYTES))
        return True

    def run(self, argv: Sequence[str], flags: int = 0, on_output: Log | None = None) -> Command:
        """Start a command; `on_output` gets its output, too, on the agent's thread.

        `LabError` if it is too long, `MachineEnded` if there is no machine any more.
        """
        words = b"".join(os.fsencode(word) + b"\0" for word in argv)
        if len(words) > REQUEST_BYTES:
            raise LabError(
                f"a command of {len(words)} bytes: at most {REQUEST_BYTES}; put it into a file"
            )
        with self._changed:
            self._last += 1
            number = self._last
            command = self._commands[number] = Command(self, number, argv, on_output)
        self.send(b"R", number, bytes([flags]) + words)
        return command

    def ask_to_finish(self) -> None:
        """Ask the agent to write all files and to end, which ends the machine."""
        with contextlib.suppress(MachineEnded):
            self.send(b"Q", 0, b"")

    def wait_until_finished(self, timeout_s: float) -> bool:
        """Wait for the agent's end, if it has ever answered; return False if the machine ended without."""
        try:
            self.wait_for(lambda: self._is_done or not self._is_ready, timeout_s)
        except MachineEnded:
            return False
        return True

    def close(self) -> None:
        """Close the line; commands that run get `MachineEnded`."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._channel.close()

    def wait_for(self, true: Callable[[], bool], timeout_s: float | None) -> bool:
        """Wait until `true` holds; False after `timeout_s`; `MachineEnded` if the machine has ended."""
        with self._changed:
            self._changed.wait_for(lambda: true() or self._has_ended, timeout_s)
            if true():
                return True
            if self._has_ended:
                raise MachineEnded("the machine has ended")
            return False

    @property
    def has_ended(self) -> bool:
        """Whether the machine has ended."""
        return self._has_ended

    def send(self, kind: bytes, number: int, payload: bytes) -> None:
        frame = _HEADER.pack(b"LAB", kind, number, len(payload)) + payload
        with self._sending:
            try:
                self._channel.sendall(frame)
            except OSError as error:
                raise MachineEnded("the machine has ended") from error

    def _listen(self) -> None:
        received = bytearray()
        try:
            with contextlib.suppress(OSError):
                while data := self._channel.recv(1 << 16):
                    received += data
                    self._parse_untrusted(received)
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _parse_untrusted(self, received: bytearray) -> None:
        """Take the whole frames out of `received`, and skip what is none."""
        while received:
            if not received.startswith(b"LAB"[: len(received)]):
                self._skip(received)
                continue
            if len(received) < _HEADER.size:
                return
            _, kind, number, length = _HEADER.unpack_from(received)
            if length > _PAYLOAD_BYTES:
                self._skip(received)
                continue
            end = _HEADER.size + length
            if len(received) < end:
                return
            payload = bytes(received[_HEADER.size : end])
            del received[:end]
            self._take_untrusted(kind, number, payload)

    def _skip(self, received: bytearray) -> None:
        """Skip to the next byte with which a frame may begin."""
        next_start = received.find(b"L", 1)
        skipped = len(received) if next_start < 0 else next_start
        self.skipped_bytes += skipped
        del received[:skipped]

    def _take_untrusted(self, kind: bytes, number: int, payload: bytes) -> None:
        command = self._commands.get(number)
        if kind in (b"O", b"E") and command is not None:
            (command.output if kind == b"O" else command.errors).add(payload)
            if command.on_output is not None:
                command.on_output(payload)
        if kind in (b"O", b"E"):  # of the background, too, when its command has ended
            self._log(payload)
            return
        with self._changed:
            if kind == b"H":
                self._is_ready = True
            elif kind == b"Q":
                self._is_done = True
            elif command is not None and kind == b"X" and len(payload) == 4:
                command.ended_s = time.monotonic()
                command.status = int.from_bytes(payload, "little") & 0xFF
                del self._commands[number]
            elif command is not None and kind == b"N":
                command.refusal = payload.decode(errors="replace")
                del self._commands[number]
            self._changed.notify_all()
