# SPDX-License-Identifier: BSD-2-Clause
"""Checks of a host for the lab: what its hosts in namespaces need, and what its machines need.

The lab says what it knows (`ipoibu lab doctor` asks it); the checks change nothing.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from ipoibu.base.errors import IpoibuError
from ipoibu.doctor.finding import Finding

# Programs of machines by their Debian packages. No machine boots without those of the first table.
BOOT_PROGRAMS: Final = {
    "bash": ("bash",),
    "iproute2": ("ip", "ss"),
    "mount": ("mount",),
    "util-linux": ("prlimit", "setpriv", "taskset"),
}
PROGRAMS: Final = {
    "iperf3": ("iperf3",),
    "iproute2": ("rdma",),
    "iputils-ping": ("ping",),
    "rdmacm-utils": ("rping",),
    "socat": ("socat",),
}
# What boots machines, whatever their own programs are.
STARTERS: Final = {"util-linux": ("prlimit", "setpriv", "taskset")}
YAMA: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
SHM: Final = Path("/dev/shm")


def namespaces(enter: Callable[[], object]) -> Finding:
    """Check that the lab may make namespaces: `enter` tries, in a child of this process."""
    refusal = _in_child(enter)
    if refusal is None:
        return Finding("lab_namespaces", "ok", "network namespaces may be created")
    detail, _, remedy = refusal.partition(": ")
    return Finding("lab_namespaces", "fail", detail, remedy or "run as root: sudo")


def without_core() -> Finding:
    """Say what a copy of ipoibu without compiled modules can do."""
    detail = "only machines run: this copy of ipoibu has no C core, which hosts in namespaces need"
    return Finding("lab_namespaces", "info", detail, "pip install ipoibu")


def simulator(packages: Sequence[str], missing: Sequence[str]) -> Finding:
    """Check what --fabric ib needs: which of its programs and libraries are `missing`."""
    if not missing:
        return Finding("lab_ibsim", "ok", "--fabric ib has ibsim and OpenSM")
    detail = f"--fabric ib lacks {', '.join(missing)}"
    return Finding("lab_ibsim", "info", detail, f"apt-get install {' '.join(packages)}")


def processor(machine: str | None = None) -> Finding:
    """Check that User-mode Linux runs on this kind of processor, `machine`."""
    machine = machine or platform.machine()
    if machine == "x86_64":
        return Finding("machine_processor", "ok", "machines run on x86_64")
    detail = f"machines run on x86_64 only, this is {machine}"
    return Finding("machine_processor", "fail", detail, "use hosts in namespaces: ipoibu lab")


def filtering(be_filtered: Callable[[], object]) -> Finding:
    """Check that a process may take a filter of its system calls, by which Linux 7.3 runs the processes of
    a machine where none may be traced: `be_filtered` takes one, in a child of this process.
    """
    if _in_child(be_filtered) is None:
        return Finding("machine_seccomp", "ok", "a process may filter its system calls")
    detail = "no process may filter its system calls: machines need ptrace"
    remedy = "of a container: --security-opt seccomp=unconfined"
    return Finding("machine_seccomp", "info", detail, remedy)


def tracing(
    be_traced: Callable[[], object], yama: Path = YAMA, *, is_needed: bool = True
) -> Finding:
    """Check that a process may trace its child, by which a machine's kernel runs the processes in it:
    `be_traced` lets it, in a child of this process. `is_needed` says that nothing else will do.
    """
    if _in_child(be_traced) is None:
        return Finding("machine_ptrace", "ok", "a process may trace its child")
    try:
        scope = int(yama.read_text())
    except (OSError, ValueError):
        scope = 0
    if scope == 3:  # it cannot be lowered
        remedy = "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d, and start the host again"
    elif scope == 2:
        remedy = "sysctl -w kernel.yama.ptrace_scope=1"
    else:
        remedy = "of a container: --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined"
    detail = "no process may trace its child"
    if is_needed:
        return Finding("machine_ptrace", "fail", detail, remedy)
    why = "Linux 6.1 and 6.12 do not boot, and threads fall behind in 7.3"
    return Finding("machine_ptrace", "warn", f"{detail}: {why}", remedy)


def memory(needed_bytes: int, places: Sequence[tuple[Path, str | None]]) -> Finding:
    """Check where the memory of two machines fits: each of `places` with what it lacks, or None."""
    unfit = [(path, lack) for path, lack in places if lack is not None]
    fit = [path for path, lack in places if lack is None]
    lacks = "; ".join(f"{path} {lack}" for path, lack in unfit)
    size = f"{needed_bytes >> 20} MiB of memory"
    if not fit:
        detail = f"no directory holds {size}: {lacks}"
        remedy = "export TMPDIR=DIRECTORY, one with room that is not mounted noexec"
        return Finding("machine_memory", "fail", detail, remedy)
    if places[0][1] is None:
        return Finding("machine_memory", "ok", f"{fit[0]} holds {size}")
    room = f"exec,size={2 * needed_bytes >> 20}m"
    remedy = f"mount -o remount,{room} {SHM}; of a container: --tmpfs {SHM}:{room}"
    detail = f"{fit[0]} holds {size}, because {places[0][0]} {places[0][1]}"
    return Finding("machine_memory", "warn", detail, remedy)


def path(*parts: Path) -> Finding:
    """Check the paths that the command line of a machine's kernel has to carry."""
    bad = [str(each) for each in parts if any(char.isspace() or char in ',"' for char in str(each))]
    if not bad:
        return Finding("machine_path", "ok", "the kernel's command line can carry the lab's paths")
    detail = f"the kernel's command line cannot carry {bad[0]!r}"
    return Finding("machine_path", "fail", detail, "use directories without white space and commas")


