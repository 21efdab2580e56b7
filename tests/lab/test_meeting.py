# SPDX-License-Identifier: BSD-2-Clause
"""Several machines: they reach each other, wait for each other, and fail together."""

import json
import re
from pathlib import Path

import pytest

from ipoibu.lab.machines.inside.meeting import Missed, get
from ipoibu.lab.machines.runner import MachineFailed, python, shell
from tests.lab.bare import run

from .scenarios import exchange

pytestmark = pytest.mark.lab


def test_two_machines_ping_each_other(lab_kernel: Path, tmp_path: Path) -> None:
    script = """
        link_up vec0 9000 10.0.0.$LAB_INDEX/24
        meet up
        other=$((3 - LAB_INDEX))
        reach 10.0.0.$other -s 8972 -M do
        reach "$(link_local $other)%vec0"
        ! reach 10.0.0.99 -W 1
        meet done
    """
    for result in run(lab_kernel, [shell(script)] * 2, directory=tmp_path):
        assert result.check().output == "lab: 10.0.0.99 did not answer\n"


def test_three_machines_ping_each_other_through_the_switch(
    lab_kernel: Path, tmp_path: Path
) -> None:
    script = """
        link_up vec0
        meet up
        for other in 1 2 3; do
            reach "$(link_local $other)%vec0"
        done
        cat /sys/class/net/vec0/address
        meet done
    """
    results = run(lab_kernel, [shell(script)] * 3, directory=tmp_path)
    assert [result.check().output for result in results] == [
        f"02:00:00:00:00:0{index}\n" for index in (1, 2, 3)
    ]


def test_bash_and_python_exchange_values(lab_kernel: Path, tmp_path: Path) -> None:
    script = """
        meet start
        put question "six by nine, in base 13"
        get answer
    """
    asker, answerer = run(
        lab_kernel, [shell(script), python(exchange.answer, "42")], directory=tmp_path
    )
    assert asker.check().output == "42\n"
    assert json.loads(answerer.check().output) == {"question": "six by nine, in base 13"}


def test_waiting_for_somebody_is_bounded(lab_kernel: Path, tmp_path: Path) -> None:
    bash, sleeper = run(
        lab_kernel,
        [shell("meet nobody 1"), shell("sleep 1000")],
        directory=tmp_path,
        timeout_s=30,
    )
    assert bash.status == 1
    assert bash.output == "lab: gave up waiting for the others at 'nobody'\n"
    assert sleeper.failure == "ended because machine a failed"
    with pytest.raises(MachineFailed, match="machine a: exit status 1") as caught:
        sleeper.check()
    words = r"^--- end of the output of machine b\n(?:.*\n)*lab: \d+ in \w+: sleep 1000$"
    assert re.search(words, str(caught.value), re.MULTILINE)
    with pytest.raises(Missed, match="the value 'nothing'"):
        get("nothing", timeout_s=0.05)
