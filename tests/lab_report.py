# SPDX-License-Identifier: BSD-2-Clause
"""Adds to the report of a failed test what the hosts of its labs show: a failure of one run in a hundred is
seen once."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from types import TracebackType
from typing import Any, Final

import pytest

from ipoibu.base.errors import IpoibuError
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

_QUESTIONS: Final = ("show", "peers", "neigh", "mcast", "conn", "stats")
_KERNEL: Final = "ip -s link show ib0; ip address show ib0; ip route; ip -6 route; ip neigh"
_FAILURES: Final = (Exception, pytest.fail.Exception)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Describe the labs while they still run: those that the test opens itself, and those of fixtures."""
    close = NamespaceLab.__exit__

    def describe_and_close(
        lab: NamespaceLab,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, _FAILURES):
            item.add_report_section("call", "lab", describe(lab))
        close(lab, kind, error, trace)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NamespaceLab, "__exit__", describe_and_close)
        try:
            return (yield)
        except _FAILURES:
            for lab in getattr(item, "funcargs", {}).values():
                if isinstance(lab, NamespaceLab):
                    item.add_report_section("call", "lab", describe(lab))
            raise


def describe(lab: NamespaceLab) -> str:
    """Return the state of each host, as far as its daemon answers, and its log."""
    return "\n".join(line for host in lab.hosts for line in _lines(host))


def _lines(host: Host) -> Generator[str, None, None]:
    for question in _QUESTIONS if host.pid is not None else ():
        try:
            answer = host.ask(question)
        except (IpoibuError, OSError) as error:
            answer = str(error)
        if question == "stats" and isinstance(answer, dict):
            answer = {name: count for name, count in answer.items() if count}
        yield f"{host.name} {question}: {json.dumps(answer)}"
    try:
        yield host.run(["sh", "-c", _KERNEL]).stdout
    except (OSError, subprocess.SubprocessError) as error:
        yield str(error)
    yield f"{host.name} log:\n{host.log()}"
