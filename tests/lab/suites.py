# SPDX-License-Identifier: BSD-2-Clause
"""Runs the suites of examples/suites, and stores what they say in docs/findings/suites.

`python -m tests.lab.suites` runs all of them (an hour), with names those alone, with NAME/2 the second
run of one, and then docs/make/list_suites.py makes pages of it. A run that ends without its verdicts keeps
those of before, and the status is 1.

A suite is a script that prints lines of the Test Anything Protocol; its head has the commands that run it
("Run:", each for the kernels of "Kernels:"), the Debian packages whose versions count ("Debian:"), and a
sentence about the suite. A line "Before:" is a command that makes what the runs share with their machines.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from tests.lab.heads import head

TREE: Final = Path(__file__).parents[2]
SUITES: Final = TREE / "examples/suites"
STORE: Final = TREE / "docs/findings/suites"
# What somebody has found out about failures: for each suite tables with "reason" and, as regular
# expressions, "tests", "runs" and "said". With "unsteady" the verdicts differ from run to run.
KNOWN: Final = TREE / "docs/findings/suites.toml"
KEYS: Final = ("Debian", "Kernels", "Before", "Run")
LIMIT_S: Final = 1200

LINE: Final = re.compile(r"(not )?ok (\S.*?)(?: *# *(SKIP\b *)?(.*?))? *")
SIDES: Final = {"kernel": "ib_ipoib", "none": "none"}
# An address in memory, a process number and the like differ from run to run.
VARYING: Final = re.compile(r"0x[0-9a-f]{6,}|\[[\d.]+\] \[\w+:\d+ *:\d+\] *|\b\d{4,}\b")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a suite: a kernel, its flavour, the fabric, and what ib0 is."""

    kernel: str
    flavour: str
    fabric: str
    side: str
    arguments: tuple[str, ...]  # of the program ipoibu

    @property
    def title(self) -> str:
        return f"{self.kernel} {self.flavour}, {self.fabric}, {self.side}"

    @classmethod
    def of(cls, kernel: str, command: str) -> Run:
        program, *words = shlex.split(command)
        assert program == "ipoibu", command
        options = dict(pairwise(words))
        ipoib = options.get("--ipoib", "none" if options.get("--fabric") == "none" else "kernel")
        mode = "" if "--mode" not in options else f" {options['--mode']}"
        return cls(
            kernel,
            options.get("--flavour", "lean"),
            options.get("--fabric", "ib") + (" with OpenSM" if "--sm" in options else ""),
            SIDES.get(ipoib, ipoib) + mode,
            ("lab", "--kernel", kernel, *words[1:]),
        )


@dataclass(frozen=True, slots=True)
class Suite:
    name: str
    about: str
    packages: tuple[str, ...]
    runs: tuple[Run, ...]
    before: tuple[str, ...]
    lines: int

    @property
    def stored(self) -> Path:
        return STORE / f"{self.name}.json"


@dataclass(slots=True)
class Outcome:
    """What one run has said: a verdict for each test, such as "pass", "skip: no XRC" or "fail: timeout"."""

    tests: dict[str, str] = field(default_factory=dict)
    release: str = ""  # of the kernel


def suites() -> list[Suite]:
    found = []
    for file in sorted(SUITES.glob("*.sh")):
        if file.name == "tap.sh":
            continue
        said = head(file, KEYS)
        kernels = said["Kernels"][0].split()
        runs = tuple(Run.of(kernel, command) for command in said["Run"] for kernel in kernels)
        about = " ".join(said["About"]).strip().removeprefix(f"{file.name}: ")
        packages = tuple(it.strip() for line in said.get("Debian", []) for it in line.split(","))
        before = tuple(said.get("Before", []))
        lines = len(file.read_text().splitlines())
        found.append(Suite(file.stem, about, packages, runs, before, lines))
    return found


def read(outputs: list[str]) -> Outcome:
    """Read the lines of all machines; a test that two machines speak of passes if both say so."""
    outcome = Outcome()
    for line in (it for output in outputs for it in output.splitlines()):
        if line.startswith("# Linux "):
            outcome.release = line.removeprefix("# Linux ")
        said = LINE.fullmatch(line)
        if said is None:
            continue
        why = VARYING.sub("N", said[4] or "").strip().rstrip(".")
        verdict = "fail" if said[1] else "skip" if said[3] is not None else "pass"
        if verdict != "pass" and why:
            verdict += f": {why}"
        if outcome.tests.get(said[2], "pass") == "pass":
            outcome.tests[said[2]] = verdict
    return outcome


