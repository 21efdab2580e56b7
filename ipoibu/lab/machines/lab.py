# SPDX-License-Identifier: BSD-2-Clause
"""A lab of virtual machines with InfiniBand, for tests.

with Lab(guests=3, mode="connected") as lab:
    lab.a.succeed("ping -c 1 " + lab.b.ipv4)
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from ipoibu.base.closing import Starting
from ipoibu.base.errors import UsageError
from ipoibu.lab.directory import work_directory
from ipoibu.lab.machines.agent import Agent, MachineEnded
from ipoibu.lab.machines.capture import Capture
from ipoibu.lab.machines.impairment import MEND_COMMAND, impair_command, impairments
from ipoibu.lab.machines.kernels import find_kernel
from ipoibu.lab.machines.machine import CommandFailed, Machine
from ipoibu.lab.machines.mounts import INSIDE, Share, choose_root
from ipoibu.lab.machines.plan import DEFAULT_PARTITIONS, NAMES, PARTITIONS, plan
from ipoibu.lab.machines.quota import Quota
from ipoibu.lab.machines.runner import MEMORY_MIB, LabMachine, MachineFailed, Result, cpus, shell
from ipoibu.lab.machines.switch import Switch
from ipoibu.lab.machines.wire import Wire

BOOT_S: Final = 120.0  # until all agents answer; a loaded host takes a few seconds
SYSTEMD_S: Final = 240.0  # the same with systemd, which runs some hundred programs first
SETUP_S: Final = 150.0  # until every machine has its devices and addresses
ENDING_S: Final = 5.0  # for a machine whose agent has ended
FINISH_S: Final = 10.0  # for a machine to write its files at the end
LINE: Final = "/dev/ttyS1"  # the agent's, in a machine

Output = Callable[[Machine, bytes], None]


class Lab(Starting):
    """Virtual machines on one wire, each with a kernel of its own; a context manager, which boots them.

    They are `lab.guests`, or `lab.a`, `lab.b` and so on. The words are those of `ipoibu lab --guests`:
    `ipoib` is `kernel` (the unmodified ib_ipoib), `ipoibu`, `ipoibu:soft` (on the built-in HCA), `none`,
    `mixed`, or a list of these such as `kernel,ipoibu`; `fabric` is `ib`, `roce`, `iwarp`, or `none`: no RDMA
    device, and vec0 is down, so that scripts do everything; `device` is what ipoibu runs on: `rxe0`,
    `soft:vec0` or `siw0`; `mode` is `datagram` or `connected`; `partitions` is a partitions.conf. `sm`
    machines, the first ones, run OpenSM, which manages the subnet; each port manages itself otherwise.
    `share` (`DIR` or `DIR:ro`) is /src in each machine: a writable copy, or the directory itself, read-only.
    `output` is a new directory, which stays: /run/lab in the machines, with each one's output and kernel log.
    `userland` has the machines' programs: `host`, `auto`, or the directory, archive or URL of one. `kernel`
    is a release, or the path of a kernel; `flavour` is `lean`, or `full` for what others' tests need; `init`
    is `systemd` for machines where that is process 1, which are of the flavour full. `memory`, in MiB, is
    that of each machine; `kernel_arguments` has for each machine the end of its kernel's command line.
    `impair` has netem's words, such as `loss 1% delay 5ms` or `a:loss 5%`, which apply once the machines are
    set up. `capture` is the file for the frames on the wire; `lab.capture` counts them. `print_output` gets
    what commands write as it comes, on threads of the lab.

    Enter it in a thread that outlives it: machines end with the thread that has started them. Any thread
    may use its machines. `UsageError` for wrong words, `LabError` if the host lacks something,
    `MachineFailed` if a machine fails; when the block ends, too, if a kernel has complained, unless
    `tolerate_warnings`: then only a panic or an Oops is a failure.
    """

    def __init__(
        self,
        guests: int = 2,
        *,
        kernel: str | Path | None = None,
        flavour: str | None = None,
        init: str = "lab",
        ipoib: str | None = None,
        fabric: str | None = None,
        device: str | None = None,
        mode: str = "datagram",
        partitions: str | Path | None = None,
        sm: int = 0,
        share: str | Path | None = None,
        output: str | Path | None = None,
        memory: int = MEMORY_MIB,
        kernel_arguments: Sequence[Sequence[str]] = (),
        impair: str | Sequence[str] = (),
        capture: str | Path | None = None,
        userland: str | None = None,
        tolerate_warnings: bool = False,
        print_output: Output | None = None,
    ) -> None:
        """Check the words; nothing runs before the block begins."""
        file = None if partitions is None else Path(partitions)
        self.plans: Final = plan(guests, ipoib, fabric, mode, file, sm=sm, device=device)
        self._has_sm = sm > 0
        self.guests: tuple[Machine, ...] = ()
        self._names = [it.name for it in self.plans]
        self._impairments = impairments(
            [impair] if isinstance(impair, str) else impair, self._names
        )
        self._capture_file = None if capture is None else Path(capture)
        self.capture: Capture | None = None
        self._partitions = file
        self._kernel = kernel
        self._flavour = "full" if init == "systemd" else flavour
        self._init = init
        self._userland = userland
        self.share: Final = None if share is None else Share.parse(str(share))
        self._output = None if output is None else Path(output)
        self._memory_mib = memory
        if kernel_arguments and len(kernel_arguments) != guests:
            raise UsageError(f"{len(kernel_arguments)} kernel_arguments for {guests} machines")
        self._kernel_arguments = kernel_arguments or [()] * guests
        self._tolerates_warnings = tolerate_warnings
        self._print_output = print_output
        self._stack = contextlib.ExitStack()
        self._machines: list[LabMachine] = []
        self._agents: list[Agent] = []
        self._changed = threading.Condition()
        self.results: list[Result] = []
        self.failure: MachineFailed | None = None
        self._quota: Quota | None = None
        self._excess: str | None = None  # why the lab has killed its machines

    def __getitem__(self, name: str) -> Machine:
        """Return a machine by its name; `KeyError`."""
        for machine in self.guests:
            if machine.name == name:
                return machine
        raise KeyError(name)

    def __getattr__(self, name: str) -> Machine:
        if name in tuple(NAMES) and "guests" in self.__dict__:
            with contextlib.suppress(KeyError):
                return self[name]
        raise AttributeError(f"a lab has no {name!r}")

    def start(self) -> None:
        """Boot the machines, and return when each has its devices and addresses; `with` calls it."""
        self._root = choose_root(
            self._userland,
            runs_ipoibu=any(it.runs_ipoibu for it in self.plans),
            runs_systemd=self._init == "systemd",
        )
        if isinstance(self._kernel, Path):
            kernel = self._kernel
        else:
            kernel = find_kernel(self._kernel, self._flavour)
        self.directory = self._make_directory()
        if self._partitions is not None:
            (self.directory / PARTITIONS).write_bytes(self._partitions.read_bytes())
        elif self._has_sm:
            (self.directory / PARTITIONS).write_text(DEFAULT_PARTITIONS, "ascii")
        with contextlib.ExitStack() as lines:
            if self._capture_file is not None:
                self.capture = self._stack.enter_context(Capture(self._capture_file, self._names))
            switch = Switch(len(self.plans)) if self._has_sm else None
            wire = self._stack.enter_context(Wire(len(self.plans), self.capture, switch))
            self._boot(kernel, wire, lines)
        self._quota = self._stack.enter_context(Quota(self.directory, self._kill))
        limit_s = SYSTEMD_S if self._init == "systemd" else BOOT_S
        deadline = time.monotonic() + limit_s
        for index, agent in enumerate(self._agents):
            try:
                if not agent.wait_until_ready(deadline - time.monotonic()):
                    raise self._failure(index, f"did not boot within {limit_s:g} s")
            except MachineEnded as error:
                raise self._failure(index) from error
        self._run_in_all(
            {it.name: shell(it.setup) for it in self.plans if it.setup},
            "the setup of the machine",
        )
        self._impair(self._impairments)

    def impair(self, words: str, *names: str) -> None:
        """Let the wire lose, delay and so on what the machines `names`, or all, send: in the words of netem.

        They replace what has been said of a machine before. `UsageError` for words that tc refuses.
        """
        self._impair(impairments([words], self._known(names)))

    def mend(self, *names: str) -> None:
        """Let the wire carry all frames of the machines `names`, or of all, at once."""
        self._run_in_all(
            {name: list(MEND_COMMAND) for name in self._known(names)}, "to mend the wire"
        )

    def close(self) -> None:
        """End the machines, and leave nothing behind but `output`.

        `results` then has each machine's, and `failure` is the error of the first that has failed, if any.
        """
        if self._quota is not None:
            self._quota.close()
        agents, self._agents = self._agents, []
        for agent in agents:
            agent.ask_to_finish()
        deadline = time.monotonic() + FINISH_S
        with self._stack:
            for agent, machine in zip(agents, self._machines, strict=False):
                has_lasted = agent.wait_until_finished(deadline - time.monotonic())
                if self._init == "systemd":  # inside/session writes the journal now
                    machine.wait(deadline - time.monotonic())
                result = machine.finish("the lab ended")
                self.results.append(result)
                if self.failure is None and (not has_lasted or result.has_complaint):
                    self.failure = failure_of(result, self._excess or "the machine ended")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        if error is None and self.failure is not None:
            raise self.failure
        if error is not None and self.failure is not None and not isinstance(error, MachineFailed):
            error.add_note(str(self.failure))

    def wait_for(self, true: Callable[[], bool], deadline: float | None = None) -> bool:
        """Wait until `true` holds, which a command's end decides; return False at `deadline`.

        `MachineFailed` if a machine ends meanwhile.
        """
        timeout_s = None if deadline is None else deadline - time.monotonic()
        with self._changed:
            self._changed.wait_for(
                lambda: true() or any(agent.has_ended for agent in self._agents), timeout_s
            )
        if true():
            return True
        for index, agent in enumerate(self._agents):
            if agent.has_ended:
                raise self._failure(index)
        return False

    def _make_directory(self) -> Path:
        if self._output is None:
            return self._stack.enter_context(work_directory("lab"))
        self._output.mkdir(parents=True, exist_ok=True)
        if any(self._output.iterdir()):
            raise UsageError(f"--output {self._output}: the directory is not empty")
        return self._output.resolve()

    def _boot(self, kernel: Path, wire: Wire, lines: contextlib.ExitStack) -> None:
        count = len(self.plans)
        guests = []
        for index, (it, cpu) in enumerate(zip(self.plans, cpus(count), strict=True)):
            ours, theirs = socket.socketpair()
            lines.enter_context(theirs)
            agent = self._stack.enter_context(Agent(ours, self._log_of(index), self._changed))
            self._agents.append(agent)
            machine = LabMachine(
                kernel,
                [str(INSIDE / "agent"), LINE],
                self.directory,
                name=it.name,
                index=it.index,
                count=count,
                wire_fd=wire.ends[index].fileno(),
                wire_mtu=it.wire_mtu,
                cpu=cpu,
                mem_mib=self._memory_mib,
                kernel_arguments=(*it.kernel_arguments, *self._kernel_arguments[index]),
                agent_fd=theirs.fileno(),
                is_writable=self.share is not None,
                root=self._root,
                share=self.share,
                tolerates_warnings=self._tolerates_warnings,
                init=self._init,
            )
            self._machines.append(machine)
            self._stack.enter_context(machine)
            assert machine.shared is not None
            guests.append(
                Machine(it, agent, machine.shared, lambda index=index: self._failure(index))  # type: ignore[misc]
            )
        self.guests = tuple(guests)

    def _kill(self, reason: str) -> None:
        """End all machines; what waits for one of them fails for that reason."""
        self._excess = reason
        for machine in self._machines:
            machine.kill()

    def _log_of(self, index: int) -> Callable[[bytes], None]:
        def log(data: bytes) -> None:
            self._machines[index].add_output(data)
            if self._print_output is not None:
                self._print_output(self.guests[index], data)

        return log

    def _known(self, names: Sequence[str]) -> Sequence[str]:
        for name in names:
            if name not in self._names:
                raise UsageError(f"there is no machine {name!r} but {', '.join(self._names)}")
        return names or self._names

    def _impair(self, words: dict[str, tuple[str, ...]]) -> None:
        self._run_in_all(
            {name: impair_command(its) for name, its in words.items()}, "to impair the wire"
        )

    def _run_in_all(self, commands: dict[str, list[str]], what: str) -> None:
        """Run a command in each machine that has one, side by side; `CommandFailed` names it `what`."""
        machines = [machine for machine in self.guests if machine.name in commands]
        started = [(machine, machine.run_words(commands[machine.name])) for machine in machines]
        deadline = time.monotonic() + SETUP_S
        for machine, command in started:
            status = machine.wait_for(command, deadline - time.monotonic())
            if status != 0:
                raise CommandFailed(machine.name, what, status, str(command.output))

    def _failure(self, index: int, reason: str = "the machine ended") -> MachineFailed:
        """Return the error of a machine that has ended, or end it now for a reason."""
        if self._agents and self._agents[index].has_ended:
            self._machines[index].wait(ENDING_S)  # it says why in its kernel log
        reason = self._excess or reason
        return failure_of(self._machines[index].finish(reason), reason)


def failure_of(result: Result, reason: str) -> MachineFailed:
    """Return the error of a machine that has failed; `reason` says why if its kernel has not complained."""
    if not result.has_complaint:
        result = replace(result, failure=reason)
    try:
        result.check()
    except MachineFailed as failure:
        return failure
    raise AssertionError(f"{result.name} has not failed")
