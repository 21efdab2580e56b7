# SPDX-License-Identifier: BSD-2-Clause
"""SUSE's ifcfg files, which have the name of Red Hat's and other variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipoibu.importer import draft
from tests.unit.importer.imported import imported

HEAD = "STARTMODE='auto'\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("IPOIB_MODE='connected'\nMTU='65520'", {"mode": "connected", "mtu": 65520}),
        ("IPADDR='10.0.0.1/24'\nBOOTPROTO='static'", {"address": ["10.0.0.1/24"]}),
        ("IPADDR=10.0.0.1\nPREFIXLEN=24", {"address": ["10.0.0.1/24"]}),
        ("IPADDR=10.0.0.1\nNETMASK=255.255.255.0", {"address": ["10.0.0.1/24"]}),
        ("IPADDR_1=10.0.0.1\nPREFIXLEN_1=24", {"address": ["10.0.0.1/24"]}),
        ("IPADDR=10.0.0.1/24\nIPADDR_b=fd00::1/64", {"address": ["10.0.0.1/24", "fd00::1/64"]}),
        ("BOOTPROTO=dhcp", {"address": ["dhcp", "dhcp6"]}),
        ("BOOTPROTO=dhcp4", {"address": ["dhcp"]}),
        ("BOOTPROTO=dhcp6", {"address": ["dhcp6"]}),
        ("GATEWAY=10.0.0.9", {"route": ["default,via=10.0.0.9"]}),
        ("BOOTPROTO=dhcp4\nDHCLIENT_HOSTNAME_OPTION=n7", {"address": ["dhcp"], "dhcp-host-name": "n7"}),
        ("NAME=x\nUSERCONTROL=no\nIPOIB_UMCAST=allowed\nDHCLIENT_HOSTNAME_OPTION=AUTO\nLLADDR=", {}),
    ],
)  # fmt: skip
def test_what_ipoibu_has_is_taken_over(tmp_path: Path, text: str, expected: dict[str, Any]) -> None:
    assert imported(tmp_path, {"ifcfg-ib0": HEAD + text}) == ({"ib0": expected}, [])


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("COLOUR=red", draft.UNKNOWN),
        ("IPADDR=10.0.0.1", "no prefix length: it is /8 here"),
        ("IPADDR=10.0.0.1\nPREFIXLEN=x", "'x' is no length"),
        ("BOOTPROTO=dhcp4+autoip", "169.254.0.0/16"),
        ("BOOTPROTO=ibft", draft.UNKNOWN),
        ("ZONE=trusted", draft.FIREWALL),
        ("LLADDR=80:00", draft.BY_NAME_ONLY),
        ("ETHTOOL_OPTIONS=x", draft.BY_NAME_ONLY),
        ("POST_UP_SCRIPT=wicked:x", draft.COMMAND),
        ("DHCLIENT_SET_DEFAULT_ROUTE=no", draft.DHCP_OPTION),
    ],
)
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, line: str, why: str
) -> None:
    _, notes = imported(tmp_path, {"ifcfg-ib0": f"{HEAD}{line}\n"})
    assert len(notes) == 1
    assert notes[0].startswith(f"ifcfg-ib0:2: {line.partition('=')[0]}: ")
    assert why in notes[0]


def test_an_interface_that_does_not_start_at_boot(tmp_path: Path) -> None:
    _, notes = imported(tmp_path, {"ifcfg-ib0": "STARTMODE=manual\n"})
    assert notes == [f"ifcfg-ib0:1: STARTMODE: {draft.START}"]


def test_the_file_with_routes_beside_it(tmp_path: Path) -> None:
    routes = (
        "# none\n10.9.0.0/16 10.0.0.9 - -\n10.8.0.0 10.0.0.9 255.255.0.0 ib0\ndefault 10.0.0.9\n"
        "10.7.0.0/16 - - eth0\n10.6.0.0/16 10.0.0.9 - ib0 table 7\n"
    )
    texts = {"ifcfg-ib0": f"{HEAD}IPADDR=10.0.0.1/24\n", "ifroute-ib0": routes}
    results, notes = imported(tmp_path, texts)
    assert results["ib0"]["route"] == [
        "10.9.0.0/16,via=10.0.0.9",
        "10.8.0.0/16,via=10.0.0.9",
        "default,via=10.0.0.9",
        "10.6.0.0/16,via=10.0.0.9",
    ]
    assert notes == [f"ifroute-ib0:6: {draft.ROUTE_OPTION}"]


def test_the_file_with_the_routes_of_all_interfaces(tmp_path: Path) -> None:
    routes = (
        "default 10.0.0.9 - -\n10.9.0.0/16 10.5.0.9 - -\n10.8.0.0/16 10.5.0.9 - ib0\nx y - eth0\n"
    )
    texts = {"ifcfg-ib0": f"{HEAD}IPADDR=10.0.0.1/24\n", "routes": routes}
    results, notes = imported(tmp_path, texts)
    assert results["ib0"]["route"] == ["default,via=10.0.0.9", "10.8.0.0/16,via=10.5.0.9"]
    assert notes == []


def test_a_child_is_one_by_its_name(tmp_path: Path) -> None:
    texts = {"ifcfg-ib0": HEAD, "ifcfg-ib0.8001": f"{HEAD}ETHERDEVICE=ib0\nIPADDR=10.1.0.1/24\n"}
    results, notes = imported(tmp_path, texts)
    assert results == {"ib0": {"child": {"0x8001": {"address": ["10.1.0.1/24"]}}}}
    assert notes == []


def test_the_p_key_of_a_child_is_hexadecimal(tmp_path: Path) -> None:
    texts = {
        "ifcfg-ib0": "IPOIB=yes\nBOOTPROTO=none\n",
        "ifcfg-custom1": f"{HEAD}IPOIB=yes\nIPOIB_DEVICE=ib0\nIPOIB_PKEY=8002\n",
        "ifcfg-ib0.5": HEAD,
        "ifcfg-ib0.8003": f"{HEAD}IPOIB_PKEY=0x8004\n",
    }
    results, notes = imported(tmp_path, texts)
    assert results == {
        "ib0": {"child": {"0x8002": {"name": "custom1"}, "0x8005": {"name": "ib0.5"}, "0x8004": {}}}
    }
    assert [note.partition(": ")[2] for note in notes] == [
        "ib0.8003 says another partition than 0x8004: here ib0.8004"
    ]


def test_other_interfaces_are_noted(tmp_path: Path) -> None:
    texts = {"ifcfg-eth0": HEAD, "ifcfg-ib0": HEAD}
    assert imported(tmp_path, texts)[1] == [
        "ifcfg-eth0: an interface of type unknown, not InfiniBand"
    ]
