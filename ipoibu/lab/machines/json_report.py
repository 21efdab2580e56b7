# SPDX-License-Identifier: BSD-2-Clause
"""The results of a lab as values for JSON, with the keys of `ipoibu lab --json`: each machine is a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ipoibu.lab.machines.plan import Plan
from ipoibu.lab.machines.runner import Result


def as_json(
    plans: Sequence[Plan], results: Sequence[Result], status: int, failure: Exception | None = None
) -> dict[str, Any]:
    """Return the report of a lab that ends with the exit status `status`.

    A machine without a result has not come up. `failure` is an error of the lab itself.
    """
    found = {it.name: it for it in results}
    return {
        "hosts": [{**_plan(it), **_result(found.get(it.name))} for it in plans],
        "ok": status == 0,
        "status": status,
        "failure": None if failure is None else str(failure),
    }


def _plan(plan: Plan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "host": plan.description,
        "interface": plan.interface,
        "ipv4": plan.ipv4 or None,
        "ipv6": plan.ipv6,
    }


def _result(result: Result | None) -> dict[str, Any]:
    """Return what its scripts did: `ended_by` is the machine whose failure has ended this one."""
    return {
        "ok": result is not None and result.succeeded,
        "status": None if result is None else result.status,
        "failure": None if result is None else result.failure,
        "ended_by": None if result is None or result.culprit is None else result.culprit.name,
        "duration_s": None if result is None else round(result.duration_s, 3),
        "output": "" if result is None else result.output,
    }
