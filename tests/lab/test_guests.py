# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab --guests N`, from the command line to the exit code."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.machines.inside.meeting import until

pytestmark = pytest.mark.lab

COMMAND = [sys.executable, "-m", "ipoibu.cli", "lab", "--guests"]
PATIENCE_S = 100.0


def lab(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )


def test_roles_run_side_by_side_until_one_fails(lab_kernel: Path, tmp_path: Path) -> None:
    script = tmp_path / "script of c"
    script.write_text(
        "#!/bin/bash\nmkdir /run/lab/results; echo $0 >/run/lab/results/c\n"
        "until test -e /run/lab/results/a; do sleep 0.1; done; exit 5\n"
    )
    script.chmod(0o755)
    scripts = [
        "all=echo one $LAB_NAME",
        "b=sleep 1000",
        "a=until test -e /run/lab/results/c; do sleep 0.1; done; echo seen; touch /run/lab/results/a",
        f"c={script}",
    ]
    kept = tmp_path / "kept"
    done = lab("3", *(f"--run={it}" for it in scripts), "--output", str(kept))
    assert done.returncode == 5, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines[:3]) == ["a | one a", "b | one b", "c | one c"]
    assert "a | seen" in lines[3:]
    assert (kept / "results" / "c").read_text() == "/run/lab/c/script-2\n"
    for name in "abc":
        assert f"one {name}\n" in (kept / name / "output").read_text()
        assert "Linux version" in (kept / name / "kernel.log").read_text()


def test_a_report_has_the_result_of_each_role(lab_kernel: Path) -> None:
    done = lab("2", "--json", "--run", "a=echo one; exit 3", "--run", "b=sleep 1000")
    assert done.returncode == 3
    report = json.loads(done.stdout)
    a, b = report["hosts"]
    assert (report["ok"], report["status"], report["failure"]) == (False, 3, None)
    assert (a["name"], a["ok"], a["status"], a["output"]) == ("a", False, 3, "one\n")
    assert (b["ipv4"], b["status"], b["ended_by"]) == ("10.9.0.2", None, "a")
    done = lab("2", "--json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["ok"]) == (0, True)
    assert [(it["ok"], it["status"]) for it in report["hosts"]] == [(True, 0)] * 2


def test_the_first_machine_runs_the_command_and_time_is_limited(lab_kernel: Path) -> None:
    done = lab("2", "--timeout", "4", "--", "sh", "-c", "ping -q -c 1 10.9.0.2; exec sleep 1000")
    assert done.returncode == 124
    assert "1 received" in done.stdout
    assert "machine a: did not end within 4 s" in done.stderr


def test_a_panic_fails_the_lab(lab_kernel: Path) -> None:
    done = lab("1", "--ipoib", "none", "--", "sh", "-c", "echo c >/proc/sysrq-trigger; sleep 1000")
    assert done.returncode == 1
    assert "machine a: " in done.stderr
    assert "sysrq triggered crash" in done.stderr


def test_a_shell_has_the_callers_terminal(lab_kernel: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*COMMAND, "1", "--ipoib", "none", "--shell", "a"])
    seen = ""

    def say(words: str, answer: str) -> None:
        nonlocal seen
        os.write(terminal, words.encode())
        seen = ""
        while not re.search(answer, seen):
            assert select.select([terminal], [], [], PATIENCE_S)[0], seen
            seen += os.read(terminal, 4096).decode()

    say("", r"@a:[^ ]*[#$] ")
    sleep = "sh -c 'echo o''n; exec sleep 1000'\n"
    say(sleep, "on\r\n")  # it is in the foreground: what a key means is settled
    say("\x03", r"[#$] $")
    say(sleep, "on\r\n")
    say("\x1a", "Stopped")
    say("kill %1; wait; echo $((6 * 7)); tty\n", "42\r\n/dev/pts/")
    say("exit 7\n", "exit")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    os.close(terminal)


def test_an_interrupt_while_machines_boot_leaves_nothing(lab_kernel: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    with subprocess.Popen([*COMMAND, "2", "--output", str(kept), "--", "sleep", "1000"]) as process:
        until((kept / "b" / "uml" / "b" / "pid").exists, "a kernel", PATIENCE_S)
        kernel = int((kept / "b" / "uml" / "b" / "pid").read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130
    assert not Path(f"/proc/{kernel}").exists()


@pytest.mark.parametrize(
    ("fabric", "mode", "ipoib"),
    [
        ("ib", "connected", "kernel,ipoibu,ipoibu:soft"),
        ("ib", "datagram", "kernel,ipoibu:soft"),
        ("roce", "datagram", "ipoibu,ipoibu:soft"),
        ("iwarp", "datagram", "ipoibu"),
    ],
)
def test_ipoibu_runs_on_every_fabric(lab_kernel: Path, fabric: str, mode: str, ipoib: str) -> None:
    guests = len(ipoib.split(",")) if "," in ipoib else 2
    with Lab(guests, kernel=lab_kernel, fabric=fabric, mode=mode, ipoib=ipoib) as machines:
        first, *others = machines.guests
        for other in others:
            first.wait_until_succeeds(f"ping -c 1 -W 5 -s 4000 {other.ipv4}", timeout=PATIENCE_S)
        assert f"mode {mode}" in others[-1].succeed("ipoibu show ib0")


def test_partitions_decide_who_reaches_whom(lab_kernel: Path, tmp_path: Path) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text(
        "Default=0x7fff, ipoib : ALL=full;\n"
        "pair=0x8001, ipoib : ALL=limited, 0x000000fffe000001=full;\n"
    )
    with Lab(3, kernel=lab_kernel, partitions=file) as machines:
        a, b, c = machines.guests
        assert a.succeed("cat /sys/class/net/ib0/mtu") == "2044\n"  # OpenSM's default
        a.succeed("ip addr add 10.10.0.1/24 dev ib0.8001")
        for machine in (b, c):  # limited members have no child; one may be made by hand
            machine.succeed(
                "echo 0x8001 >/sys/class/net/ib0/create_child; ip link set ib0.8001 up",
                f"ip addr add 10.10.0.{machine.index}/24 dev ib0.8001",
            )
            machine.wait_until_succeeds("ping -c 1 -W 5 10.10.0.1", timeout=PATIENCE_S)
        b.fail("ping -c 1 -W 1 10.10.0.3")
        b.succeed("ping -c 1 -W 5 10.9.0.3")


def test_a_shared_directory_is_a_copy_that_each_machine_may_change(
    lab_kernel: Path, tmp_path: Path
) -> None:
    share = tmp_path / "checkout"
    (share / "sub").mkdir(parents=True)
    (share / "sub" / "file").write_text("of the host\n")
    with Lab(2, kernel=lab_kernel, ipoib="none", share=share) as machines:
        a, b = machines.guests
        assert a.succeed("pwd; cat sub/file") == "/src\nof the host\n"
        a.succeed("rm -r sub; mkdir sub; echo new >sub/new; echo text >/etc/lab-was-here")
        assert a.succeed("ls sub; cat /etc/lab-was-here") == "new\ntext\n"
        assert b.succeed("cat sub/file") == "of the host\n"
        b.fail("test -e /etc/lab-was-here")
    assert [it.name for it in share.rglob("*")] == ["sub", "file"]
    assert not Path("/etc/lab-was-here").exists()


def test_a_script_finds_a_shared_directory_read_only(lab_kernel: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("cd ${0%/*}; touch new || cat script | wc -l\n")
    done = lab("1", "--ipoib", "none", "--share", f"{tmp_path}:ro", "--run", f"a={script}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("a | 1\n")
    assert not (tmp_path / "new").exists()
