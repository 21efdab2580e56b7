# SPDX-License-Identifier: BSD-2-Clause
"""What `ipoibu lab doctor` says of hosts that lack something for the lab."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.errors import NotPermitted
from ipoibu.doctor import lab
from ipoibu.doctor.finding import Finding
from ipoibu.lab.machines.kinship import be_filtered, be_traced

SHM = Path("/dev/shm")


def test_a_host_that_forbids_namespaces() -> None:
    def enter() -> None:
        raise NotPermitted("this machine forbids user namespaces: run `sysctl` as root")

    detail = "this machine forbids user namespaces"
    wanted = Finding("lab_namespaces", "fail", detail, "run `sysctl` as root")
    assert lab.namespaces(enter) == wanted
    assert lab.namespaces(lambda: None).status == "ok"


def test_a_host_without_the_simulated_fabric() -> None:
    wanted = Finding("lab_ibsim", "info", "--fabric ib lacks opensm", "apt-get install opensm x")
    assert lab.simulator(["opensm", "x"], ["opensm"]) == wanted
    assert lab.simulator(["opensm", "x"], []).status == "ok"


def test_a_host_without_a_subnet_manager_for_machines() -> None:
    wanted = Finding("machine_opensm", "info", "--sm lacks opensm", "apt-get install opensm")
    assert lab.manager(None) == wanted
    assert lab.manager("/usr/sbin/opensm").status == "ok"


def test_a_processor_without_user_mode_linux() -> None:
    found = lab.processor("aarch64")
    assert (found.status, found.detail) == ("fail", "machines run on x86_64 only, this is aarch64")
    assert lab.processor("x86_64").status == "ok"


@pytest.mark.parametrize(
    ("scope", "remedy"),
    [
        ("3", "set kernel.yama.ptrace_scope=1 in /etc/sysctl.d, and start the host again"),
        ("2", "sysctl -w kernel.yama.ptrace_scope=1"),
        ("1", "of a container: --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined"),
        (None, "of a container: --cap-add SYS_PTRACE, or --security-opt seccomp=unconfined"),
    ],
)
def test_a_host_that_forbids_tracing(scope: str | None, remedy: str, tmp_path: Path) -> None:
    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    yama = tmp_path / "ptrace_scope"
    if scope is not None:
        yama.write_text(f"{scope}\n")
    found = lab.tracing(refuse, yama)
    assert found == Finding("machine_ptrace", "fail", "no process may trace its child", remedy)


def test_a_host_that_forbids_tracing_but_no_filters(tmp_path: Path) -> None:
    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    found = lab.tracing(refuse, tmp_path / "none", is_needed=False)
    assert found.status == "warn"
    assert found.detail.startswith("no process may trace its child: Linux 6.1 and 6.12 do not boot")


def test_filters_are_really_tried() -> None:
    assert lab.filtering(be_filtered) == Finding(
        "machine_seccomp", "ok", "a process may filter its system calls"
    )


def test_a_host_that_forbids_filters() -> None:
    def refuse() -> None:
        raise PermissionError(1, "Operation not permitted")

    found = lab.filtering(refuse)
    assert (found.status, found.remedy) == (
        "info",
        "of a container: --security-opt seccomp=unconfined",
    )


def test_tracing_is_really_tried() -> None:
    assert lab.tracing(be_traced) == Finding(
        "machine_ptrace", "ok", "a process may trace its child"
    )


@pytest.mark.parametrize(
    ("places", "status", "detail"),
    [
        ([(SHM, None), (Path("/tmp"), "is full")], "ok", "/dev/shm holds 512 MiB of memory"),
        (
            [(SHM, "is mounted noexec"), (Path("/tmp"), None)],
            "warn",
            "/tmp holds 512 MiB of memory, because /dev/shm is mounted noexec",
        ),
        (
            [(SHM, "has only 64 MiB free"), (Path("/tmp"), "is mounted noexec")],
            "fail",
            "no directory holds 512 MiB of memory: "
            "/dev/shm has only 64 MiB free; /tmp is mounted noexec",
        ),
    ],
)
def test_places_of_memory(places: list[tuple[Path, str | None]], status: str, detail: str) -> None:
    found = lab.memory(512 << 20, places)
    assert (found.status, found.detail) == (status, detail)
    assert (found.remedy is None) == (status == "ok")


def test_a_remount_leaves_room_for_twice_the_memory() -> None:
    remedy = lab.memory(512 << 20, [(SHM, "is mounted noexec"), (Path("/tmp"), None)]).remedy
    assert remedy is not None
    assert remedy.startswith("mount -o remount,exec,size=1024m /dev/shm; ")


def test_a_path_that_the_command_line_cannot_carry() -> None:
    found = lab.path(Path("/a"), Path("/b c"))
    assert (found.status, found.detail) == (
        "fail",
        "the kernel's command line cannot carry '/b c'",
    )
    assert lab.path(Path("/a")).status == "ok"


@pytest.mark.parametrize(
    ("status", "said", "is_root", "wanted", "detail"),
    [
        (0, "built /k/linux", False, "ok", "the kernel is built: /k/linux"),
        (0, "fetched /k/linux", False, "ok", "the kernel is fetched: /k/linux"),
        (0, "6.1 lacks", False, "info", "Linux 6.1 is not built yet (minutes)"),
        (
            0,
            "6.1 lacks flex bc",
            True,
            "info",
            "Linux 6.1 is not built yet (minutes), and that installs flex bc",
        ),
        (
            0,
            "6.1 lacks flex bc",
            False,
            "fail",
            "Linux 6.1 is not built yet (minutes), and lacks flex bc",
        ),
        (1, "lab-kernel: no package linux-source", False, "fail", "no package linux-source"),
    ],
)
def test_states_of_the_kernel(
    status: int, said: str, is_root: bool, wanted: str, detail: str
) -> None:
    found = lab.kernel(status, said, is_root=is_root)
    assert (found.status, found.detail) == (wanted, detail)
    assert (found.remedy is None) == (wanted == "ok")


def test_programs_that_the_host_lacks() -> None:
    boot, further = lab.programs({"util-linux": ("no-setpriv", "sh")}, {"dash": ("sh",)})
    assert boot == Finding(
        "machine_boot", "fail", "the host has no no-setpriv", "apt-get install util-linux"
    )
    assert further.status == "ok"
    boot, further = lab.programs({"dash": ("sh",)}, {"socat": ("no-socat",)})
    assert (boot.status, further.status) == ("ok", "warn")


def test_a_host_without_pyverbs() -> None:
    assert lab.verbs(["no_such_module"]).status == "warn"
    assert lab.verbs(["json"]).status == "ok"


def test_a_host_without_programs_needs_a_userland() -> None:
    assert lab.userland([], []).status == "ok"
    assert lab.userland(["rdma"], ["/u"]).status == "ok"
    lacking = lab.userland(["rdma"], [])
    assert (lacking.status, lacking.detail) == (
        "fail",
        "the host lacks rdma, and there is no userland here",
    )
    assert "userland fetch" in (lacking.remedy or "")