def perform(run: Run) -> Outcome:
    command = [sys.executable, "-m", "ipoibu.cli", *run.arguments]
    at = command.index("lab") + 1
    command[at:at] = ["--json", "--timeout", str(LIMIT_S), "--tolerate-warnings"]
    done = subprocess.run(
        command, cwd=TREE, capture_output=True, text=True, timeout=LIMIT_S + 600, check=False
    )
    report = json.loads(done.stdout)
    outcome = read([it["output"] for it in report["hosts"]])
    said = f"{run.title}: {done.stdout[-4000:]}{done.stderr[-2000:]}"
    assert report["ok"], said
    assert outcome.tests, said
    return outcome


def prepare(suite: Suite) -> None:
    for command in suite.before:
        subprocess.run(shlex.split(command), cwd=TREE, check=True)


def version(package: str) -> str:
    query = ["dpkg-query", "--show", "--showformat", "${Version}", package]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout


def load(suite: Suite) -> dict[str, Any]:
    """Return what is stored: versions, and for each run its title, kernel and verdicts."""
    if not suite.stored.exists():
        return {"versions": {}, "runs": []}
    stored: dict[str, Any] = json.loads(suite.stored.read_text())
    return stored


def outcomes_of(suite: Suite) -> dict[Run, Outcome]:
    """Return what is stored of the runs that the suite still has."""
    stored = {it["title"]: Outcome(it["tests"], it["linux"]) for it in load(suite)["runs"]}
    return {run: stored[run.title] for run in suite.runs if run.title in stored}


def store(suite: Suite, outcomes: dict[Run, Outcome]) -> None:
    """Write the verdicts, those of one run under each other, each test on a line of its own."""
    parts = []
    for run in (it for it in suite.runs if it in outcomes):
        outcome = outcomes[run]
        tests = json.dumps(dict(sorted(outcome.tests.items())), indent=4)
        title, release = json.dumps(run.title), json.dumps(outcome.release)
        parts.append(f'{{"title": {title}, "linux": {release}, "tests": {tests}}}')
    versions = json.dumps({it: version(it) for it in suite.packages})
    STORE.mkdir(exist_ok=True)
    text = f'{{"versions": {versions},\n"runs": [\n' + ",\n".join(parts) + "\n]}\n"
    suite.stored.write_text(text)


def known(suite: str, test: str, run: str, verdict: str) -> dict[str, Any] | None:
    """Return what is known of a verdict: the first table of the suite whose expressions fit."""
    for entry in tomllib.loads(KNOWN.read_text()).get(suite, []):
        said = {"tests": test, "runs": run, "said": verdict.partition(": ")[2]}
        if all(re.search(entry[it], words) for it, words in said.items() if it in entry):
            return dict(entry)
    return None


def steady(suite: Suite, run: Run, tests: dict[str, str]) -> dict[str, str]:
    """Return the kind of each verdict that does not differ from run to run."""
    kinds = {}
    for test, verdict in tests.items():
        entry = known(suite.name, test, run.title, verdict)
        if entry is None or not entry.get("unsteady"):
            kinds[test] = verdict.partition(":")[0]
    return kinds


def main(names: list[str]) -> int:
    failed = 0
    for suite in suites():
        chosen = [
            run
            for number, run in enumerate(suite.runs, 1)
            if not names or suite.name in names or f"{suite.name}/{number}" in names
        ]
        if not chosen:
            continue
        prepare(suite)
        for run in chosen:
            print(suite.name, run.title, flush=True)
            try:
                outcome = perform(run)
            except (AssertionError, ValueError, subprocess.TimeoutExpired) as error:
                failed += 1
                print(error, file=sys.stderr, flush=True)
                continue
            # After each run, so that an end in the middle keeps what there is.
            store(suite, {**outcomes_of(suite), run: outcome})
    subprocess.run([sys.executable, TREE / "docs/make/list_suites.py"], check=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]) > 0)
