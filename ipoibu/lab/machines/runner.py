# SPDX-License-Identifier: BSD-2-Clause
"""The processes of machines: one boots the lab kernel, runs a command, and has a Result at its end.

A machine is one User-mode Linux kernel: a process of this user, with the host's file tree as its
read-only root. README.md describes what a command has in there. A machine reads and writes the run's
directory only. Its processes are one session, which `LabMachine.close` ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import resource
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ipoibu.base.closing import Starting
from ipoibu.base.limits import MACHINE_FILE_MAX_BYTES
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.kinship import may_be_traced, set_subreaper
from ipoibu.lab.machines.memory import memory_place
from ipoibu.lab.machines.mounts import (
    HOST,
    INSIDE,
    MODULE_COMMANDS,
    ROOT,
    SHARE,
    Root,
    Share,
    fstab,
)
from ipoibu.lab.machines.shared import SharedDirectory
from ipoibu.lab.machines.stream import OUTPUT_BYTES, Stream, end_of

if TYPE_CHECKING:
    pass

SCENARIOS = INSIDE.parent / "scenarios"

MEMORY_MIB = 512  # of a machine that asks for nothing else
GRACE_S = 3.0  # the other machines get this long to end when one machine has failed
STATUS_BYTES = 16  # of the file with the command's exit status
MEMORY_FILE_BYTES = (1 << 30) + (
    64 << 20
)  # beyond memory: a random gap of at most 1 GiB, and the program
CLOSE_S = 10.0  # SIGKILL to end of file; more means that a process has escaped
BUILT_IN = ("modules.builtin", "modules.builtin.modinfo")  # beside the kernel; kmod reads them
INITS = ("lab", "systemd")  # process 1 of a machine

# Kernel argument: rxe devices look like InfiniBand ports (kernel/sources, rxe_ib.c).
INFINIBAND = ("rdma_rxe.ib=1",)

# A healthy kernel never logs these, whatever the scenario does.
_COMPLAINT = re.compile(
    r"^.*(?:Kernel panic|BUG:|WARNING:|Oops|unregister_netdevice: waiting).*$", re.MULTILINE
)
_CRASH = re.compile(r"^.*(?:Kernel panic|Oops).*$", re.MULTILINE)
_runs = itertools.count(os.getpid())  # of this process; others begin elsewhere


class MachineFailed(LabError):
    """A machine's command or kernel failed; the message has the end of its output and kernel log."""


@dataclass(frozen=True)
class Result:
    """The result of a machine that has ended.

    `status` is the command's exit status (128 + n after signal n), or None when the machine ended
    without one. `failure` says why the machine, not the command, failed: it ran out of time, its kernel
    logged a complaint, or the runner ended it because another machine failed, which then is `culprit`;
    None otherwise. `victims` are the machines that the runner ended because this one failed: the cause is
    often theirs, and each says at the end of its output what it was doing. `kernel_log` begins with
    UML's own messages; `has_complaint` says that `failure` is a line of it.
    """

    name: str
    status: int | None
    output: str
    kernel_log: str
    failure: str | None
    duration_s: float
    culprit: Result | None = None
    victims: tuple[Result, ...] = ()
    has_complaint: bool = False

    @property
    def succeeded(self) -> bool:
        """True if the command returned 0 and nothing was wrong with the machine."""
        return self.status == 0 and self.failure is None

    def check(self) -> Self:
        """Return itself; raise MachineFailed unless the command returned 0 and the kernel was quiet.

        The error is about the machine that failed first.
        """
        if self.succeeded:
            return self
        if self.culprit is not None:
            self.culprit.check()
        text = (
            f"machine {self.name}: {self.failure or f'exit status {self.status}'} "
            f"(after {self.duration_s:.1f} s)\n--- output\n{end_of(self.output.rstrip())}\n"
            f"--- end of the kernel log\n{_tail(self.kernel_log, 25)}"
        )
        for victim in self.victims:
            text += f"\n--- end of the output of machine {victim.name}\n{_tail(victim.output, 60)}"
        raise MachineFailed(text)


def shell(script: str) -> list[str]:
    """Return the command that runs `script` in bash -eu with the functions of inside/*.sh."""
    return ["bash", "-euo", "pipefail", "-c", prelude() + script]