def kernel(status: int, said: str, *, is_root: bool | None = None) -> Finding:
    """Check the kernel: `said` is "built PATH", "fetched PATH", or else the last line of
    `kernel/build --check`, which ended with `status`."""
    name = "machine_kernel"
    first, _, rest = said.partition(" ")
    if status != 0:
        remedy = "ipoibu lab kernel fetch SOURCE, one that Debian 12 or 13 has built"
        return Finding(name, "fail", said.removeprefix("lab-kernel: ") or "no kernel", remedy)
    if first in ("built", "fetched"):
        return Finding(name, "ok", f"the kernel is {first}: {rest}")
    packages = rest.removeprefix("lacks").strip()
    begin = f"Linux {first} is not built yet (minutes)"
    if not packages:
        remedy = "ipoibu lab kernel build, or fetch SOURCE; or the first machine builds it"
        return Finding(name, "info", begin, remedy)
    remedy = f"apt-get install --no-install-recommends {packages}"
    if is_root if is_root is not None else os.geteuid() == 0:
        return Finding(name, "info", f"{begin}, and that installs {packages}", remedy)
    return Finding(name, "fail", f"{begin}, and lacks {packages}", remedy)


def userland(missing: Sequence[str], userlands: Sequence[str]) -> Finding:
    """Check what machines have as their root: the host's tree, unless programs are `missing` there, or else
    the first of `userlands`."""
    name = "machine_userland"
    if not missing:
        return Finding(name, "ok", "machines have the host's own programs")
    lacks = f"the host lacks {', '.join(missing)}"
    if userlands:
        return Finding(name, "ok", f"machines have the userland {userlands[0]}, because {lacks}")
    remedy = "ipoibu lab userland fetch SOURCE, or install them"
    return Finding(name, "fail", f"{lacks}, and there is no userland here", remedy)


def programs(
    boot: Mapping[str, Sequence[str]] = BOOT_PROGRAMS,
    further: Mapping[str, Sequence[str]] = PROGRAMS,
) -> Iterator[Finding]:
    """Check the host's programs: a machine has no others."""
    for name, table, status in (
        ("machine_boot", boot, "fail"),
        ("machine_programs", further, "warn"),
    ):
        lacking = {
            package: [program for program in wanted if shutil.which(program) is None]
            for package, wanted in table.items()
        }
        missing = [program for each in lacking.values() for program in each]
        if not table:
            continue
        if missing:
            packages = " ".join(package for package, each in lacking.items() if each)
            detail = f"the host has no {', '.join(missing)}"
            yield Finding(
                name, "fail" if status == "fail" else "warn", detail, f"apt-get install {packages}"
            )
        else:
            count = sum(map(len, table.values()))
            yield Finding(name, "ok", f"the host has all {count} programs")


def manager(opensm: str | None) -> Finding:
    """Check what --sm needs: `opensm` is the path of OpenSM, if the host has it."""
    if opensm is not None:
        return Finding("machine_opensm", "ok", "--sm has OpenSM")
    return Finding("machine_opensm", "info", "--sm lacks opensm", "apt-get install opensm")


def verbs(modules: Sequence[str] = ("pyverbs",)) -> Finding:
    """Check what ipoibu needs on rxe0 and siw0 in a machine."""
    if all(importlib.util.find_spec(module) is not None for module in modules):
        return Finding("machine_verbs", "ok", "ipoibu can use rxe0 and siw0 in a machine")
    detail = "ipoibu cannot use rxe0 and siw0 in a machine without pyverbs; soft:vec0 it can"
    return Finding(
        "machine_verbs", "warn", detail, "apt-get install python3-pyverbs ibverbs-providers"
    )


def _in_child(act: Callable[[], object]) -> str | None:
    """Return why `act` fails in a child of this process, which has one thread; None if it does not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            act()
        except (IpoibuError, OSError) as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    os.waitpid(child, 0)
    return said or None
