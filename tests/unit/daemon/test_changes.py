# SPDX-License-Identifier: BSD-2-Clause
"""Options that change while the interface runs, and the refusal of all others."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.cli.main import main
from ipoibu.daemon.config.options import OPTIONS, Option
from ipoibu.daemon.interface.changes import CHANGEABLE, Changes
from ipoibu.daemon.interface.hosted_interface import HostedInterface
from ipoibu.daemon.interface.proxy_table import ProxyTable
from ipoibu.daemon.process.log_level import LogLevel
from ipoibu.endpoint.api.endpoint import Endpoint

PARTS: dict[str, type] = {
    "endpoint": Endpoint,
    "interface": HostedInterface,
    "proxies": ProxyTable,
    "log": LogLevel,
}


class Interface:
    """An interface that keeps what it is given."""

    name = "ib0"

    def __init__(self) -> None:
        self.busy_poll_us: int | None = None
        self.mtu = 2044
        self.mode = "datagram"
        self.parts = {"endpoint": self, "interface": self, "log": LogLevel()}

    def set_busy_poll(self, busy_poll_us: int | None) -> None:
        self.busy_poll_us = busy_poll_us

    def set_mode(self, mode: str) -> None:
        self.mode = mode

    def set_mtu(self, mtu_bytes: int) -> None:
        self.mtu = mtu_bytes


def _set(interface: Interface, option: Any, value: Any) -> Any:
    with ThreadPoolExecutor(1) as executor:
        action = Changes(cast(Any, interface), executor).actions["set"]
        return asyncio.run(action({"option": option, "value": value}))


@pytest.fixture
def root_level() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    yield root
    root.setLevel(before)


def test_busy_polling_changes_and_the_answer_has_the_value_before() -> None:
    interface = Interface()
    done = _set(interface, "busy-poll", "50")
    assert done == {"dev": "ib0", "option": "busy-poll", "value": "50", "before": "auto"}
    assert interface.busy_poll_us == 50
    assert _set(interface, "busy-poll", "auto")["before"] == "50"
    assert interface.busy_poll_us is None


def test_the_mode_changes() -> None:
    interface = Interface()
    assert _set(interface, "mode", "connected")["before"] == "datagram"
    assert interface.mode == "connected"


def test_the_mtu_changes() -> None:
    interface = Interface()
    assert _set(interface, "mtu", "1400")["before"] == "2044"
    assert interface.mtu == 1400


def test_the_log_level_of_the_process_changes(root_level: logging.Logger) -> None:
    assert _set(Interface(), "log-level", "debug")["before"] == "warning"
    assert root_level.level == logging.DEBUG


@pytest.mark.parametrize("option", [it.name for it in OPTIONS if it.name not in CHANGEABLE])
def test_every_other_option_is_refused_with_its_name(option: str) -> None:
    with pytest.raises(UsageError, match=rf"^{option} cannot change while .* another --{option}$"):
        _set(Interface(), option, "1")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "colour",
            "red",
            f"'colour' is no option; these can change: {', '.join(CHANGEABLE)}",
        ),
        ("busy-poll", "soon", "'soon'"),
        ("log-level", "loud", "'loud' is no log level"),
        (7, "50", '"option" and "value" are texts'),
        ("mtu", None, '"option" and "value" are texts'),
    ],
)
def test_a_bad_request_is_refused(option: object, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        _set(Interface(), option, value)


@pytest.mark.parametrize(
    "words",
    [
        ["set", "ib0", "queues", "2"],
        ["set", "ib0", "colour", "red"],
        ["set", "ib0", "mtu", "x"],
        ["log", "ib0", "loud"],
    ],
)
def test_the_command_refuses_before_it_asks(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_running_interface_has_every_part() -> None:
    assert set(vars(HostedInterface)["parts"].fget(Mock())) == set(PARTS)


@pytest.mark.parametrize("option", [it for it in OPTIONS if it.change is not None])
def test_the_method_that_a_row_names_exists_and_so_does_the_present_value(option: Option) -> None:
    assert option.change is not None
    if option.change.call is None:  # the children carry it out
        assert option.several
        return
    part, method = option.change.call.split(".")
    assert callable(getattr(PARTS[part], method))
    if not option.several:
        assert hasattr(PARTS[part], option.field.rpartition(".")[2])


def test_the_page_names_what_can_change() -> None:
    page = (Path(__file__).parents[3] / "docs/use/watching.md").read_text("utf-8")
    table = page.split("## ipoibu set, ipoibu log\n")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == CHANGEABLE
