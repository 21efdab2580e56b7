# SPDX-License-Identifier: BSD-2-Clause
"""Grades hosts by `ipoibu conform`, and writes docs/findings/conformance-*.md.

`python -m tests.lab.grading` grades all of them (an hour), with names those alone. `docs/findings/known.toml`
has what each failure means: where the source does so, whether it matters, and text for a report upstream.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
import tempfile
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.conform.report import page
from ipoibu.lab import Lab, NamespaceLab
from ipoibu.lab.host import INTERFACE, NETDEV, Host
from ipoibu.lab.machines.mounts import ROOT
from ipoibu.lab.namespace import LabNamespace
from ipoibu.lab.namespace_lab import BRIDGE

FINDINGS: Final = ROOT / "docs/findings"
KNOWN: Final = FINDINGS / "known.toml"
IPOIBU: Final = f"{sys.executable} -m ipoibu.cli"
HELPER: Final = "tests.lab.scenarios.conform_helper"
WORDS: Final = ("--destructive", "--seed", "1")

LIMIT_S: Final = 1200


@dataclass(frozen=True, slots=True)
class Subject:
    """A host to grade: `family` is the section of `known.toml` that knows its failures."""

    name: str
    title: str
    family: str
    grade: Callable[[Path], dict[str, Any]]


def machine(kernel: str, ipoib: str, fabric: str, mode: str) -> Callable[[Path], dict[str, Any]]:
    """Grade machine b of a lab from machine a."""

    def grade(directory: Path) -> dict[str, Any]:
        # A machine with ipoibu has no ib_cm, so that queue pair 1 is the tester's when ipoibu is down.
        with Lab(2, kernel=kernel, ipoib=f"ipoibu,{ipoib}", fabric=fabric, mode=mode) as lab:
            lab.a.succeed(f"cd {ROOT}; {IPOIBU} down ib0")
            if ipoib == "kernel":  # the lab does without duplicate address detection
                lab.b.succeed("echo 1 >/proc/sys/net/ipv6/conf/ib0/accept_dad")
            lab.b.start(f"cd {ROOT}; exec {sys.executable} -m {HELPER} serve")
            words = ["--device", "rxe0", "--peer", lab.b.ipv4, "--peer", lab.b.ipv6]
            words += ["--helper", f"{sys.executable} -m {HELPER} ask fe80::ff:fe00:2%vec0"]
            words += [*WORDS, "--json", "/tmp/report.json"]
            if (
                mode == "datagram"
            ):  # ib_ipoib grants connections in that mode, too, and asks for none
                words += ["--mode", "datagram"]
            lab.a.execute(f"cd {ROOT}; {IPOIBU} conform {shlex.join(words)}", LIMIT_S)
            return _report(lab.a.get("/tmp/report.json"))

    return grade


def namespace(*options: str) -> Callable[[Path], dict[str, Any]]:
    """Grade the second host of a lab in network namespaces from the first."""

    def grade(directory: Path) -> dict[str, Any]:
        with NamespaceLab(options=options, start=False) as lab:
            tester, host = lab.hosts
            host.start()
            return _from(tester, f"soft:{NETDEV}", host.namespace, host, directory)

    return grade


def unicast(directory: Path) -> dict[str, Any]:
    """Grade a host of a link without multicast, whose peers meet by an address of the net device."""
    with NamespaceLab(start=False) as lab:
        tester, host = lab.hosts
        for each in lab.hosts:
            address = f"192.0.2.{each.number}/24"
            each.run(["ip", "address", "add", address, "dev", NETDEV])
        host.device = f"soft:{NETDEV},ipv4"
        host.options += ["--peer", "192.0.2.1"]
        host.start()
        words = ("--link-peer", "192.0.2.2")
        return _from(tester, f"soft:{NETDEV},ipv4", host.namespace, host, directory, *words)


def rails(directory: Path) -> dict[str, Any]:
    """Grade a host with two devices on the bridge of a lab."""
    with NamespaceLab(3, start=False) as lab:
        tester, host = lab.hosts[:2]
        assert lab.bridge is not None
        for command in (
            f"ip link add eth1 mtu 9000 type veth peer name wire1 mtu 9000 netns {lab.bridge.name}",
            "sysctl -q net.ipv6.conf.eth1.accept_dad=0",
            "ip link set eth1 up",
        ):
            assert host.run(command.split()).returncode == 0, command
        done = lab.bridge.run(["ip", "link", "set", "wire1", "master", BRIDGE, "up"])
        assert done.returncode == 0, done.stderr
        host.options += ["--device", "soft:eth1"]
        host.start()
        return _from(tester, f"soft:{NETDEV}", host.namespace, host, directory)


def guest(directory: Path) -> dict[str, Any]:
    """Grade the kernel of an Ethernet guest: a veth in a bridge with the TAP of `ipoibu up --ethernet`."""
    with NamespaceLab(start=False) as lab, ExitStack() as stack:
        tester, host = lab.hosts
        host.options += ["--ethernet"]
        host.addresses = []
        host.start()
        behind = LabNamespace.create(f"{host.namespace.name}-guest")
        stack.callback(behind.remove)
        mtu = host.ask("show")["mtu"]
        for command in (
            "ip link add br0 type bridge",
            "ip link set br0 up",
            f"ip link set {INTERFACE} master br0",
            f"ip link add v0 mtu {mtu} type veth peer name {INTERFACE} mtu {mtu} netns {behind.name}",
            "ip link set v0 master br0 up",
        ):
            assert host.run(command.split()).returncode == 0
        for command in (
            f"ip link set {INTERFACE} up",
            f"ip address add {host.ipv4} dev {INTERFACE}",
            f"ip address add {host.ipv6} dev {INTERFACE} nodad",
        ):
            assert behind.run(command.split()).returncode == 0
        return _from(tester, f"soft:{NETDEV}", behind, host, directory)


def _from(
    tester: Host,
    device: str,
    place: LabNamespace,
    host: Host,
    directory: Path,
    *more: str,
) -> dict[str, Any]:
    """Grade the host whose kernel is that of `place` by a device of `tester`."""
    words = ["--device", device, "--peer", str(host.ipv4.ip), "--peer", str(host.ipv6.ip)]
    words += ["--helper", f"ip netns exec {place.name} sh -c", "--helper-device", INTERFACE]
    words += [*more, *WORDS, "--json", str(directory / "report.json")]
    tester.namespace.popen([*IPOIBU.split(), "conform", *words]).wait(LIMIT_S)
    return _report((directory / "report.json").read_bytes())


def _report(raw: bytes) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(raw)
    return report


SUBJECTS: Final = [
    *(
        Subject(
            f"linux-{kernel}-{mode}",
            f"ib_ipoib of Linux {kernel}, {mode} mode",
            "linux",
            machine(kernel, "kernel", "ib", mode),
        )
        for kernel in ("6.1", "6.12", "7.3")
        for mode in ("datagram", "connected")
    ),
    Subject("ipoibu-soft-datagram", "ipoibu on its own HCA, datagram mode", "ipoibu", namespace()),
    Subject(
        "ipoibu-soft-connected",
        "ipoibu on its own HCA, connected mode",
        "ipoibu",
        namespace("--mode", "connected"),
    ),
    Subject(
        "ipoibu-conflicts",
        "ipoibu on its own HCA with --dad-ipv4 on",
        "ipoibu",
        namespace("--dad-ipv4", "on"),
    ),
    Subject("ipoibu-unicast", "ipoibu on a link without multicast", "ipoibu", unicast),
    Subject("ipoibu-rails", "ipoibu with two rails", "ipoibu", rails),
    Subject(
        "ipoibu-guest",
        "an Ethernet guest behind ipoibu: the kernel behind a veth",
        "guest",
        guest,
    ),
    Subject(
        "ipoibu-rxe-infiniband",
        "ipoibu on rxe as an InfiniBand port",
        "ipoibu",
        machine("6.12", "ipoibu", "ib", "datagram"),
    ),
    Subject(
        "ipoibu-rxe-roce",
        "ipoibu on rxe (RoCE)",
        "ipoibu",
        machine("6.12", "ipoibu", "roce", "datagram"),
    ),
]


def write(subject: Subject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        report = subject.grade(Path(directory))
    known = tomllib.loads(KNOWN.read_text()) if KNOWN.exists() else {}
    text = page(subject.title, report, known.get(subject.family, {}))
    FINDINGS.mkdir(exist_ok=True)
    (FINDINGS / f"conformance-{subject.name}.md").write_text(text)


HEAD: Final = """# What `ipoibu conform` says

`python -m tests.lab.grading` writes these pages (`make nightly-conform`). Each has the clauses with
their verdicts, and for each failure what was sent and heard, where the source does so, and whether
it matters. `known.toml` holds what somebody has found out about a failure.

"""
COUNTS: Final = re.compile(r": (\d+ tests), ([^.]*)\. Each failed test")


def index() -> str:
    """Return the page that lists all others, with the counts that each of them has."""
    rows = []
    for subject in SUBJECTS:
        file = FINDINGS / f"conformance-{subject.name}.md"
        found = COUNTS.search(" ".join(file.read_text().split())) if file.exists() else None
        if found is not None:
            rows.append(f"- [{subject.title}]({file.name}):\n  {found[1]}, {found[2]}\n")
    return HEAD + "".join(rows)


def main(names: list[str]) -> None:
    for subject in SUBJECTS:
        if not names or subject.name in names:
            print(subject.name, flush=True)
            write(subject)
    (FINDINGS / "conformance.md").write_text(index())


if __name__ == "__main__":
    main(sys.argv[1:])
