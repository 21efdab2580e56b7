# SPDX-License-Identifier: BSD-2-Clause
"""One machine: its abilities, its limits, and that it leaves nothing behind."""

import contextlib
import os
import re
import signal
import site
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.base.limits import MACHINE_FILE_MAX_BYTES
from ipoibu.lab.errors import LabError
from ipoibu.lab.machines import mounts
from ipoibu.lab.machines.inside.meeting import until
from ipoibu.lab.machines.mounts import ROOT
from ipoibu.lab.machines.runner import LabMachine, MachineFailed, Result, python, shell
from tests.lab.bare import run

pytestmark = pytest.mark.lab


def boot(kernel: Path, command: list[str], directory: Path, timeout_s: float = 30) -> Result:
    return run(kernel, [command], directory=directory, timeout_s=timeout_s)[0]


def session_of(leader: int) -> list[int]:
    """Return the processes of a session, zombies too: field 6 of /proc/PID/stat."""
    members = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[3]) == leader:
            members.append(int(stat.parent.name))
    return members


def leader_of(machine: LabMachine) -> int:
    fields = Path(f"/proc/self/fdinfo/{machine.pidfd}").read_text().split()
    return int(fields[fields.index("Pid:") + 1])


def test_output_and_exit_status_come_back(lab_kernel: Path, tmp_path: Path) -> None:
    script = "echo '<0>a shout of the kernel' >/dev/kmsg; echo out; echo err >&2; exit 7"
    result = boot(lab_kernel, shell(script), tmp_path)
    assert (result.status, result.output, result.failure) == (7, "out\nerr\n", None)
    with pytest.raises(
        MachineFailed, match=r"(?s)machine a: exit status 7.*out\nerr\n.*a shout of the kernel"
    ):
        result.check()


def test_a_command_that_a_signal_kills_has_the_status_of_a_shell(
    lab_kernel: Path, tmp_path: Path
) -> None:
    result = boot(lab_kernel, shell("kill -KILL $$"), tmp_path)
    assert (result.status, result.failure) == (128 + signal.SIGKILL, None)


def test_a_megabyte_of_output_arrives_whole_and_clean(lab_kernel: Path, tmp_path: Path) -> None:
    script = "seq 150000; echo '<0>a shout of the kernel' >/dev/kmsg; echo end"
    result = boot(lab_kernel, shell(script), tmp_path).check()
    assert result.output.split() == [*map(str, range(1, 150001)), "end"]
    assert "a shout of the kernel" in result.kernel_log


def test_a_file_on_the_host_has_a_limit(lab_kernel: Path, tmp_path: Path) -> None:
    """A program that goes beyond gets the usual error, and the machine goes on."""
    script = f"""
        cd /run/lab
        dd if=/dev/zero of=long bs=1 count=1 seek={MACHINE_FILE_MAX_BYTES} && exit 1
        truncate -s {MACHINE_FILE_MAX_BYTES + 1} empty && exit 2
        echo more >other"""
    result = boot(lab_kernel, shell(script), tmp_path).check()
    assert result.output.count("File too large") == 2
    assert (tmp_path / "other").read_text() == "more\n"
    assert (tmp_path / "long").stat().st_size <= MACHINE_FILE_MAX_BYTES
    assert (tmp_path / "empty").stat().st_size == 0


