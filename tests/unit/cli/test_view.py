# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import json
from typing import Any

import pytest

from ipoibu.base.errors import NoSuchDevice
from ipoibu.cli import guests, mcast, neigh, path, peers, show, stats, view
from ipoibu.cli.main import main
from tests.doubles.recording_client import record_requests

HWADDR = "00:00:04:4b:fe:80:00:00:00:00:00:00:00:15:5d:ff:fd:33:ff:0b"
SHOW = {
    "name": "ib0",
    "device": "soft:eth0",
    "port": 1,
    "link_layer": "Ethernet",
    "state": "up",
    "mode": "datagram",
    "mtu": 2044,
    "link_mtu": 2044,
    "pkey": "0xffff",
    "membership": "full",
    "qkey": "0x00000b1b",
    "hwaddr": HWADDR,
    "broadcast": "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff",
    "qpn": "0x00044b",
    "gid": "fe80::15:5dff:fd33:ff0b",
    "guid": "00155dfffd33ff0b",
    "addresses": [
        {"address": "10.0.0.1", "state": "preferred"},
        {"address": "fd00::1", "state": "tentative"},
    ],
}
NEIGH: list[dict[str, Any]] = [
    {
        "ip": "10.0.0.2",
        "hwaddr": HWADDR,
        "underlay": "192.0.2.7",
        "state": "reachable",
        "age_s": 3.25,
        "pending": 0,
        "router": False,
    },
    {
        "ip": "fd00::9",
        "hwaddr": None,
        "underlay": None,
        "state": "incomplete",
        "age_s": 0.0,
        "pending": 2,
        "router": False,
    },
    {
        "ip": "fe80::1",
        "hwaddr": HWADDR,
        "underlay": None,
        "state": "stale",
        "age_s": 1.0,
        "pending": 0,
        "router": True,
    },
]
MCAST = [
    {
        "mgid": "ff12:401b:ffff::f01:203",
        "groups": ["239.1.2.3"],
        "state": "member",
        "kind": "full",
        "users": 1,
        "idle_s": None,
    }
]


PATH: dict[str, Any] = {
    "gid": "fe80::10:5",
    "state": "known",
    "lid": 7,
    "sl": 3,
    "rate": 2,
    "hop_limit": 0,
    "traffic_class": 0,
    "flow_label": 0,
    "mtu": 2044,
    "link_mtu": 2044,
    "next_hops": ["10.0.0.2", "fd00::2"],
    "waiting": 0,
}


def test_a_path_is_one_line_without_what_is_unknown() -> None:
    asked = dict.fromkeys(PATH) | {
        "gid": "fe80::1",
        "state": "asked",
        "next_hops": [],
        "waiting": 2,
    }
    assert path.text([("ib0", [PATH, asked])]) == (
        "fe80::10:5 dev ib0 KNOWN lid 7 sl 3 rate 2 mtu 2044 for 10.0.0.2,fd00::2\n"
        "fe80::1 dev ib0 ASKED waiting 2"
    )
    assert path.data([("ib0", [PATH])]) == [{"dev": "ib0", **PATH}]


def test_an_interface_is_shown_with_its_20_byte_address() -> None:
    assert show.text([("ib0", SHOW)]) == (
        "ib0: device soft:eth0 port 1 Ethernet state up mode datagram mtu 2044\n"
        f"    link/infiniband {HWADDR} brd {SHOW['broadcast']}\n"
        "    pkey 0xffff qkey 0x00000b1b qpn 0x00044b gid fe80::15:5dff:fd33:ff0b"
        " guid 00155dfffd33ff0b\n"
        "    inet 10.0.0.1 preferred\n"
        "    inet6 fd00::1 tentative"
    )


def test_a_limited_member_is_shown_as_one() -> None:
    text = show.text([("ib0", {**SHOW, "membership": "limited"})])
    assert "    pkey 0xffff membership limited qkey 0x00000b1b " in text


def test_interfaces_are_shown_briefly_and_on_one_line_as_ip_does() -> None:
    down = {**SHOW, "name": "ib1", "state": "down", "addresses": []}
    assert show.brief([("ib0", SHOW), ("ib1", down)]).splitlines() == [
        "ib0              UP             10.0.0.1 fd00::1",
        "ib1              DOWN           ",
    ]
    one, other = show.oneline([("ib0", SHOW), ("ib1", down)]).splitlines()
    assert one.split("\\") == show.text([("ib0", SHOW)]).splitlines()
    assert other.startswith("ib1: device ")


