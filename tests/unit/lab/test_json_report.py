# SPDX-License-Identifier: BSD-2-Clause
"""The results of a lab as JSON."""

from __future__ import annotations

import json

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.json_report import as_json
from ipoibu.lab.machines.plan import plan
from ipoibu.lab.machines.runner import Result

GOOD = Result("a", 0, "done\n", "", None, 1.25)


def test_each_machine_is_a_host_with_its_result() -> None:
    plans = plan(2, "kernel,none", "ib", "datagram")
    victim = Result("b", None, "", "", "ended because machine a failed", 2.0, culprit=GOOD)
    report = json.loads(json.dumps(as_json(plans, [GOOD, victim], 0)))
    assert report["hosts"][0] == {
        "name": "a",
        "host": "ib_ipoib on rxe0 as an InfiniBand port",
        "interface": "ib0",
        "ipv4": "10.9.0.1",
        "ipv6": "fd00:9::1",
        "ok": True,
        "status": 0,
        "failure": None,
        "ended_by": None,
        "duration_s": 1.25,
        "output": "done\n",
    }
    assert report["hosts"][1]["ipv4"] is None
    assert (report["hosts"][1]["ok"], report["hosts"][1]["ended_by"]) == (False, "a")
    assert (report["ok"], report["status"], report["failure"]) == (True, 0, None)


def test_a_machine_that_did_not_come_up_has_no_result() -> None:
    report = as_json(plan(2, "none", "ib", "datagram"), [], 1, LabError("no kernel"))
    assert [(it["ok"], it["status"], it["output"]) for it in report["hosts"]] == [
        (False, None, "")
    ] * 2
    assert (report["ok"], report["failure"]) == (False, "no kernel")
