# SPDX-License-Identifier: BSD-2-Clause
"""Commands that only ask a daemon, and what answers them, run without the C core."""

from __future__ import annotations

import pytest

from tests.interpreter import run


@pytest.mark.parametrize(
    "module",
    [
        "ipoibu.cli.monitor",
        "ipoibu.cli.view",
        "ipoibu.daemon.control.client",
        "ipoibu.daemon.control.server",
        "ipoibu.daemon.metrics.metrics",
        "ipoibu.endpoint.contract",
        "ipoibu.host.group_sync",
    ],
)
def test_a_module_that_knows_an_endpoint_by_its_contract_loads_no_core(module: str) -> None:
    run(["-c", f"import sys, {module}\nassert 'ipoibu._core' not in sys.modules"])
