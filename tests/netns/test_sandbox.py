# SPDX-License-Identifier: BSD-2-Clause
"""The stages of docs/use/sandbox.md: what each forbids is attempted, and an interface works under all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Until = Callable[..., object]

PERMITTED = (
    "thread",
    "map memory",
    "udp socket",
    "netlink socket",
    "control socket",
    "import",
    "load library",
    "create tun",
)
OUTSIDE = ("read shadow", "read passwd", "list root", "write tmp")
ADMINISTRATION = (
    "mount",
    "unshare",
    "change root",
    "raw socket",
    "packet socket",
    "become other",
    "raise limit",
)
CALLS = (
    "fork",
    "execute",
    "spawn",
    "trace",
    "read memory",
    "become root",
    "become other",
    "mount",
    "unshare",
    "enter namespace",
    "change root",
    "raw socket",
    "packet socket",
    "vsock",
    "bpf",
    "signal parent",
    "type into terminal",
)


@cache
def _outcomes(stage: int, user: str = "", missing: str = "") -> dict[str, str]:
    """What the attempts answer after `stage`, in mount and network namespaces of their own."""
    with TemporaryDirectory() as outside:
        Path(outside).chmod(0o711)
        inside = Path(outside) / "inside"
        inside.mkdir()
        inside.chmod(0o777)
        script = Path(__file__).with_name("sandbox_attempts.py")
        done = subprocess.run(
            ["unshare", "-mn", sys.executable, str(script), str(stage), user, str(inside), missing],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        )
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert isinstance(outcomes, dict)
    return outcomes


def _endings(names: tuple[str, ...], outcomes: dict[str, str]) -> set[str]:
    return {outcomes[name] for name in names}


@pytest.mark.root
def test_without_stages_root_may_do_what_they_forbid() -> None:
    outcomes = _outcomes(0)
    assert _endings((*OUTSIDE, "fork", "spawn", "mount", "unshare", "raw socket"), outcomes) == {
        "ok"
    }


@pytest.mark.parametrize("stage", range(6))
@pytest.mark.parametrize("user", ["", pytest.param("nobody", marks=pytest.mark.root)])
def test_every_stage_permits_what_an_interface_needs(stage: int, user: str) -> None:
    if user and stage < 2:
        user = ""  # the configuration refuses a user without the stage of the capabilities
    assert _endings(PERMITTED, _outcomes(stage, user)) == {"ok"}


@pytest.mark.root
@pytest.mark.parametrize("stage", [2, 5])
def test_stage_1_takes_away_what_belongs_to_root(stage: int) -> None:
    outcomes = _outcomes(stage, "nobody")
    assert _endings(("read shadow", "list root", "write tmp"), outcomes) == {"EACCES"}
    assert outcomes["become root"] in ("EPERM", "ENOSYS")


@pytest.mark.root
@pytest.mark.parametrize("stage", [2, 3])
def test_stage_2_keeps_no_capability_but_the_one_for_the_network(stage: int) -> None:
    assert _endings(ADMINISTRATION, _outcomes(stage)) == {"EPERM"}


def test_stage_4_closes_the_files_and_programs_outside() -> None:
    outcomes = _outcomes(4)
    assert _endings((*OUTSIDE, "spawn", "tcp connect"), outcomes) == {"EACCES"}
    assert outcomes["signal parent"] == "EPERM"


@pytest.mark.parametrize("missing", ["", "seccomp"], ids=["as installed", "pyseccomp"])
def test_stage_5_leaves_no_other_system_call(missing: str) -> None:
    outcomes = _outcomes(5, missing=missing)
    assert {name: outcomes[name] for name in CALLS} == dict.fromkeys(CALLS, "ENOSYS")
    assert _endings(OUTSIDE, outcomes) == {"EACCES"}


@pytest.fixture(
    scope="module",
    params=["", pytest.param("nobody", marks=pytest.mark.root)],
    ids=["root", "nobody"],
)
def confined(request: pytest.FixtureRequest) -> Iterator[NamespaceLab]:
    options = ["--log-level", "info", *(["--user", request.param] if request.param else [])]
    with NamespaceLab(options=options) as lab:
        yield lab


def test_an_interface_under_all_stages_holds_one_capability(confined: NamespaceLab) -> None:
    host = confined.hosts[0]
    lines = Path(f"/proc/{host.pid}/status").read_text().splitlines()
    status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    for name, bits in (("CapPrm", 1 << 12), ("CapEff", 1 << 12), ("CapBnd", 0), ("CapInh", 0)):
        assert int(status[name][0], 16) == bits, name
    assert status["NoNewPrivs"] == ["1"]
    assert status["Seccomp"] == ["2"]
    assert "left out" not in host.log()
    user = "user nobody, " if "--user" in host.options else ""
    assert f"sandbox: {user}capabilities net_admin, no_new_privs, Landlock" in host.log()


def test_an_interface_under_all_stages_does_all_that_it_does_without(
    confined: NamespaceLab, sh: Sh, until: Until, tmp_path: Path
) -> None:
    first, second = confined.hosts
    ipoibu = f"{sys.executable} -m ipoibu.cli"
    sh(first, f"ping -c 3 -i 0.05 {second.ipv4.ip}")
    sh(first, f"ping -c 3 -i 0.05 {second.ipv6.ip}")
    for host, address in ((first, "10.9.0.1/24"), (second, "10.9.0.2/24")):
        sh(host, f"{ipoibu} child add ib0 0x8001 --address {address}")
    sh(first, "ping -c 3 -i 0.05 10.9.0.2")
    capture = tmp_path / "frames.pcap"
    reader = threading.Thread(
        target=lambda: sh(first, f"timeout 30 {ipoibu} capture ib0 -c 4 -w {capture}")
    )
    reader.start()
    until(lambda: capture.exists() and capture.stat().st_size >= 24)
    sh(first, f"ping -c 4 -i 0.05 {second.ipv4.ip}")
    reader.join()
    assert capture.stat().st_size > 24 + 4 * 84
    sh(first, f"{ipoibu} child del ib0 0x8001")
    sh(second, f"{ipoibu} child del ib0 0x8001")


def test_an_interface_under_all_stages_follows_its_link_and_carries_a_flood(
    confined: NamespaceLab, sh: Sh, until: Until
) -> None:
    first, second = confined.hosts
    sh(first, "ip link set eth0 down")
    until(lambda: first.ask("show")["state"] == "down")
    sh(first, "ip link set eth0 up; ip -6 address add fe80::ff:fe00:1/64 dev eth0 nodad || true")
    until(lambda: first.ask("show")["state"] == "up")
    sh(first, "ip link set ib0 mtu 1000")  # closes IPv6 here, which opens a file of /proc
    sh(first, "ip link set ib0 mtu 2044")
    until(lambda: first.run(["ping", "-c", "1", "-W", "1", str(second.ipv4.ip)]).returncode == 0)
    sh(first, f"ping -q -f -c 500 -s 1400 {second.ipv4.ip}")


def test_an_interface_ends_cleanly_under_all_stages(confined: NamespaceLab) -> None:
    for host in confined.hosts:
        assert host.stop() == 0
        assert "Traceback" not in host.log()
        assert "internal error" not in host.log()
        host.start()
