# SPDX-License-Identifier: BSD-2-Clause
"""An InfiniBand fabric without hardware: ibsim simulates it, OpenSM manages it.

It needs the Debian packages opensm, ibsim-utils and libumad2sim0, and infiniband-diags for `saquery`
and similar programs. The environment makes a program a host: the preloaded libumad2sim replaces
/sys/class/infiniband and /dev/infiniband. Every fabric has its own socket name, so several can run at
once.

ibsim has no verbs, no tables longer than a datagram, no reports to hosts and no MTU above 2048.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Final

from ipoibu.base.closing import Starting
from ipoibu.base.errors import IpoibuError
from ipoibu.rootless.process import end_with_parent

PACKAGES: Final = ("opensm", "ibsim-utils", "libumad2sim0", "infiniband-diags")
DEVICE: Final = "ibsim0"
HOSTS_MAX: Final = 9  # ibsim serves ten clients, and OpenSM is one
START_S: Final = 60.0  # a second on an idle machine
CONNECTS: Final = 50  # attempts of a diagnostic program to reach ibsim
CONNECT_DELAY_S: Final = 0.2
_PROMPT: Final = b"sim> "
_REFUSAL: Final = "sim_init: connect failed"
_LATE: Final = "umad_recv failed"  # saquery waits a second for OpenSM
STOP_S: Final = 3.0
MASTER: Final = "MASTER"  # states of an OpenSM, as its log names them
STANDBY: Final = "STANDBY"
_PROGRAMS: Final = ("ibsim", "opensm", "saquery")
_LIBRARY: Final = "umad2sim/libumad2sim.so"


class SimulationError(IpoibuError):
    """The simulated fabric cannot be started, or did not come up."""


def missing() -> list[str]:
    """Return the programs and libraries that this host lacks for a simulated fabric."""
    lacking = [name for name in _PROGRAMS if shutil.which(name) is None]
    return lacking if _libraries() else [*lacking, _LIBRARY]


def _libraries() -> list[Path]:
    return sorted(Path("/usr/lib").glob(f"*/{_LIBRARY}"))


def port_guid(host: int) -> int:
    """Return the port GUID that ibsim gives to the n-th host; OpenSM runs on host 1."""
    return 0x100000 + 2 * host - 1


class Ibsim(Starting):
    """A switch with `hosts` hosts, one of them for OpenSM; files go to `directory`, which must exist.

    `environment` makes any program host 2, 3 ...; the program must run in `directory`, and each host
    runs one program at a time. `close` ends every process that this object started.
    """

    def __init__(self, directory: Path, hosts: int = 4) -> None:
        if lacking := missing():
            what = ", ".join(lacking)
            raise SimulationError(f"{what} not found: apt-get install {' '.join(PACKAGES)}")
        if not 1 <= hosts <= HOSTS_MAX:
            raise SimulationError(f"ibsim serves up to {HOSTS_MAX} hosts, not {hosts}")
        self.directory = directory
        self.log = directory / "opensm.log"
        self.partitions = directory / "partitions.conf"
        self._environment = {
            **os.environ,
            "LD_PRELOAD": str(_libraries()[0]),
            "IBSIM_SOCKNAME": f"ipoibu-{os.getpid()}-{secrets.token_hex(4)}",
            "OSM_TMP_DIR": str(directory),
            "OSM_CACHE_DIR": str(directory),
        }
        self._hosts = hosts
        self._ibsim: subprocess.Popen[bytes] | None = None
        self._opensm: subprocess.Popen[bytes] | None = None
        self._standby: subprocess.Popen[bytes] | None = None
        self._starts = 0
        self._standby_directory = directory / "standby"
        self._console = directory / "ibsim.out"

    # ---- the fabric

    def start(self) -> None:
        """Start ibsim; the subnet has no manager yet."""
        topology = self.directory / "net.txt"
        topology.write_text(_topology(self._hosts), "ascii")
        environment = {k: v for k, v in self._environment.items() if k != "LD_PRELOAD"}
        output = self._console
        # ibsim reads commands, and exits at the end of its input: it gets a pipe
        with output.open("wb") as out:
            self._ibsim = self._run(
                ["ibsim", "-s", str(topology)], environment, out, subprocess.PIPE
            )
        self._await(lambda: b"simulator ready" in output.read_bytes(), self._ibsim, output)

    def close(self) -> None:
        """End OpenSM and ibsim; a second call does nothing."""
        self.kill_opensm()
        self.kill_standby()
        if self._ibsim is not None:
            if self._ibsim.stdin is not None:
                self._ibsim.stdin.close()
            _end(self._ibsim)
            self._ibsim = None

    def release(self, pid: int) -> None:
        """Free the place of a program that was killed: ibsim keeps it until it fails to send there, and
        it has ten."""
        if self._ibsim is None:
            return
        for client, owner in re.findall(rb"Client (\d+): pid (\d+) ", self._command("Attached")):
            if int(owner) == pid:
                self._command(f"X {int(client)}")

    def _command(self, words: str) -> bytes:
        """Return what ibsim prints for a command, up to its next prompt."""
        assert self._ibsim is not None
        assert self._ibsim.stdin is not None
        before = self._console.stat().st_size

        def printed() -> bytes:
            return self._console.read_bytes()[before:]

        self._ibsim.stdin.write(words.encode("ascii") + b"\n")
        self._ibsim.stdin.flush()
        self._await(lambda: _PROMPT in printed(), self._ibsim, self._console)  # warnings may follow
        return printed()

    # ---- its manager

    def start_opensm(self, partitions: str) -> None:
        """Start OpenSM on host 1 with a partitions.conf, and wait until the subnet is up."""
        self.partitions.write_text(partitions, "utf-8")
        self._starts += 1
        self.log = self.directory / f"opensm-{self._starts}.log"
        output = self.directory / f"opensm-{self._starts}.out"
        command = ["opensm", "-P", str(self.partitions), "-f", str(self.log)]
        command += ["-d2"]  # flush the log, which we read
        with output.open("wb") as out:
            self._opensm = self._run(command, self.environment(1), out, subprocess.DEVNULL)
        self._await(lambda: self._sweeps() > 0, self._opensm, output)

    def kill_opensm(self) -> None:
        """Kill OpenSM as a power failure would: it sends no notice."""
        if self._opensm is not None:
            self._kill(self._opensm)
            self._opensm = None

    def is_master(self) -> bool:
        """Return whether OpenSM of host 1 manages the subnet: on a busy machine a standby that got its
        answers too late may have become the master."""
        return _states(self.log)[-1:] == [MASTER]

    def start_standby(self, host: int) -> bool:
        """Start a second OpenSM, which takes over about three seconds after the first one dies.

        Return whether it is a standby. On a busy machine the first one may answer it too late, and it
        becomes a master, too.
        """
        directory = self._standby_directory
        directory.mkdir(exist_ok=True)
        options, log = directory / "opensm.conf", directory / "opensm.log"
        log.unlink(missing_ok=True)
        options.write_text("sminfo_polling_timeout 1000\npolling_retry_number 6\n", "ascii")
        environment = self.environment(host) | {
            "OSM_TMP_DIR": str(directory),
            "OSM_CACHE_DIR": str(directory),
        }
        output = directory / "opensm.out"
        command = ["opensm", "-F", str(options), "-P", str(self.partitions), "-f", str(log), "-d2"]
        with output.open("wb") as out:
            self._standby = self._run(command, environment, out, subprocess.DEVNULL)
        self._await(lambda: bool(_states(log)), self._standby, output)
        return MASTER not in _states(log)

    def kill_standby(self) -> None:
        """Kill the standby, or the master that it has become."""
        if self._standby is not None:
            self._kill(self._standby)
            self._standby = None

    def await_standby(self) -> None:
        """Wait until the standby manages the subnet."""
        log = self._standby_directory / "opensm.log"
        assert self._standby is not None, "start_standby comes first"

        def manages() -> bool:
            """It may have been master for a moment, as it started."""
            text = log.read_text("utf-8", "replace")
            is_up = text.rfind("SUBNET UP") > text.rfind(f"Entering {MASTER}")
            return is_up and _states(log)[-1:] == [MASTER]

        self._await(manages, self._standby, log)

    def reload(self, partitions: str) -> None:
        """Change partitions.conf, and make OpenSM read it (SIGHUP)."""
        assert self._opensm is not None, "start_opensm comes first"
        self.partitions.write_text(partitions, "utf-8")
        before, opensm, signalled = self._sweeps(), self._opensm, 0.0

        def has_swept() -> bool:
            """OpenSM may miss a signal that arrives during a sweep, so it gets one a second. The first sweep
            to end may have begun before the change."""
            nonlocal signalled
            if time.monotonic() - signalled >= 1:
                signalled = time.monotonic()
                opensm.send_signal(signal.SIGHUP)
            return self._sweeps() > before + 1

        self._await(has_swept, opensm, self.log)

    def refresh(self, asker: int) -> None:
        """Copy the P_Keys and the SM's LID from the ports into the hosts' /sys files.

        A kernel keeps these files up to date; libumad2sim writes them once, when a program starts.
        `asker` is a free host, on which the query programs run.
        """
        for port in self.directory.glob(f"sys-*/sys/class/infiniband/{DEVICE}/ports/1"):
            lid = int((port / "lid").read_text("ascii"), 0)
            if lid:
                table = _pkeys(self.output(asker, "smpquery", "pkeys", str(lid)))
                for index, pkey in enumerate(table):
                    _write(port / "pkeys" / str(index), f"0x{pkey:04x}")
                sm_lid = _field(self.output(asker, "smpquery", "portinfo", str(lid)), "SMLid")
                _write(port / "sm_lid", f"0x{sm_lid:x}")

    # ---- its hosts

    def environment(self, host: int) -> dict[str, str]:
        """Return the environment that makes a program one of the hosts."""
        return {**self._environment, "SIM_HOST": f"Hca{host}"}

    def output(self, host: int, *command: str) -> str:
        """Return the output of a diagnostic program on a host.

        It runs again if OpenSM is late, or ibsim refuses it while it parts from another one that was killed.
        """
        for _ in range(CONNECTS):
            done = subprocess.run(
                command,
                env=self.environment(host),
                cwd=self.directory,
                capture_output=True,
                text=True,
                timeout=START_S,
                check=False,
            )
            if not done.returncode:
                return done.stdout
            if _REFUSAL not in done.stderr and _LATE not in done.stderr:
                break
            time.sleep(CONNECT_DELAY_S)
        raise SimulationError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    # ---- processes

    def _run(
        self, command: list[str], environment: dict[str, str], output: IO[bytes], stdin: int
    ) -> subprocess.Popen[bytes]:
        """Start a program, which the kernel kills when the calling thread ends."""
        parent = os.getpid()
        return subprocess.Popen(
            command,
            env=environment,
            cwd=self.directory,
            stdin=stdin,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent, signal.SIGKILL),  # noqa: PLW1509
        )

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        process.wait()
        self.release(process.pid)

    def _sweeps(self) -> int:
        """Return how often OpenSM has brought the subnet up."""
        return self.log.read_bytes().count(b"SUBNET UP") if self.log.exists() else 0

    def _await(
        self, is_up: Callable[[], bool], process: subprocess.Popen[bytes], output: Path
    ) -> None:
        until = time.monotonic() + START_S
        while not is_up():
            if process.poll() is not None or time.monotonic() > until:
                tail = output.read_text("utf-8", "replace")[-2000:]
                raise SimulationError(f"{process.args!r}: not up; its output: {tail}")
            time.sleep(0.01)


def _states(log: Path) -> list[str]:
    """Return the states that an OpenSM has entered, in their order."""
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    return re.findall(rf"Entering ({MASTER}|{STANDBY})", text)


def _topology(hosts: int) -> str:
    """Return the topology in ibsim's format: tabs, and a blank line after every node."""
    numbers = range(1, hosts + 1)
    lines = [f'Switch\t{hosts} "S1"', *(f'[{n}]\t"Hca{n}"[1]' for n in numbers), ""]
    for number in numbers:
        lines += [f'Hca\t1 "Hca{number}"', f'[1]\t"S1"[{number}]', ""]
    return "\n".join(lines) + "\n"


def _pkeys(printed: str) -> list[int]:
    """Parse the table that smpquery prints: rows "   8: 0x0000 0x0000 ...", then a summary line."""
    rows = (line.partition(":") for line in printed.splitlines())
    return [int(word, 0) for at, _, row in rows if at.strip().isdecimal() for word in row.split()]


def _field(printed: str, name: str) -> int:
    """Parse a field that smpquery prints: "SMLid:.........1"."""
    lines = (line for line in printed.splitlines() if line.startswith(f"{name}:"))
    return int(next(lines).rpartition(".")[2])


def _write(file: Path, text: str) -> None:
    """Replace an existing file in one step if its text differs: a host may read it meanwhile."""
    if file.exists() and file.read_text("ascii") != text:
        new = file.with_name("new")
        new.write_text(text, "ascii")
        new.replace(file)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
