# SPDX-License-Identifier: BSD-2-Clause
"""The order of the stages, and what the log says about each; tests/netns/test_sandbox.py attempts
what they forbid."""

from __future__ import annotations

import logging
import os
from functools import partial
from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.base.privilege import CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW
from ipoibu.daemon import privilege
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.parsers import parse_sandbox, parse_user
from ipoibu.sandbox import landlock, seccomp, stages
from ipoibu.sandbox.errors import Unavailable
from ipoibu.sandbox.landlock import Access, TcpPorts
from ipoibu.sandbox.stages import Needs, Stage, confine

NEEDS = Needs(user=None, capabilities=(), paths=())


@pytest.fixture
def carried_out(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """The stages that `confine` reaches; none of them has an effect."""
    reached: list[Stage] = []

    def note(stage: Stage, needs: Needs) -> str:
        reached.append(stage)
        return stage.name

    for stage in stages._STAGES:
        monkeypatch.setitem(stages._STAGES, stage, partial(note, stage))
    monkeypatch.setattr(os, "listdir", lambda path: ["1"])
    return reached


@pytest.mark.parametrize("last", Stage)
def test_confine_carries_out_every_stage_up_to_the_last(
    carried_out: list[Stage], last: Stage
) -> None:
    confine("ib0", NEEDS, last)
    assert carried_out == [stage for stage in Stage if 0 < stage <= last]


def test_a_stage_that_the_machine_lacks_is_logged_and_the_others_are_carried_out(
    carried_out: list[Stage], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(needs: Needs) -> str:
        raise Unavailable("this kernel has no Landlock")

    monkeypatch.setitem(stages._STAGES, Stage.LANDLOCK, refuse)
    with caplog.at_level(logging.INFO):
        confine("ib0", NEEDS, Stage.SECCOMP)
    assert carried_out[-1] is Stage.SECCOMP
    assert caplog.messages[0] == (
        "ib0: this machine lacks stage 4 (landlock) of the sandbox: this kernel has no Landlock"
    )
    assert caplog.messages[-1] == "ib0: sandbox: USER, CAPABILITIES, NO_NEW_PRIVS, SECCOMP"


def test_threads_that_run_already_are_reported(
    carried_out: list[Stage], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "listdir", lambda path: ["1", "2", "3"])
    confine("ib0", NEEDS, Stage.NO_NEW_PRIVS)
    assert caplog.messages == ["ib0: 2 threads run outside the sandbox"]


def test_a_kernel_without_landlock_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(landlock, "syscall", refuse)
    with pytest.raises(Unavailable, match="no Landlock"):
        landlock.version()


def test_a_machine_without_libseccomp_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> object:
        raise RuntimeError("Unable to find libseccomp")

    monkeypatch.setattr("importlib.import_module", refuse)
    monkeypatch.setattr(seccomp, "load", seccomp.load.__wrapped__)
    with pytest.raises(Unavailable, match="pyseccomp"):
        seccomp.restrict()


@pytest.mark.parametrize(
    ("text", "stage"), [("on", Stage.SECCOMP), ("off", Stage.OFF), ("3", Stage.NO_NEW_PRIVS)]
)
def test_the_last_stage_is_given_by_number_or_as_a_switch(text: str, stage: Stage) -> None:
    assert parse_sandbox(text) is stage


@pytest.mark.parametrize("text", ["", "6", "-1", "yes", "3.0"])
def test_no_other_text_is_a_stage(text: str) -> None:
    with pytest.raises(UsageError, match="a stage from 0 to 5"):
        parse_sandbox(text)


def test_a_user_is_a_name_or_a_number_of_this_machine() -> None:
    assert parse_user("0") == parse_user("root")
    for text in ("no-such-user", "4294967295999", ""):
        with pytest.raises(UsageError, match="this machine has no user"):
            parse_user(text)


def _needs(tmp_path: Path, **options: str) -> Needs:
    return privilege.needs_of(InterfaceConfig.build("ib0", options))


def test_an_rdma_device_needs_more_capabilities_than_the_built_in_hca(tmp_path: Path) -> None:
    assert _needs(tmp_path, device="soft:eth0").capabilities == {CAP_NET_ADMIN}
    rdma = {CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK}
    assert _needs(tmp_path, device="mlx5_0").capabilities == rdma


def test_files_that_are_read_again_keep_their_directories_open(tmp_path: Path) -> None:
    file = tmp_path / "partitions.conf"
    rules = _needs(tmp_path, device="soft:eth0", partitions=str(file)).paths
    readable = {rule.path for rule in rules if rule.access & Access.READ_FILE}
    assert tmp_path in readable
    assert not readable & {Path("/"), Path("/etc"), Path("/root"), Path.cwd()}


@pytest.mark.parametrize("option", ["partitions", "peers-file"])
def test_the_directory_to_which_a_link_leads_stays_open_too(tmp_path: Path, option: str) -> None:
    there = tmp_path / "there"
    there.mkdir()
    (there / "file").touch()
    (tmp_path / "here").mkdir()
    link = tmp_path / "here/link"
    link.symlink_to("../there/file")
    rules = _needs(tmp_path, device="soft:eth0", **{option: str(link)}).paths
    readable = {rule.path for rule in rules if rule.access & Access.READ_FILE}
    assert {link.parent, there} <= readable


def test_only_who_has_peers_uses_tcp(tmp_path: Path) -> None:
    assert _needs(tmp_path, device="soft:eth0").tcp == TcpPorts((), ())
    peer = {"peer": "192.0.2.1"}
    assert _needs(tmp_path, device="siw0", **peer).tcp == TcpPorts(None, (4792,))
    options = peer | {"mesh-port": "5000"}
    assert _needs(tmp_path, device="soft:eth0", **options).tcp == TcpPorts(None, (5000,))


def test_a_user_without_the_stage_of_capabilities_is_refused() -> None:
    with pytest.raises(UsageError, match="--user root needs stage 2"):
        InterfaceConfig.build("ib0", {"device": "soft:eth0", "user": "root", "sandbox": "off"})
