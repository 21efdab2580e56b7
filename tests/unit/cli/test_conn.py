# SPDX-License-Identifier: BSD-2-Clause
"""The output of `ipoibu conn`."""

from __future__ import annotations

from typing import Any, Final

from ipoibu.cli.conn import data, text

ENTRY: Final[dict[str, Any]] = {
    "role": "active",
    "state": "live",
    "peer": "00:00:00:48:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:02",
    "qpn": "0x000049",
    "remote_qpn": "0x00004a",
    "mtu": 65520,
    "path_mtu": 8928,
    "superframes": True,
    "age_s": 12.5,
    "idle_s": 0.25,
    "tx_messages": 3,
    "tx_bytes": 4000,
    "rx_messages": 0,
    "rx_bytes": 0,
    "retries": 2,
}


def test_a_connection_is_one_line() -> None:
    assert text([("ib0", [ENTRY])]) == (
        f"{ENTRY['peer']} dev ib0 active LIVE qpn 0x000049 remote 0x00004a mtu 65520"
        " path-mtu 8928 superframes retries 2 tx 3/4000 rx 0/0 age 12.5s idle 0.2s"
    )


def test_what_is_not_there_is_not_printed() -> None:
    quiet = ENTRY | {"mtu": 0, "path_mtu": 0, "superframes": False, "retries": None}
    line = text([("ib0", [quiet])])
    assert not any(word in line for word in ("mtu", "superframes", "retries"))


def test_json_names_the_interface_of_each() -> None:
    answers = [("ib0", [ENTRY]), ("ib0.8001", [])]
    assert data(answers) == [{"dev": "ib0", **ENTRY}]