def test_code_of_pth_files_runs_in_no_machine(
    lab_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = {str(hook) for hook in mounts.start_hooks()}
    script = "for hook in " + " ".join(hooks) + "; do [[ -e $hook && ! -s $hook ]]; done"
    script += "; python -c 'import ipoibu.base.addr'"
    boot(lab_kernel, shell(script), tmp_path / "run").check()
    place = tmp_path / "packages"
    place.mkdir()
    for name, text in (
        ("hook", "import this\n"),
        ("both", "import this\n/srv\n"),
        ("path", "/srv"),
    ):
        (place / f"{name}.pth").write_text(text)
    monkeypatch.setattr(site, "getsitepackages", lambda prefixes: [str(place)])
    assert mounts.start_hooks() == [place / "hook.pth"]


def test_the_machine_can_write_nothing_of_the_host_but_its_run(
    lab_kernel: Path, tmp_path: Path
) -> None:
    probe = ROOT / "tests" / "lab" / "written-by-a-machine"
    script = f"""
        ! touch {probe} /usr/written /root/written 2>/dev/null
        echo private >/tmp/file; echo private >/run/file; echo private >/dev/shm/file
        echo shared >/run/lab/file
        test $(stat -f -c %T /tmp) = tmpfs
    """
    boot(lab_kernel, shell(script), tmp_path).check()
    assert (tmp_path / "file").read_text() == "shared\n"
    assert not any(
        Path(path).exists() for path in (probe, "/usr/written", "/tmp/file", "/run/file")
    )


def test_the_environment_crosses_unharmed(lab_kernel: Path, tmp_path: Path) -> None:
    value = "a 'quoted' \"word\", $HOME and\ttab=1 \\"
    command = [sys.executable, "-c", "import os; print(os.environ['WORD'], end='')"]
    result = boot(lab_kernel, ["env", f"WORD={value}", *command], tmp_path).check()
    assert result.output == value


def test_the_machine_has_what_verbs_and_scenarios_need(
    lab_kernel: Path, lab_release: str, tmp_path: Path
) -> None:
    script = (
        f"RELEASE={lab_release}"
        """
        [[ $(uname -r) == $RELEASE.* && $(ulimit -l) == unlimited ]]
        ls /dev/net/tun /dev/infiniband/rdma_cm /dev/stdin /dev/fd/1
        ls -d /sys/module/ib_ipoib
        ip link show up dev lo | grep -q LOWER_UP
        ip link add v0 type veth peer name v1
        ip link add br0 type bridge
        ip link add mv0 link v0 type macvlan
        ip tuntap add t0 mode tun
        ip netns add other && ip -n other link set lo up
        tc qdisc add dev v0 root netem loss 10%
    """
    )
    boot(lab_kernel, shell(script), tmp_path).check()


def test_python_functions_run_with_arguments(lab_kernel: Path, tmp_path: Path) -> None:
    result = boot(lab_kernel, python(print, "one", "two words"), tmp_path).check()
    assert result.output == "one two words\n"
    result = boot(lab_kernel, python("os:strerror", "no number"), tmp_path / "2")
    assert result.status == 1
    assert "TypeError" in result.output


def test_a_machine_that_runs_out_of_time_is_ended(lab_kernel: Path, tmp_path: Path) -> None:
    result = boot(lab_kernel, shell("echo begun; sleep 1000"), tmp_path, timeout_s=5)
    assert result.status is None
    said, doing = result.output.split("lab: when the run failed, this machine ran:\n")
    assert said == "begun\n"
    assert re.search(r"^lab: \d+ in \w+: sleep 1000$", doing, re.MULTILINE)
    assert result.failure == "did not end within 5 s"
    assert result.duration_s < 20


def test_a_kernel_panic_is_a_failure_with_its_log(lab_kernel: Path, tmp_path: Path) -> None:
    result = boot(lab_kernel, shell("echo c >/proc/sysrq-trigger"), tmp_path)
    assert result.status is None
    assert result.failure is not None
    assert "Kernel panic - not syncing: sysrq triggered crash" in result.failure


def test_a_kernel_that_is_none_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(MachineFailed, match=r"(?s)machine a: the machine ended.*No such file"):
        boot(tmp_path / "nothing", shell("true"), tmp_path)


def test_a_path_the_kernel_command_line_cannot_carry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="cannot carry"):
        boot(tmp_path / "linux", shell("true"), tmp_path / "a b")


def test_closing_a_machine_leaves_no_process_no_zombie_and_no_descriptor(
    lab_kernel: Path, tmp_path: Path
) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    busy = "for i in 1 2 3 4; do (while :; do :; done) & done; echo begun; sleep 1000"
    with LabMachine(lab_kernel, shell(busy), tmp_path) as machine:
        leader = leader_of(machine)
        output = tmp_path / "a" / "output"
        until(lambda: output.read_text() == "begun\n", "the command")
        assert len(session_of(leader)) > 4
    assert session_of(leader) == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_all_of_a_machine_is_bound_to_its_cpu(lab_kernel: Path, tmp_path: Path) -> None:
    cpu = max(os.sched_getaffinity(0))
    with LabMachine(lab_kernel, shell("echo begun; sleep 1000"), tmp_path, cpu=cpu) as machine:
        until(lambda: (tmp_path / "a" / "output").read_text() == "begun\n", "the command")
        bound = []
        for process in session_of(leader_of(machine)):
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                bound.append(os.sched_getaffinity(process))
        assert len(bound) > 1
        assert bound == [{cpu}] * len(bound)


def test_a_machine_dies_with_its_runner(lab_kernel: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from ipoibu.lab.machines.runner import LabMachine, shell\n"
        "machine = LabMachine(Path(sys.argv[1]), shell('while :; do :; done'), Path(sys.argv[2]))\n"
        "machine.start(); print(machine._process.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(lab_kernel), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    ) as runner:
        assert runner.stdout is not None
        leader = int(runner.stdout.readline())
        until(lambda: len(session_of(leader)) > 1, "a machine process")
        runner.kill()
    until(lambda: session_of(leader) == [], "the end of the machine")


def test_systemd_needs_another_kernel(lab_kernel: Path, tmp_path: Path) -> None:
    said = "lab: no systemd here: this kernel has no control groups; take the flavour full\r?\n"
    with pytest.raises(MachineFailed, match=f"machine a: the machine ended.*\n.*\n{said}"):
        run(lab_kernel, [shell("true")], tmp_path, init="systemd")
    with pytest.raises(LabError, match="no process 1 upstart; there are: lab systemd"):
        run(lab_kernel, [shell("true")], init="upstart")


@pytest.mark.parametrize("traced", [True, False])
def test_linux_after_6_12_filters_system_calls_where_no_process_may_be_traced(
    lab_kernel: Path,
    lab_release: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    traced: bool,
) -> None:
    monkeypatch.setattr("ipoibu.lab.machines.runner.may_be_traced", lambda: traced)
    log = boot(lab_kernel, shell("true"), tmp_path).check().kernel_log
    filters = "Checking that seccomp filters can be installed...OK" in log
    assert filters is (not traced and lab_release not in ("6.1", "6.12"))
