# SPDX-License-Identifier: BSD-2-Clause
"""The action for workflows: its script fetches what the inputs name, checks it, and calls the lab.

The program here writes its arguments down; `test_bare_root.py` has the lab itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

pytestmark = pytest.mark.builds

ACTION: Final = Path(__file__).parents[2] / "packaging/action"
USERLAND: Final = "ipoibu-userland-x86_64.tar.gz"
# Writes each call with what it has of the surroundings; the last word of a run says the exit status.
PROGRAM: Final = """
import json, os, sys
with open(os.environ["CALLS"], "a") as file:
    print(json.dumps(sys.argv[1:]), file=file)
sys.exit(int(os.environ.get("STATUS", "0")) if "--guests" in sys.argv else 0)
"""


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A directory of artefacts."""
    directory = tmp_path / "release"
    directory.mkdir()
    with zipfile.ZipFile(directory / "ipoibu-lab.pyz", "w") as archive:
        archive.writestr("__main__.py", PROGRAM)
    for name in (
        USERLAND,
        "linux-6.1.99-lean.tar.xz",
        "linux-6.1.192-lean.tar.xz",
        "linux-6.12.1-full.tar.xz",
        "linux-6.12.1-lean.tar.xz",
    ):
        (directory / name).write_text(name)
    lines = [
        f"{hashlib.sha256(it.read_bytes()).hexdigest()}  {it.name}" for it in directory.iterdir()
    ]
    (directory / "SHA256SUMS").write_text("\n".join(lines) + "\n")
    return directory


class Runner:
    """Calls the script as a runner does, but without a home and a terminal; it may write in `work` alone."""

    def __init__(self, work: Path, release: Path) -> None:
        self.work = work
        self.variables = {
            "PATH": os.environ["PATH"],
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_OUTPUT": str(work / "outputs"),
            "RUNNER_TEMP": str(work),
            "CALLS": str(work / "calls"),
            "LAB_ARTEFACTS": str(release),
            "LAB_KERNEL": "6.1",
            "LAB_RUN": "a: true",
        }

    def __call__(self, step: str, **inputs: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ACTION / "lab", step],
            env={**self.variables, **inputs},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    def outputs(self) -> dict[str, str]:
        lines = (self.work / "outputs").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)

    def calls(self) -> list[list[str]]:
        file = self.work / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def runner(tmp_path: Path, release: Path) -> Runner:
    work = tmp_path / "work"
    work.mkdir()
    return Runner(work, release)


def test_it_fetches_by_digest_and_passes_the_inputs_on(runner: Runner, release: Path) -> None:
    script = "all: ./setup.sh\n\na: first\n  second 'x'\nb: x && y\n"
    inputs = {"LAB_GUESTS": "3", "LAB_MODE": "connected", "LAB_SHARE": ".", "LAB_REPORT": "j.xml"}
    done = runner("run", LAB_RUN=script, LAB_USERLAND="auto", **inputs)
    assert done.returncode == 0, done.stderr
    *fetches, call = runner.calls()
    newest = "linux-6.1.192-lean.tar.xz"
    assert fetches == [
        ["lab", kind, "fetch", f"{release}/{name}", "--sha256", sha256(release / name)]
        for kind, name in (("userland", USERLAND), ("kernel", newest))
    ]
    output = runner.outputs()["output"]
    assert call == [
        *("lab", "--guests", "3", "--output", output, "--kernel", "6.1"),
        *("--mode", "connected", "--share", ".", "--userland", "auto", "--junit", "j.xml"),
        *("--run", "all=./setup.sh", "--run", "a=first\n  second 'x'", "--run", "b=x && y"),
    ]
    assert Path(output).is_dir()


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_what_is_in_the_cache_is_not_fetched_again(runner: Runner) -> None:
    assert runner("run").returncode == runner("run").returncode == 0
    assert [call[1] for call in runner.calls()] == ["userland", "kernel", "--guests", "--guests"]


def test_the_key_is_that_of_the_content(runner: Runner, release: Path) -> None:
    assert runner("choose").returncode == 0
    first = runner.outputs()
    assert first["cache"] == str(runner.work / "ipoibu-cache")
    runner("choose", LAB_KERNEL="6.12")
    other = runner.outputs()["key"]
    runner("choose")
    assert runner.outputs()["key"] == first["key"] != other


def test_the_exit_status_is_that_of_the_lab(runner: Runner) -> None:
    assert runner("run", STATUS="7").returncode == 7


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ({"LAB_ARTEFACTS": ""}, "no directory and no URL"),
        ({"LAB_ARTEFACTS": "https://host/x"}, "must end with a slash"),
        ({"LAB_KERNEL": "5.4"}, "has no artefact"),
        ({"LAB_FLAVOUR": "full"}, "has no artefact"),
        ({"LAB_RUN": "\n"}, "there is no script"),
        ({"LAB_RUN": "  x"}, "continues none"),
        ({"LAB_RUN": "make test"}, "expected ROLE: SCRIPT"),
    ],
)
def test_wrong_inputs_are_named(runner: Runner, inputs: dict[str, str], said: str) -> None:
    done = runner("run", **inputs)
    assert done.returncode == 2
    assert said in done.stderr
    assert "--guests" not in {word for call in runner.calls() for word in call}


def test_a_program_with_another_digest_does_not_run(runner: Runner, release: Path) -> None:
    with zipfile.ZipFile(release / "ipoibu-lab.pyz", "a") as archive:
        archive.writestr("more", "")
    done = runner("run")
    assert done.returncode == 2
    assert "another SHA-256" in done.stderr
    assert runner.calls() == []


def test_the_action_gives_its_script_all_inputs() -> None:
    action: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text())
    script = (ACTION / "lab").read_text()
    used = set(re.findall(r"\bLAB_[A-Z]+\b", script))
    loop = re.search(r"for name in ([A-Z ]+); do", script)
    assert loop is not None
    used |= {f"LAB_{name}" for name in loop[1].split()}
    steps = [step for step in action["runs"]["steps"] if "run" in step]
    given = {name: value for step in steps for name, value in step["env"].items()}
    assert used == set(given)
    named = {re.fullmatch(r"\$\{\{ inputs\.([a-z-]+) \}\}", value) for value in given.values()}
    assert {match[1] for match in named if match} == set(action["inputs"])
    for step in steps:
        assert os.access(ACTION / step["run"].split("/")[-1].split('"')[0], os.X_OK)
