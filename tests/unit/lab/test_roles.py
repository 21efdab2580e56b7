# SPDX-License-Identifier: BSD-2-Clause
"""Scripts of roles: their order, and how they end. The agents of three machines run on the host."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.lab import Lab, MachineFailed
from ipoibu.lab.machines import roles as module
from ipoibu.lab.machines.agent import Agent, Command
from ipoibu.lab.machines.machine import CommandFailed, Machine
from ipoibu.lab.machines.mounts import INSIDE
from ipoibu.lab.machines.roles import Roles, Script, play
from ipoibu.lab.machines.runner import Result
from ipoibu.lab.machines.shared import SharedDirectory

NAMES = "abc"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """A lab whose machines are agents on the host, in an empty directory."""
    monkeypatch.setenv("LAB_INSIDE", str(INSIDE))
    lab = Lab(len(NAMES), ipoib="none")
    lab.directory = tmp_path
    with ExitStack() as stack:
        machines = []
        for plan in lab.plans:
            (tmp_path / plan.name).mkdir()
            ours, theirs = socket.socketpair()
            command = [str(INSIDE / "agent")]
            process = subprocess.Popen(command, stdin=theirs.fileno(), cwd=tmp_path)
            stack.enter_context(process)
            theirs.close()
            agent = stack.enter_context(Agent(ours, changed=lab._changed))
            lab._agents.append(agent)
            shared = stack.enter_context(SharedDirectory(tmp_path / plan.name))
            machines.append(Machine(plan, agent, shared, lambda: MachineFailed("it ended")))
            lab.results.append(Result(plan.name, None, "all of it\n", "", "the lab ended", 1.0))
        lab.guests = tuple(machines)
        yield lab


def run(lab: Lab, *scripts: str, timeout_s: float = 60) -> Roles:
    roles = Roles([Script.parse(it, NAMES) for it in scripts])
    roles.run(lab, timeout_s)
    return roles


def test_a_script_for_all_waits_for_earlier_ones_and_later_ones_for_it(lab: Lab) -> None:
    roles = run(
        lab,
        "a=sleep 0.2; echo first >log",
        "b=true",
        "all=cat log; echo all >>log",
        "c=sort -u log",
    )
    assert roles.status(lab) == 0
    a, b, c = roles.results(lab)
    assert [it.status for it in (a, b, c)] == [0, 0, 0]
    assert all(it.output.startswith("first\n") and it.failure is None for it in (a, b, c))
    assert c.output.endswith("all\nfirst\n")
    assert not (lab.directory / "failed").exists()


def test_the_first_script_that_fails_decides(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    roles = run(lab, "a=echo begun; exec sleep 1000", "b=exit 7", "b=echo never", "c=true")
    assert roles.status(lab) == 7
    a, b, c = roles.results(lab)
    assert (a.status, a.failure, a.output) == (
        None,
        "ended because machine b failed",
        "all of it\n",
    )
    assert (b.status, b.failure, b.output) == (7, None, "")
    assert c.succeeded
    assert a.culprit is not None
    assert a.culprit.name == "b"
    assert [it.name for it in b.victims] == ["a"]
    assert (lab.directory / "failed").exists()


def test_time_that_runs_out_ends_all(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_S", 0.1)
    roles = run(lab, "a=exec sleep 1000", timeout_s=0.1)
    assert roles.status(lab) == 124
    assert roles.results(lab)[0].failure == "did not end within 0.1 s"


def test_a_machine_that_ends_is_an_error(lab: Lab) -> None:
    lab._agents[0].ask_to_finish()
    with pytest.raises(MachineFailed, match="it ended"):
        lab.guests[0].succeed("true")


def test_a_machine_that_ends_decides_for_all(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its agent, the parent of its script, is killed; nothing of its kernel says why."""
    monkeypatch.setattr(lab, "_failure", lambda index: MachineFailed(f"{index} ended"))
    roles = Roles([Script.parse(it, NAMES) for it in ("a=sleep 1000", "b=kill -9 $PPID")])
    with pytest.raises(MachineFailed, match="1 ended"):
        roles.run(lab, 60)
    lab.failure = MachineFailed("1 ended")
    assert roles.status(lab) == 1
    a, b, c = roles.results(lab)
    assert (a.status, a.failure) == (None, "ended because machine b failed")
    assert (b.status, b.failure) == (None, "the lab ended")  # what its own result says
    assert c.succeeded
    assert a.culprit is not None
    assert a.culprit.name == "b"


def test_a_text_that_is_longer_than_a_path_is_a_text(lab: Lab) -> None:
    text = "a=true " + "x" * 5000 + "; echo end"
    assert run(lab, text).results(lab)[0].output == "end\n"


def test_each_machine_plays_its_command(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lab, "start", lambda lab: None)
    monkeypatch.setattr(Lab, "close", lambda lab: None)
    a, b, c = play(lab, ["type -t meet", ["sleep", "0"], "exit 0"])
    assert (a.check().output, b.check().output, c.status) == ("function\n", "", 0)
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        play(lab, ["true"])


def test_words_run_as_they_are(lab: Lab) -> None:
    roles = Roles([Script("a", words=("printf", "%s|", "a b", "$HOME"))])
    roles.run(lab, 60)
    assert roles.results(lab)[0].output == "a b|$HOME|"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("true", "expected ROLE=SCRIPT"),
        ("a=", "expected ROLE=SCRIPT"),
        ("d=true", "the roles are a, b, c and all"),
    ],
)
def test_what_is_no_script_of_a_role_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Script.parse(text, NAMES)


def test_a_command_that_its_time_ends_has_no_exit_status(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even where the agent tells it, because of the signal, before the error is made."""
    kill = Command.kill

    def kill_slowly(command: Command, signal: int) -> None:
        kill(command, signal)
        assert command.wait(60) == 128 + signal

    monkeypatch.setattr(Command, "kill", kill_slowly)
    with pytest.raises(CommandFailed, match="ran out of time") as caught:
        lab.guests[0].succeed("exec sleep 1000", timeout=0.1)
    assert caught.value.status is None
