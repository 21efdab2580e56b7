# SPDX-License-Identifier: BSD-2-Clause
"""What the tests of endpoints, which run in real time, have in common."""

from __future__ import annotations

import pytest

from ipoibu.proto.neigh import nud


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a host look for another one for half a minute: a busy machine may stop the other one's threads."""
    monkeypatch.setitem(nud.SOLICITATIONS, nud.State.INCOMPLETE, 30)
