# SPDX-License-Identifier: BSD-2-Clause
"""One link of two machines: ipoibu on a real RDMA driver, and the kernel's own ib_ipoib.

    link = Link("rxe0", "datagram")
    status = link.show(find_kernel(), sys.stdout.buffer)

On iWARP, where the kernel has no IP over InfiniBand, ipoibu runs in both machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from ipoibu.base.errors import UsageError
from ipoibu.lab.directory import work_directory
from ipoibu.lab.machines.judge import (
    COMMON,
    KERNEL,
    LARGE,
    RXE,
    RXE_CM,
    SCRIPTS,
    SIW,
    SOFT,
    behaviours,
    boot,
)
from ipoibu.lab.machines.runner import SCENARIOS, MachineFailed, Result

NAMES: Final = ("h1", "h2")
# By device and mode: the two hosts. Our CM replaces the kernel's on a port without ib_cm.
HOSTS: Final = {
    ("rxe0", "datagram"): (RXE, KERNEL),
    ("rxe0", "connected"): (RXE_CM, KERNEL),
    ("soft:vec0", "datagram"): (SOFT, KERNEL),
    ("soft:vec0", "connected"): (SOFT, KERNEL),
    ("siw0", "datagram"): (SIW, SIW),
}
DEVICES: Final = tuple(dict.fromkeys(device for device, _ in HOSTS))
CHECK_S: Final = 150.0
COMMAND_S: Final = 86400.0  # a command may take a day


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that `host` tried towards the other host."""

    host: str
    behaviour: str
    ok: bool

    def as_dict(self) -> dict[str, Any]:
        return {"host": self.host, "check": self.behaviour, "ok": self.ok}

    def __str__(self) -> str:
        return f"{'ok  ' if self.ok else 'FAIL'}  {self.host}: {self.behaviour}"


class Link:
    """Two machines, h1 with ipoibu on `device` and h2; every call boots them anew."""

    def __init__(self, device: str, mode: str = "datagram") -> None:
        if device not in DEVICES:
            raise UsageError(f"--device {device!r}: expected one of {', '.join(DEVICES)}")
        if (device, mode) not in HOSTS:
            modes = ", ".join(mode for other, mode in HOSTS if other == device)
            raise UsageError(f"--mode {mode!r}: {device} has {modes}")
        self.mode = mode
        self.hosts = HOSTS[device, mode]

    def describe(self) -> list[dict[str, str]]:
        """Return the name, the kind and the addresses of each host."""
        return [
            {
                "name": name,
                "host": "the kernel's ib_ipoib" if host == KERNEL else f"ipoibu on {host}",
                "ipv4": f"10.9.0.{index}",
                "ipv6": f"fd00:9::{index}",
            }
            for index, (name, host) in enumerate(zip(NAMES, self.hosts, strict=True), 1)
        ]

    def show(self, kernel: Path, output: BinaryIO, command: Sequence[str] = ()) -> int:
        """Run `command` in h1, or show the link from both sides; return h1's exit status.

        Raise MachineFailed when a machine, not the command, fails.
        """
        with work_directory("lab") as directory:
            first, second = boot(
                kernel,
                directory,
                self.hosts,
                "lab",
                self.mode,
                *command,
                scripts=(*SCRIPTS, SCENARIOS / "lab_host.sh"),
                env={"LAB_PATIENCE_S": f"{COMMAND_S:.0f}"},
                timeout_s=COMMAND_S,
                copy_to=output,
            )
        if first.failure is not None or first.status is None:
            first.check()
        if first.status == 0:
            second.check()
            if not command:
                output.write(f"--- {NAMES[1]}\n{second.output}".encode())
        assert first.status is not None
        return first.status

    def check(self, kernel: Path) -> tuple[list[Outcome], MachineFailed | None]:
        """Let both hosts try everything towards each other; return the outcomes and a machine's failure."""
        with work_directory("lab") as directory:
            results = boot(kernel, directory, self.hosts, "judge", self.mode, timeout_s=CHECK_S)
            tried = behaviours(directory)
        expected = COMMON + LARGE[self.mode]
        outcomes = [
            Outcome(name, behaviour, seen.get(behaviour) == "yes")
            for name, seen in zip(NAMES, tried, strict=True)
            for behaviour in expected
        ]
        return outcomes, _failure(results)


def _failure(results: Sequence[Result]) -> MachineFailed | None:
    """Return the first failure: the runner ends the other machine a moment later."""
    for result in sorted(results, key=lambda result: result.duration_s):
        try:
            result.check()
        except MachineFailed as failure:
            return failure
    return None