@pytest.mark.parametrize(
    ("words", "begin"),
    [
        (["-br"], "ib0              UP "),
        (["--brief"], "ib0              UP "),
        (["-o"], "ib0: device soft:eth0 port 1 Ethernet state up mode datagram mtu 2044\\    link"),
        (["-br", "-j"], '[\n  {\n    "name"'),
    ],
)
def test_show_takes_the_options_of_ip(
    words: list[str],
    begin: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    record_requests(monkeypatch, lambda name, command: SHOW)
    assert main(["show", "ib0", *words]) == 0
    assert capsys.readouterr().out.startswith(begin)


def test_neighbours_read_as_ip_neigh_prints_them() -> None:
    assert neigh.text([("ib0", NEIGH)]) == (
        f"10.0.0.2 dev ib0 lladdr {HWADDR} underlay 192.0.2.7 REACHABLE age 3.2s\n"
        "fd00::9 dev ib0 INCOMPLETE age 0.0s pending 2\n"
        f"fe80::1 dev ib0 lladdr {HWADDR} router STALE age 1.0s"
    )


def test_guests_and_hosts_are_one_line_each() -> None:
    guest = {
        "kind": "guest",
        "ip": "10.0.0.7",
        "mac": "52:54:00:12:34:56",
        "hwaddr": None,
        "state": "claimed",
        "age_s": 3.21,
        "count": None,
        "holder": None,
    }
    host = guest | {"kind": "host", "ip": None, "hwaddr": HWADDR, "state": "used"}
    refused = guest | {
        "kind": "refused",
        "state": "held",
        "count": 2,
        "holder": "52:54:00:00:00:01",
    }
    lines = guests.text([("tap0", [guest, host, refused])]).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "guest 10.0.0.7 dev tap0 lladdr 52:54:00:12:34:56 CLAIMED age 3.2s",
        f"host {HWADDR} dev tap0 lladdr 52:54:00:12:34:56 USED age 3.2s",
        "refused 10.0.0.7 dev tap0 lladdr 52:54:00:12:34:56 HELD age 3.2s count 2"
        " holder 52:54:00:00:00:01",
    ]
    assert guests.data([("tap0", [guest])]) == [{"dev": "tap0", **guest}]
    ethernet = {"mac": "02:00:00:00:00:01", "guests": 2, "vlan": None}
    shown = SHOW | {"addresses": [], "ethernet": ethernet}
    assert show.text([("tap0", shown)]).endswith("\n    link/ether 02:00:00:00:00:01 guests 2")
    shown["ethernet"] = ethernet | {"vlan": 10}
    assert show.text([("tap0", shown)]).endswith(" guests 2 vlan 10")


def test_peers_show_where_they_listen_and_what_they_told() -> None:
    entry = {
        "peer": HWADDR,
        "locator": "192.0.2.7:4792",
        "underlay": "192.0.2.7",
        "state": "live",
        "role": "active",
        "mtu": 2044,
        "addresses": ["10.0.0.2", "fd00::2"],
        "groups": ["ff12:401b:ffff::1"],
    }
    dialing = entry | {"peer": None, "state": "dialing", "mtu": 0, "addresses": [], "groups": []}
    lines = peers.text([("ib0", [entry | {"retries": None}, dialing])]).splitlines()
    assert [line.split() for line in lines] == [
        f"{HWADDR} dev ib0 at 192.0.2.7:4792 LIVE mtu 2044 groups 1 10.0.0.2,fd00::2".split(),
        ["-", "dev", "ib0", "at", "192.0.2.7:4792", "DIALING", "-", "groups", "0", "-"],
    ]
    assert peers.data([("ib0", [entry | {"retries": None}])]) == [{"dev": "ib0", **entry}]


def test_groups_have_their_mgid_and_ip_groups() -> None:
    assert mcast.text([("ib0", MCAST)]) == (
        "ib0  ff12:401b:ffff::f01:203  239.1.2.3  full  users 1 member"
    )
    assert mcast.text([("ib0", [])]) == ""


def test_counters_that_never_counted_are_left_to_the_json() -> None:
    answers = [("ib0", {"tx_packets": 12, "rx_short": 0, "rx_packets": 3})]
    assert stats.text(answers) == "ib0  rx_packets  3\nib0  tx_packets  12"
    assert stats.data(answers) == [{"name": "ib0", "stats": answers[0][1]}]


def _answering(monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]) -> None:
    class Client:
        def __init__(self, name: str) -> None:
            if name not in answers:
                raise NoSuchDevice(name)
            self.name = name

        def __enter__(self) -> Client:
            return self

        def __exit__(self, *exit: object) -> None:
            pass

        def request(self, command: str) -> Any:
            return answers[self.name]

        def begin(self, command: str) -> None:
            pass

        def answer(self) -> Any:
            return answers[self.name]

    monkeypatch.setattr("ipoibu.daemon.control.client.Client", Client)
    monkeypatch.setattr("ipoibu.daemon.control.socket_paths.names", lambda: ["dead", *answers])


def test_json_is_a_list_with_each_interfaces_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answering(monkeypatch, {"ib0": NEIGH, "ib1": NEIGH[:1]})
    assert main(["neigh", "-j"]) == 0
    entries = json.loads(capsys.readouterr().out)
    assert [entry["dev"] for entry in entries] == ["ib0", "ib0", "ib0", "ib1"]
    keys = {"dev", "ip", "hwaddr", "underlay", "state", "age_s", "pending", "router"}
    assert set(entries[0]) == keys
    assert main(["neigh", "ib1", "-j"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_a_watch_with_json_prints_one_line_each_time_until_interrupted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _answering(monkeypatch, {"ib0": {"tx_packets": 1}})
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    assert main(["stats", "-j", "--watch", "0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)[0]["stats"] for line in lines] == [{"tx_packets": 1}] * 3
    assert slept == [0.5] * 3


def test_columns_are_aligned() -> None:
    assert view.columns([["a", "bb", "c"], ["aaa", "b", "cc"]]) == "a    bb  c\naaa  b   cc"
    assert view.columns([]) == ""
