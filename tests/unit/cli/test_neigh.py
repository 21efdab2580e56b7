# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

from typing import Any

import pytest

from ipoibu.cli.main import main
from tests.doubles.recording_client import Requests, record_requests

HWADDR = "80:00:00:48:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:77:77"


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> Requests:
    """Records every request; a fake daemon answers each."""
    return record_requests(monkeypatch, lambda name, command: [])


@pytest.mark.parametrize(
    ("words", "command", "arguments"),
    [
        (
            f"add 10.0.0.2 lladdr {HWADDR} dev ib0",
            "neigh-set",
            {"ip": "10.0.0.2", "lladdr": HWADDR, "replaces": False},
        ),
        (
            f"replace fe80::2 dev ib0 nud permanent lladdr {HWADDR}",
            "neigh-set",
            {"ip": "fe80::2", "lladdr": HWADDR, "replaces": True},
        ),
        ("del 10.0.0.2 dev ib0", "neigh-del", {"ip": "10.0.0.2"}),
        ("flush dev ib0", "neigh-flush", {"permanent": False}),
        ("flush dev ib0 nud permanent", "neigh-flush", {"permanent": True}),
        ("ib0", "neigh", {}),
        ("show dev ib0", "neigh", {}),
        ("show ib0", "neigh", {}),
        ("show proxy ib0", "proxies", {}),
        ("show proxy dev ib0", "proxies", {}),
        ("add proxy 10.1.0.0/16 dev ib0", "proxy-add", {"proxy": "10.1.0.0/16"}),
        ("del proxy fd00::1 dev ib0", "proxy-del", {"proxy": "fd00::1"}),
        ("add proxy routes dev ib0", "proxy-add", {"proxy": "routes"}),
    ],
)
def test_the_words_of_ip_neigh_make_requests(
    asked: list[Any], words: str, command: str, arguments: dict[str, Any]
) -> None:
    assert main(["neigh", *words.split()]) == 0
    assert asked == [("ib0", command, arguments)]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("add", "is not an IP address"),
        ("add 10.0.0.2 dev ib0", "'lladdr' is missing"),
        (f"add 10.0.0.2 lladdr {HWADDR}", "'dev' is missing"),
        ("add 10.0.0.2 lladdr 00:11:22:33:44:55 dev ib0", "not a 20-byte hardware address"),
        (f"add 10.0.0.2 lladdr {HWADDR} dev ib0 nud stale", "only permanent entries"),
        (f"add 10.0.0.2 lladdr {HWADDR} dev ib0 dev ib1", "'dev' needs one value"),
        (f"add 10.0.0.2 lladdr {HWADDR} dev", "'dev' needs one value"),
        ("del 10.0.0.2 lladdr x dev ib0", "'lladdr' is none of dev"),
        ("flush", "'dev' is missing"),
        ("add proxy 10.1.0.0/16", "'dev' is missing"),
        ("add proxy", "neither an address nor a network"),
        ("add proxy 10.1.0.1/16 dev ib0", "without host bits"),
        ("del proxy 10.1.0.1 lladdr x dev ib0", "'lladdr' is none of dev"),
        ("show ib0 ib1", "'ib0' is none of dev"),
        ("show dev", "'dev' needs one value"),
        ("ib0 10.0.0.2", "unexpected '10.0.0.2'; changes are add, replace, del, flush"),
    ],
)
def test_what_is_no_change_is_refused_in_words(
    asked: list[Any], capsys: pytest.CaptureFixture[str], words: str, reason: str
) -> None:
    assert main(["neigh", *words.split()]) == 2
    assert reason in capsys.readouterr().err
    assert asked == []
