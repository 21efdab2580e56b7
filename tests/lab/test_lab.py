# SPDX-License-Identifier: BSD-2-Clause
"""`Lab`: what a test of another project does with it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.lab import CommandFailed, Lab, MachineFailed
from ipoibu.lab.machines import quota

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def lab(lab_kernel: Path) -> Iterator[Lab]:
    """Three machines with the kernel's ib_ipoib, in connected mode."""
    with Lab(guests=3, kernel=lab_kernel, mode="connected") as lab:
        yield lab


def test_every_machine_reaches_every_other_one(lab: Lab) -> None:
    for machine, other in zip(lab.guests, (lab.b, lab.c, lab.a), strict=True):
        machine.succeed(
            f"ping -c 1 -W 5 -s 40000 {other.ipv4}; ping -c 1 -W 5 {other.ipv6}", timeout=60
        )
    assert [it.name for it in lab.guests] == ["a", "b", "c"]
    assert lab.b.interface == "ib0"
    shown = lab.b.succeed("ip addr show dev ib0; cat /sys/class/net/ib0/mode")
    for words in ("inet 10.9.0.2/24", "fd00:9::2/64", "fe80::200:ff:fe00:2/64", "connected"):
        assert words in shown


def test_a_command_that_fails_says_what_it_printed(lab: Lab) -> None:
    assert lab.a.execute("echo out; echo err >&2; exit 3") == (3, "out\n")
    assert lab.a.fail("echo no; false") == "no\n"
    failure = r"(?s)machine a: ls /none.*exit status 2.*No such file"
    with pytest.raises(CommandFailed, match=failure):
        lab.a.succeed("echo first", "ls /none")
    with pytest.raises(CommandFailed, match="exit status 0"):
        lab.a.fail("true")
    with pytest.raises(CommandFailed, match="ran out of time\nbegun"):
        lab.a.succeed("echo begun; exec sleep 1000.125", timeout=3)
    lab.a.wait_until_fails("pgrep -fx 'sleep 1000.125'", timeout=60)


def test_commands_run_side_by_side_in_threads(lab: Lab) -> None:
    said: dict[str, str] = {}

    def meet(own: str, other: str) -> None:
        wait = f"until [ -e /tmp/{other} ]; do sleep 0.1; done"
        said[own] = lab.b.succeed(f"touch /tmp/{own}; {wait}; echo {own}")

    threads = [threading.Thread(target=meet, args=words) for words in (("x", "y"), ("y", "x"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {"x": "x\n", "y": "y\n"}


def test_a_program_runs_beside_others(lab: Lab) -> None:
    server = lab.c.start(f"exec socat -u TCP-LISTEN:7000,bind={lab.c.ipv4} STDOUT")
    lab.b.wait_until_succeeds(
        f"echo hello | socat -u STDIN TCP:{lab.c.ipv4}:7000,connect-timeout=5", timeout=60
    )
    assert server.wait(60) == (0, "hello\n")
    endless = lab.c.start("echo on; sleep 1000")
    assert endless.is_running
    endless.kill()
    assert endless.wait(60).status == 128 + 15


def test_files_go_in_and_come_back(lab: Lab, tmp_path: Path) -> None:
    data = bytes(range(256)) * 2000
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(data)
    lab.a.put(tmp_path / "sub", "/tmp/it's here")
    assert lab.a.get("/tmp/it's here/data", tmp_path / "back") == data
    assert (tmp_path / "back").read_bytes() == data
    with pytest.raises(CommandFailed, match="No such file"):
        lab.a.get("/tmp/none")
    lab.a.put(tmp_path / "back", "/tmp/back")
    assert lab.a.get("/tmp/back") == data
    assert not list((lab.directory / "a").glob("put-*"))


def test_a_machine_that_dies_ends_its_commands_with_its_kernel_log(lab_kernel: Path) -> None:
    with (
        pytest.raises(MachineFailed, match=r"(?s)machine a: .*sysrq triggered crash.*kernel log"),
        Lab(1, kernel=lab_kernel, ipoib="none", fabric="roce") as lab,
    ):
        lab.a.succeed("echo c >/proc/sysrq-trigger; sleep 1000")


def test_machines_that_write_too_many_files_are_ended(
    lab_kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "excess", partial(quota.excess, files_max=200))
    said = "the machines have written more than 200 files to /run/lab"
    with (
        pytest.raises(MachineFailed, match=f"machine a: {said}"),
        Lab(2, kernel=lab_kernel, fabric="none") as lab,
    ):
        lab.a.succeed("for n in {1..300}; do : >/run/lab/a/$n; done; sleep 1000")


def test_a_complaint_of_a_kernel_fails_the_lab_at_its_end(lab_kernel: Path, tmp_path: Path) -> None:
    complain = "echo '<4>WARNING: from a test' >/dev/kmsg"
    kept = tmp_path / "kept"
    with (
        pytest.raises(MachineFailed, match=r"machine b: .*WARNING: from a test"),
        Lab(2, kernel=lab_kernel, ipoib="none", output=kept) as lab,
    ):
        lab.b.succeed(complain, "echo said", "echo result >/run/lab/result")
    assert (kept / "result").read_text() == "result\n"
    assert "said" in (kept / "b" / "output").read_text()
    assert "WARNING" in (kept / "b" / "kernel.log").read_text()
    with pytest.raises(UsageError, match="not empty"), Lab(1, kernel=lab_kernel, output=kept):
        pass
    with Lab(1, kernel=lab_kernel, ipoib="none", tolerate_warnings=True) as lab:
        lab.a.succeed(complain)