def prelude(*scripts: Path) -> str:
    """Return lines of bash that define the functions of inside/*.sh, and of `scripts`."""
    return '. "$LAB_INSIDE/meeting.sh"\n' + (source(*scripts) if scripts else "")


def source(*scripts: Path) -> str:
    """Return the line of bash that defines the functions of `scripts`."""
    return "; ".join(f". {shlex.quote(str(script))}" for script in scripts) + "\n"


def python(function: Callable[..., object] | str, *args: str) -> list[str]:
    """Return the command that calls `function`, given as such or as MODULE:NAME, with `args`.

    The machine imports the function's module anew, so that module should have no heavy imports.
    """
    if not isinstance(function, str):
        function = f"{function.__module__}:{function.__qualname__}"
    return [sys.executable, "-m", "ipoibu.lab.machines.inside.call", function, *args]


def cpus(count: int) -> Sequence[int | None]:
    """Return the CPU of each machine of the next run."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < count:
        return [None] * count
    first = next(_runs) % len(usable)
    return [*usable[first:], *usable[:first]][:count]


def announce_failure(directory: Path) -> None:
    """Let all machines of the run in `directory` append to their output what they are doing (inside/init)."""
    with contextlib.suppress(FileExistsError), SharedDirectory(directory) as shared:
        shared.create("failed").close()


def _wait_any(machines: Sequence[LabMachine], deadline: float) -> list[LabMachine]:
    """Return the machines that have ended, or none at `deadline`, a time of the monotonic clock."""
    with selectors.DefaultSelector() as selector:
        for machine in machines:
            selector.register(machine.pidfd, selectors.EVENT_READ, machine)
        ready = selector.select(max(0.0, deadline - time.monotonic()))
    return [key.data for key, _ in ready]


class LabMachine(Starting):
    """One machine: `start`, then `finish` for its Result; `close` ends it and is always safe.

    `Lab` starts it, from a thread that outlives it: the host kills the machine when its starting thread ends.
    """

    def __init__(
        self,
        kernel: Path,
        command: Sequence[str],
        directory: Path,
        *,
        name: str = "a",
        index: int = 1,
        count: int = 1,
        wire_fd: int | None = None,
        wire_mtu: int = 9000,
        cpu: int | None = None,
        mem_mib: int = MEMORY_MIB,
        kernel_arguments: Sequence[str] = (),
        agent_fd: int | None = None,
        is_writable: bool = False,
        init: str = "lab",
        root: Root = HOST,
        share: Share | None = None,
        tolerates_warnings: bool = False,
    ) -> None:
        """Describe a machine; `start` boots it.

        The machines of a run share `directory`; `index` (from 1) gives the MAC of vec0, which exists if
        `wire_fd` does; its driver takes no MTU above 1500 later than at the boot. `cpu` is the host's CPU
        that the machine is bound to: its kernel and the processes of its programs take turns, and waking
        another CPU for each turn takes long. `agent_fd` is the other end of the machine's line /dev/ttyS1.
        A writable machine may change all files of `root` for itself; so may one that has a `share`, which
        needs that. `init` is process 1: "systemd" needs a kernel of the flavour full, and makes the machine
        writable. Only a panic or an Oops fails a machine that `tolerates_warnings`.
        """
        if init not in INITS:
            raise LabError(f"no process 1 {init}; there are: {' '.join(INITS)}")
        for path in (directory, *root.paths(), *([share.path] if share else [])):
            if re.search(r'[\s,"]', str(path)):
                raise LabError(f"the kernel command line cannot carry this path: {path}")
        self.name = name
        self.directory = directory.resolve()
        self._kernel = kernel
        self._command = command
        self._index = index
        self._count = count
        self._wire_fd = wire_fd
        self._wire_mtu = wire_mtu
        self._cpu = cpu
        self._mem_mib = mem_mib
        self._kernel_arguments = tuple(kernel_arguments)
        self._agent_fd = agent_fd
        self._is_writable = is_writable or share is not None or init == "systemd"
        self._init = init
        self._root = root
        self._share = share
        self._tolerates_warnings = tolerates_warnings
        self._process: subprocess.Popen[bytes] | None = None
        self._streams: list[Stream] = []
        self.shared: SharedDirectory | None = None  # the machine's own directory, while it runs
        self._started_s = 0.0
        self.pidfd = -1
        self._result: Result | None = None
        self._ending = threading.Lock()  # `kill` comes from another thread

    def start(self) -> None:
        """Boot; the command runs a quarter of a second later."""
        for program in ("prlimit", "setpriv", "taskset"):
            if shutil.which(program) is None:
                raise LabError(f"{program} is missing; run: apt-get install util-linux")
        here = self.directory / self.name
        if here.exists():
            raise LabError(f"{here} is there from another run; each run needs its own directory")
        for part in (self.directory / "meetings", self.directory / "values", here / "uml"):
            part.mkdir(parents=True, exist_ok=True)
        (here / "dev").mkdir()  # links that udev makes on other machines; init copies them
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            (here / "dev" / name).symlink_to(f"/proc/self/fd{target}")
        (here / "commands").mkdir()
        for name in MODULE_COMMANDS:
            (here / "commands" / name).symlink_to(INSIDE / "kmod")
        for name in BUILT_IN:  # a copy, since the kernel may be in a private place
            built_in = self._kernel.resolve().parent / name
            (here / name).write_bytes(built_in.read_bytes() if built_in.exists() else b"")
        (here / "command").write_text(self._script())
        (here / "command").chmod(0o755)
        (here / "fstab").write_text(fstab(self.directory, self._share, self._root))
        self.shared = SharedDirectory(here)
        self._started_s = time.monotonic()
        self._streams = [Stream(here / "output"), Stream(here / "kernel.log")]
        inherited = [stream.write_fd for stream in self._streams]
        inherited += [fd for fd in (self._wire_fd, self._agent_fd) if fd is not None]
        try:
            memory, unfit = memory_place(self._count * self._mem_mib << 20)
            with (here / "host.log").open("wb") as host_log:
                for place in unfit:
                    host_log.write(f"memory in {memory.path}: {place.path} {place.lack}\n".encode())
                host_log.flush()
                self._process = subprocess.Popen(
                    self._arguments(),
                    env={"PATH": os.defpath, "TMPDIR": str(memory.path)},
                    stdin=subprocess.DEVNULL,
                    stdout=host_log,
                    stderr=subprocess.STDOUT,
                    pass_fds=inherited,
                    restore_signals=False,  # Python ignores SIGXFSZ, and so shall the machine's kernel
                    start_new_session=True,
                )
            self.pidfd = os.pidfd_open(self._process.pid)
        finally:
            for stream in self._streams:
                stream.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the machine has ended by itself, or for `timeout_s`."""
        if self._result is None and self.pidfd >= 0:
            _wait_any([self], time.monotonic() + timeout_s)

    def kill(self) -> None:
        """End the machine's kernel; any thread may call it, and `finish` is still to come."""
        with self._ending:
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def add_output(self, data: bytes) -> None:
        """Add to the machine's output what has come on another way."""
        self._streams[0].add(data)

    def finish(self, reason: str = "closed while it ran", culprit: Result | None = None) -> Result:
        """Close the machine and return its result.

        If it was still running, `reason` is the failure, and `culprit` the machine that caused it. A second
        call returns the same result.
        """
        if self._result is None:
            self._result = self._finish(reason, culprit)
        return self._result

    def _finish(self, reason: str, culprit: Result | None) -> Result:
        assert self.shared is not None
        ended = bool(_wait_any([self], 0))
        duration_s = time.monotonic() - self._started_s
        self._end()
        output, kernel_log = (stream.text() for stream in self._streams)
        host_log, said = (
            self.shared.read_untrusted(name, limit_bytes).decode(errors="replace")
            for name, limit_bytes in (("host.log", OUTPUT_BYTES), ("status", STATUS_BYTES))
        )
        self.close()
        kernel_log = host_log + kernel_log
        status: int | None = None
        failure: str | None = None
        try:
            status = int(said)
        except ValueError:
            failure = "the machine ended without an exit status"
        if not ended:
            failure = reason
        if complaint := (_CRASH if self._tolerates_warnings else _COMPLAINT).search(kernel_log):
            failure = complaint.group().strip()
        cause = None if ended else culprit
        return Result(
            self.name,
            status,
            output,
            kernel_log,
            failure,
            duration_s,
            cause,
            has_complaint=complaint is not None,
        )

    def close(self) -> None:
        """End the machine and all of its processes at once; a second call does nothing."""
        self._end()
        if self.shared is not None:
            self.shared.close()

    def _end(self) -> None:
        if self.pidfd >= 0 and self._process is not None:
            # UML runs each machine process in a host process of its session. Those outlive a killed kernel
            # for a moment as orphans: adopt and reap them, since process 1 of a container may not.
            set_subreaper(True)
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
                _reap_group(self._process.pid)
            finally:
                set_subreaper(False)
            with self._ending:
                os.close(self.pidfd)
                self.pidfd = -1
        for stream in self._streams:
            stream.join(CLOSE_S)

    def _arguments(self) -> list[str]:
        output, kernel_log = (stream.write_fd for stream in self._streams)
        here = self.directory / self.name
        bound = () if self._cpu is None else ("taskset", "--cpu-list", str(self._cpu))
        # Its memory is a file, too.
        file_bytes = max(MACHINE_FILE_MAX_BYTES, (self._mem_mib << 20) + MEMORY_FILE_BYTES)
        soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
        limited = ("prlimit", f"--fsize={file_bytes}:")
        arguments = [
            *bound,
            *(limited if soft == resource.RLIM_INFINITY or soft > file_bytes else ()),
            # The kernel dies with the runner, and takes its processes along (um-exitkill.patch).
            *("setpriv", "--pdeathsig", "KILL", str(self._kernel)),
            # For 7.3, whose threads fall behind in filters of system calls (bench/notes/lab-filters.md).
            f"seccomp={'off' if may_be_traced() else 'on'}",
            f"mem={self._mem_mib}M",
            # No interface that nobody asked for.
            *("bonding.max_bonds=0", "dummy.numdummies=0", "ifb.numifbs=0", "fb_tunnels=none"),
            "rng_core.default_quality=1000",  # Linux 6.1 does not trust the host's random numbers
            *self._root.kernel_arguments(),
            *("con=null", "ssl=null", "console=tty0"),
            *(f"con0=null,fd:{kernel_log}", f"ssl0=null,fd:{output}"),
            *(f"uml_dir={here}/uml/", f"umid={self.name}"),
            *(f"LAB_DIRECTORY={self.directory}", f"LAB_NAME={self.name}"),
            *(f"LAB_INIT={self._init}", f"LAB_INDEX={self._index}"),
            *self._kernel_arguments,
        ]
        if self._is_writable:
            arguments.append("LAB_WRITABLE=1")
        if self._share is not None and not self._share.is_read_only:
            arguments.append("LAB_SHARE_WRITABLE=1")
        if self._agent_fd is not None:
            arguments.append(f"ssl1=fd:{self._agent_fd}")
        if self._wire_fd is not None:
            mac = f"02:00:00:00:00:{self._index:02x}"
            wire = f"fd={self._wire_fd},mac={mac},mtu={self._wire_mtu}"
            arguments.append(f"vec0:transport=fd,{wire},depth=64")
        return arguments

    def _script(self) -> str:
        """Return the bash script that sets the environment and becomes the command."""
        variables = {
            "HOME": "/tmp",
            "LANG": "C.UTF-8",
            "LAB_COUNT": str(self._count),
            "LAB_INDEX": str(self._index),
            "LAB_INSIDE": str(INSIDE),
            "LAB_NAME": self.name,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONUNBUFFERED": "1",
            **self._root.environment(f"/run/lab/{self.name}/commands"),
        }
        lines = [
            "#!/bin/bash",
            *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
            f"cd {shlex.quote(str(SHARE if self._share else ROOT))}",
            f"exec {shlex.join(map(self._root.word, self._command))}",
        ]
        return "\n".join(lines) + "\n"


def _reap_group(group: int) -> None:
    """Wait for the children of this process in `group`, to which `close` has sent SIGKILL."""
    try:
        while True:
            os.waitpid(-group, 0)
    except ChildProcessError:
        return


def _tail(text: str, lines: int) -> str:
    return end_of("\n".join(text.splitlines()[-lines:]))
