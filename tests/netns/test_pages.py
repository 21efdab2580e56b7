# SPDX-License-Identifier: BSD-2-Clause
"""The commands of the pages run as they stand, and print what the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.namespace import LabNamespace
from tests.doubles.page_blocks import ROOT, Block, blocks, missing, pages
from tests.doubles.page_sessions import ELSEWHERE, SESSIONS

pytestmark = [pytest.mark.netns, pytest.mark.timeout(700)]

# These pages open a shell: `ipoibu lab -- bash`
SHELL_PAGES: Final = ("README.md", "docs/use/tutorial.md")
GUIDE: Final = "docs/use/rdma-guide.md"  # tests/lab/test_guide.py runs its sessions
DIRECTORIES: Final = "/etc/ipoibu|/var/lib/prometheus/node-exporter"
BETWEEN: Final = "=== next block ==="
TIMEOUT_S: Final = 200
# A command of a page that starts in the background has as long as the page's `sleep`. Where the machine is
# too slow for that, try again with this many times that long.
PATIENCE: Final = (1, 4, 10)
SLEEP: Final = """\
sleep() {{ command sleep $(( $1 * {patience} )); }}
timeout() {{ command timeout -s INT $(( $1 * {patience} )) "${{@:2}}"; }}
export -f sleep timeout
"""

Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]


def shell_blocks() -> list[Block]:
    return [block for page in pages() for block in blocks(page, "sh", "console")]


def named(key: str) -> Block:
    (block,) = (block for block in shell_blocks() if block.name.startswith(key))
    return block


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A directory that looks like a clone with a virtual environment."""
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name, words in (("ipoibu", "-m ipoibu.cli"), ("python", "")):
        path = programs / name
        path.write_text(
            f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" {words} "$@"\n', "utf-8"
        )
        path.chmod(0o755)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "etc").mkdir()
    return tmp_path


def attempt(session: Callable[[str], list[tuple[Block, str]]]) -> None:
    """Run a session, which gets the first lines of its script and returns blocks with what they print."""
    for patience in PATIENCE:
        results = session(SLEEP.format(patience=patience))
        if all(is_as_shown(block, printed) for block, printed in results):
            break
    for block, printed in results:
        compare(block, printed)


def run(clone: Path, script: str, namespace: LabNamespace | None = None) -> str:
    """What the shell and its background jobs print."""
    environment = {"PATH": f"{clone}/.venv/bin:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output:
        words = ["bash", "-c", f"cd {clone}\n{script}"]
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": output,
            "stderr": subprocess.STDOUT,
        }
        if namespace is None:
            process = subprocess.Popen(words, env={**os.environ, **environment}, **options)
        else:
            process = namespace.popen(words, environment=environment, **options)
        try:
            process.wait(TIMEOUT_S)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        return output.read()


def is_as_shown(block: Block, printed: str) -> bool:
    return block.language != "console" or missing(block.output, printed) is None


def compare(block: Block, printed: str) -> None:
    line = missing(block.output, printed) if block.language == "console" else None
    assert line is None, f"{block.page}:{block.line}: no {line!r} in its place in:\n{printed}"
    assert "Traceback" not in printed


def test_every_command_of_the_pages_is_run_by_a_test() -> None:
    keys = [*SESSIONS, *ELSEWHERE]
    for block in shell_blocks():
        if block.page in (*SHELL_PAGES, GUIDE) and block.language == "console":
            continue
        assert len([key for key in keys if block.name.startswith(key)]) == 1, block.name
    assert all(named(key) for key in keys)
    for file, text in ELSEWHERE.values():
        assert text in (ROOT / file).read_text(encoding="utf-8"), file


@pytest.mark.parametrize("page", SHELL_PAGES)
def test_a_shell_of_the_lab_prints_what_the_page_shows(page: str, clone: Path) -> None:
    first, *following = blocks(page, "console")
    start, *commands = first.commands
    assert start == ".venv/bin/ipoibu lab -- bash"
    within, at_an_end = [first], False
    script = [*commands]
    for block in following:
        if not at_an_end:
            within.append(block)
            script += [f"echo '{BETWEEN}'", *block.commands]
        at_an_end = at_an_end or "exit" in block.commands
    path = clone / "commands"
    path.write_text("\n".join(script), encoding="utf-8")

    def session(head: str) -> list[tuple[Block, str]]:
        printed = run(clone, f"{head}{start} {path}").split(f"{BETWEEN}\n")
        assert len(printed) == len(within), printed
        return list(zip(within, printed, strict=True))

    attempt(session)


def test_two_machines_of_the_tutorial_reach_each_other(
    clone: Path, bare: NamespaceLab, cli: Cli, until: Until
) -> None:
    first, second = (
        block for block in blocks("docs/use/tutorial.md", "console") if " run " in block.text
    )
    left, right = bare.hosts
    environment = {"PYTHONPATH": str(ROOT)}
    process = left.namespace.popen(
        ["bash", "-c", f"cd {clone}; exec {first.commands[0]}"], environment=environment
    )
    try:
        until(lambda: "10.0.0.1 preferred" in cli(left, "show").stdout)
        script = "\n".join(second.commands)
        attempt(lambda head: [(second, run(clone, head + script, right.namespace))])
    finally:
        process.terminate()
        process.wait(60)


def test_the_last_session_of_the_tutorial_needs_no_device(clone: Path) -> None:
    *_, last = blocks("docs/use/tutorial.md", "console")
    compare(last, run(clone, "\n".join(last.commands)))


@pytest.mark.parametrize("key", [key for key in SESSIONS if SESSIONS[key].start])
def test_a_session_prints_what_the_page_shows(key: str, clone: Path, lab: NamespaceLab) -> None:
    session_of(key, clone, lab)


@pytest.mark.parametrize("key", [key for key in SESSIONS if not SESSIONS[key].start])
def test_a_session_with_its_own_interface(key: str, clone: Path, idle: NamespaceLab) -> None:
    session_of(key, clone, idle)


def session_of(key: str, clone: Path, lab: NamespaceLab) -> None:
    """Run a session of the table in the first host; files of the system lie in a directory of the test."""
    block, session = named(key), SESSIONS[key]
    commands = "\n".join(block.commands)
    if session.limit_s:
        commands = f"timeout {session.limit_s} {commands}"
    script = f"{session.before}\necho '{BETWEEN}'\n{commands}"

    def once(head: str) -> list[tuple[Block, str]]:
        ours = head + re.sub(DIRECTORIES, f"{clone}/etc", script)
        printed = run(clone, ours, lab.hosts[0].namespace).replace(f"{clone}/etc", "/etc/ipoibu")
        if block.language == "sh":
            assert "ipoibu: " not in printed
        return [(block, printed.partition(f"{BETWEEN}\n")[2])]

    attempt(once)
