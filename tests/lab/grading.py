# SPDX-License-Identifier: BSD-2-Clause
"""Grades hosts by `ipoibu conform`, and writes docs/findings/conformance-*.md.

`python -m tests.lab.grading` grades all of them (an hour), with names those alone. `docs/findings/known.toml`
has what each failure means: where the source does so, whether it matters, and text for a report upstream.
"""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ipoibu.conform.report import page
from ipoibu.lab import Lab, NamespaceLab
from ipoibu.lab.host import NETDEV
from ipoibu.lab.machines.mounts import ROOT
from ipoibu.lab.underlay import Underlay

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
            lab.b.start(f"cd {ROOT}; exec {sys.executable} -m {HELPER} serve")
            words = ["--device", "rxe0", "--peer", lab.b.ipv4, "--peer", lab.b.ipv6]
            words += ["--helper", f"{sys.executable} -m {HELPER} ask fe80::ff:fe00:2%vec0"]
            words += [*WORDS, "--json", "/tmp/report.json"]
            lab.a.execute(f"cd {ROOT}; {IPOIBU} conform {shlex.join(words)}", LIMIT_S)
            return _report(lab.a.get("/tmp/report.json"))

    return grade


def namespace(
    *options: str, device: str = f"soft:{NETDEV}", underlay: Underlay | None = None
) -> Callable[[Path], dict[str, Any]]:
    """Grade the second host of a lab in network namespaces from the first."""

    def grade(directory: Path) -> dict[str, Any]:
        with NamespaceLab(options=options, underlay=underlay, start=False) as lab:
            tester, host = lab.hosts
            host.start()
            helper = f"ip netns exec {host.namespace.name} sh -c"
            words = ["--device", device, "--peer", str(host.ipv4.ip), "--peer", str(host.ipv6.ip)]
            words += ["--helper", helper, *WORDS, "--json", str(directory / "report.json")]
            tester.namespace.popen([*IPOIBU.split(), "conform", *words]).wait(LIMIT_S)
        return _report((directory / "report.json").read_bytes())

    return grade


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


def main(names: list[str]) -> None:
    for subject in SUBJECTS:
        if not names or subject.name in names:
            print(subject.name, flush=True)
            write(subject)


if __name__ == "__main__":
    main(sys.argv[1:])
