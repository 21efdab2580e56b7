# SPDX-License-Identifier: BSD-2-Clause
"""Stanzas of interfaces(5): options, commands, and the files that a file includes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipoibu.importer import draft
from tests.unit.importer.imported import imported

HEAD = "auto ib0\niface ib0 inet static\n  address 10.0.0.1/24\n"
ADDRESS = {"address": ["10.0.0.1/24"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD, ADDRESS),
        ("allow-hotplug ib0\niface ib0 inet dhcp\n", {"address": ["dhcp"]}),
        ("auto ib0\niface ib0\n address 10.0.0.1\n netmask 255.255.255.0", ADDRESS),
        ("auto ib0\niface ib0 inet static\n address 10.0.0.1\n netmask 24", ADDRESS),
        ("auto ib0\niface ib0 inet manual\n", {}),
        ("auto /ib*\nno-auto-down ib0\niface ib0 inet manual\n", {}),
        ("auto lo ib0\niface lo inet loopback\niface ib0 inet manual\n", {}),
        (
            f"{HEAD}iface ib0 inet6 static\n address fd00::1\n netmask 64\n",
            {"address": ["10.0.0.1/24", "fd00::1/64"]},
        ),
        (f"{HEAD}iface ib0 inet6 dhcp\n", {"address": ["10.0.0.1/24", "dhcp6"]}),
        (
            f"{HEAD}iface ib0:1 inet static\n address 10.0.1.1/24\n",
            {"address": ["10.0.0.1/24", "10.0.1.1/24"]},
        ),
        (f"{HEAD} gateway 10.0.0.9", {**ADDRESS, "route": ["default,via=10.0.0.9"]}),
        (f"{HEAD} mtu 2000\n # none\n broadcast +\n", {**ADDRESS, "mtu": 2000}),
        (f"{HEAD} mtu \\\n  2000\n", {**ADDRESS, "mtu": 2000}),
        ("auto ib0\niface a inet static\n mtu 2000\niface ib0 inet manual inherits a\n", {"mtu": 2000}),
        (
            "auto ib0\niface ib0 inet dhcp\n hostname n7\n client 01:02",
            {"address": ["dhcp"], "dhcp-client-id": "01:02", "dhcp-host-name": "n7"},
        ),
    ],
)  # fmt: skip
def test_what_ipoibu_has_is_taken_over(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    results, notes = imported(tmp_path, {"interfaces": text})
    assert results == {"ib0": expected}
    assert [note for note in notes if "iface a" in note or "a: no InfiniBand" not in note] == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo connected > /sys/class/net/ib0/mode", {"mode": "connected"}),
        ("echo connected >/sys/class/net/$IFACE/mode || true", {"mode": "connected"}),
        ("/bin/sh -c 'echo datagram > /sys/class/net/${IFACE}/mode'", {"mode": "datagram"}),
        ("echo connected | tee /sys/class/net/ib0/mode > /dev/null", {"mode": "connected"}),
        ("echo 1 > /sys/class/net/ib0/umcast", {}),
        ("[ -e /sys/class/net/ib0 ] && echo connected > /sys/class/net/ib0/mode", {"mode": "connected"}),
        ("test -e /x || modprobe ib_ipoib", {}),
        ("modprobe ib_ipoib", {}),
        ("/sbin/ip link set ib0 up", {}),
        ("ip link set dev ib0 mtu 2000", {"mtu": 2000}),
        ("ifconfig ib0 mtu 2000", {"mtu": 2000}),
        ("ip link set ib0 mtu 2000 up", {"mtu": 2000}),
        ("ip link set $IFACE type ipoib mode connected umcast 1", {"mode": "connected"}),
        ("modprobe ib_ipoib && echo connected > /sys/class/net/ib0/mode", {"mode": "connected"}),
        ("sh -c 'modprobe ib_ipoib; ip link set ib0 mtu 2000;'", {"mtu": 2000}),
        ("ip route add 10.9.0.0/16 via 10.0.0.9", {"route": ["10.9.0.0/16,via=10.0.0.9"]}),
        ("ip r replace 10.9.0.0/16 via 10.0.0.9 dev $IFACE", {"route": ["10.9.0.0/16,via=10.0.0.9"]}),
        ("ip -6 route add fd09::/64 via fd00::9", {"route": ["fd09::/64,via=fd00::9"]}),
        ("route add -net 10.9.0.0 netmask 255.255.0.0 gw 10.0.0.9", {"route": ["10.9.0.0/16,via=10.0.0.9"]}),
        ("route add default gw 10.0.0.9", {"route": ["default,via=10.0.0.9"]}),
        ("ip addr add 10.0.1.1/24 dev ib0", {"address": ["10.0.0.1/24", "10.0.1.1/24"]}),
        ("echo 0x8001 > /sys/class/net/ib0/create_child", {"child": {"0x8001": {}}}),
        ("echo 0001 > /sys/class/net/ib0/create_child", {"child": {"0x8001": {}}}),
        (
            "ip link add link ib0 name storage type ipoib pkey 0x8001 mode connected",
            {"child": {"0x8001": {"name": "storage", "mode": "connected"}}},
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("key", ["pre-up", "up", "post-up"])
def test_commands_that_make_the_interface_are_settings(
    tmp_path: Path, key: str, command: str, expected: dict[str, Any]
) -> None:
    results, notes = imported(tmp_path, {"interfaces": f"{HEAD}  {key} {command}\n"})
    assert results == {"ib0": {**ADDRESS, **expected}}
    assert notes == []


@pytest.mark.parametrize(
    ("line", "key", "why"),
    [
        ("colour red", "colour", draft.UNKNOWN),
        ("metric 5", "metric", draft.METRIC),
        ("hwaddress ether 00:00", "hwaddress", draft.BY_NAME_ONLY),
        ("dns-nameservers 10.0.0.53 10.0.0.54", "dns-nameservers", "dns ib0 10.0.0.53 10.0.0.54`"),
        ("dns-search a.example", "dns-search", "`resolvectl domain ib0 a.example`"),
        ("leasetime 5", "leasetime", draft.DHCP_OPTION),
        ("mtu 5", "mtu", "'5' is no MTU"),
        ("up ip rule add from 10.0.0.1 table 7", "up", draft.COMMAND),
        ("up ip route add 10.9.0.0/16 via 10.0.0.9 metric 5", "metric", draft.METRIC),
        ("up /etc/storage.sh && true", "up", draft.COMMAND),
        ("up echo connected > /sys/class/net/ib1/mode", "up", draft.COMMAND),
        ("post-down /etc/storage.sh", "post-down", draft.COMMAND),
        ("pre-up echo fast > /sys/class/net/ib0/mode", "pre-up", "'fast' is no mode"),
        ("pre-up echo 0x8000 > /sys/class/net/ib0/create_child", "pre-up", "is no P_Key"),
        ("bridge_ports ib0", "bridge_ports", draft.SEVERAL_LINKS),
    ],
)  # fmt: skip
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, line: str, key: str, why: str
) -> None:
    _, notes = imported(tmp_path, {"interfaces": f"{HEAD}  {line}\n"})
    assert len(notes) == 1
    assert notes[0].startswith(f"interfaces:4: {key}: ")
    assert why in notes[0]


def test_a_line_of_no_stanza_is_noted(tmp_path: Path) -> None:
    text = f"colour red\n{HEAD}mapping eth0\n  script x\n  map y\n"
    _, notes = imported(tmp_path, {"interfaces": text})
    assert [note.split(": ")[:2] for note in notes] == [
        ["interfaces:1", "colour"],
        ["interfaces:5", "mapping"],
    ]


def test_what_undoes_the_start_is_no_loss(tmp_path: Path) -> None:
    lines = [
        "down ip route del 10.9.0.0/16",
        "post-down echo 0x8001 > /sys/class/net/ib0/delete_child",
        "pre-down ip link set ib0 down",
        "post-down echo datagram > /sys/class/net/ib0/mode",
    ]
    _, notes = imported(tmp_path, {"interfaces": HEAD + "".join(f"  {line}\n" for line in lines)})
    assert notes == []


def test_methods_and_interfaces_that_ipoibu_lacks(tmp_path: Path) -> None:
    text = (
        "auto ib0\nmapping eth0\niface ib0 inet6 auto\niface ib0 inet ppp\n"
        "iface ib1 inet manual\niface eth0 inet dhcp\niface eth0 inet6 auto\n"
    )
    results, notes = imported(tmp_path, {"interfaces": text})
    assert results == {"ib0": {}, "ib1": {}}
    assert [note.partition(": ")[0] for note in notes] == [
        *("interfaces:2", "interfaces:6", "interfaces:3", "interfaces:4", "interfaces:5")
    ]
    assert draft.START in notes[-1]


@pytest.mark.parametrize(
    "line",
    [
        "source /etc/network/interfaces.d/*",
        "source interfaces.d/ib*",
        "source-directory /etc/network/interfaces.d",
    ],
)
def test_the_files_that_a_file_includes(tmp_path: Path, line: str) -> None:
    (tmp_path / "interfaces.d").mkdir()
    (tmp_path / "interfaces.d/ib1").write_text(
        f"{line}\nauto ib1\niface ib1 inet dhcp\n colour red\n"
    )
    results, notes = imported(tmp_path, {"interfaces": f"{HEAD}{line}\n"})
    assert results == {"ib0": ADDRESS, "ib1": {"address": ["dhcp"]}}
    assert notes == [f"interfaces.d/ib1:4: colour: {draft.UNKNOWN}"]


def test_a_child_has_a_stanza_of_its_own(tmp_path: Path) -> None:
    text = (
        f"{HEAD}auto ib0.8001\niface ib0.8001 inet static\n  address 10.1.0.1/24\n"
        "  pre-up echo 0x8001 > /sys/class/net/ib0/create_child\n"
    )
    results, notes = imported(tmp_path, {"interfaces": text})
    assert results == {"ib0": {**ADDRESS, "child": {"0x8001": {"address": ["10.1.0.1/24"]}}}}
    assert notes == []
