# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up --netns`: the interface is in one network namespace, its device in another."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Sh = Callable[[Host, str], str]
Until = Callable[..., object]


@pytest.fixture
def hosts(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace]
) -> Iterator[tuple[Host, Host]]:
    """Two hosts that put their interfaces into the namespaces."""
    first, second = bare.hosts
    for host, pod in zip(bare.hosts, pods, strict=True):
        host.options += ["--netns", pod.name]
        host.start()
    yield first, second
    for host in bare.hosts:
        host.stop()


def _inside(pod: LabNamespace, *words: str) -> subprocess.CompletedProcess[str]:
    process = pod.popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out.decode())


def _ipoibu(pod: LabNamespace, *words: str) -> str:
    done = _inside(pod, sys.executable, "-m", "ipoibu.cli", *words)
    assert done.returncode == 0, done.stdout
    return done.stdout


def _tasks(pid: int | None, file: str) -> set[str]:
    return {os.readlink(task / file) for task in Path(f"/proc/{pid}/task").iterdir()}


def test_packets_of_both_families_go_between_the_namespaces(
    hosts: tuple[Host, Host], pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    for target in ("10.77.0.2", "fd77::2"):
        ping = ["ping", "-c3", "-i0.1", "-W5", target]
        until(lambda ping=ping: " 0% packet loss" in _inside(pods[0], *ping).stdout)
    for host, pod in zip(hosts, pods, strict=True):
        assert host.run(["ip", "link", "show", "ib0"]).returncode != 0
        assert _inside(pod, "ip", "link", "show", "eth0").returncode != 0


def test_the_kernels_state_is_followed_in_the_other_namespace(
    hosts: tuple[Host, Host], pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    for number, pod in enumerate(pods, start=1):
        assert _inside(pod, "ip", "addr", "add", f"10.78.0.{number}/24", "dev", "ib0").stdout == ""
    assert _inside(pods[1], "ip", "addr", "add", "10.99.0.1/32", "dev", "ib0").stdout == ""
    assert _inside(pods[0], "ip", "route", "add", "10.99.0.0/16", "via", "10.78.0.2").stdout == ""
    others = (f"10.99.0.{number}" for number in itertools.count(2))

    def leaves_by_the_gateway() -> bool:
        """A packet that leaves before the route is followed would ask for its destination on the link."""
        other = next(others)
        _inside(pods[0], "ping", "-c1", "-W1", other)
        return f"{other} " not in _ipoibu(pods[0], "neigh")

    until(leaves_by_the_gateway)
    until(lambda: _inside(pods[0], "ping", "-c1", "-W1", "10.99.0.1").returncode == 0)
    assert "10.99.0.1 " not in _ipoibu(pods[0], "neigh")


def test_commands_reach_the_interface_from_both_namespaces(
    hosts: tuple[Host, Host], pods: tuple[LabNamespace, LabNamespace], cli: Cli, until: Until
) -> None:
    first, pod = hosts[0], pods[0]
    until(lambda: _inside(pod, "ping", "-c1", "-W1", "10.77.0.2").returncode == 0)
    outside = f"ib0@{first.pid}"
    assert json.loads(cli(first, "show", "-j").stdout) == json.loads(_ipoibu(pod, "show", "-j"))
    for command in ("show", "neigh", "stats", "mcast", "conn"):
        assert cli(first, command, outside).returncode == 0
        _ipoibu(pod, command, "ib0")
    assert "10.77.0.2" in cli(first, "neigh", outside).stdout
    _ipoibu(pod, "child", "add", "ib0", "0x8001", "--address", "10.79.0.1/24")
    assert "10.79.0.1" in _inside(pod, "ip", "-br", "addr", "show", "ib0.8001").stdout
    assert first.stop() == 0
    assert "no interface" not in first.log()
    assert cli(first, "show").stdout == ""
    assert _inside(pod, "ip", "link", "show", "ib0").returncode != 0


@pytest.mark.parametrize(
    "options",
    [[], pytest.param(["--user", "nobody"], marks=pytest.mark.root)],
    ids=["root", "nobody"],
)
def test_every_thread_is_confined_and_two_namespaces_are_in_use(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], options: list[str]
) -> None:
    host, pod = bare.hosts[0], pods[0]
    host.options += ["--netns", str(pod.path), *options]
    host.start()
    home = os.stat(host.namespace.path).st_ino
    assert _tasks(host.pid, "ns/net") == {f"net:[{home}]", f"net:[{os.stat(pod.path).st_ino}]"}
    assert os.stat(f"/proc/{host.pid}/ns/net").st_ino == os.stat(pod.path).st_ino
    uid = "65534" if options else "0"
    for task in Path(f"/proc/{host.pid}/task").iterdir():
        lines = (task / "status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        assert {key: status[key].split()[0] for key in ("Uid", "CapEff", "Seccomp")} == {
            "Uid": uid,
            "CapEff": f"{1 << 12:016x}",
            "Seccomp": "2",
        }
    _ipoibu(pod, "child", "add", "ib0", "0x8001", "--address", "10.79.0.1/24")
    assert host.stop() == 0
    assert "internal error" not in host.log()


def test_the_interface_ends_in_words_when_its_namespace_loses_its_name(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    host, pod = bare.hosts[0], pods[0]
    host.options += ["--netns", pod.name]
    host.start()
    pod.remove()
    until(host.ended)
    assert host.last_line() == f"ib0: the network namespace {pod.name} is gone"
    assert host.stop() == 1


def test_the_interface_ends_in_words_with_the_process_of_its_namespace(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    host = bare.hosts[0]
    process = pods[0].popen(["sleep", "600"])
    host.options += ["--netns", str(process.pid)]
    host.start()
    assert "10.77.0.1" in _inside(pods[0], "ip", "-br", "addr", "show", "ib0").stdout
    process.kill()
    process.wait()
    until(host.ended)
    assert host.last_line() == f"ib0: the network namespace {process.pid} is gone"
    host.stop()


@pytest.mark.parametrize(
    ("namespace", "text", "code"),
    [
        ("nowhere", "--netns nowhere: there is no /run/netns/nowhere; `ip netns` lists", 3),
        ("4194304", "--netns 4194304: no process has that number", 3),
        ("/no/such/file", "--netns /no/such/file: there is no /no/such/file", 3),
        ("/etc/hostname", "--netns /etc/hostname: /etc/hostname is no network namespace", 2),
        ("..", "'..' is no network namespace", 2),
    ],
)
def test_a_namespace_that_is_none_is_refused_in_one_line(
    idle: NamespaceLab, cli: Cli, namespace: str, text: str, code: int
) -> None:
    done = cli(idle.hosts[0], "up", "ib0", "--device", "soft:eth0", "--netns", namespace)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert text in done.stderr
