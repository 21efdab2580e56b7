# SPDX-License-Identifier: BSD-2-Clause
"""Every variable of ifcfg-ib0 and the forms of route-ib0: taken over, without effect, or left."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.addr import PKey
from ipoibu.importer import draft
from ipoibu.importer.draft import Draft
from ipoibu.importer.ifcfg import read_ifcfg

HEAD = "TYPE=InfiniBand\nDEVICE=ib0\n"


def ifcfg(directory: Path, text: str) -> Draft:
    path = directory / "ifcfg-ib0"
    path.write_text(HEAD + text)
    (made,) = read_ifcfg(path).drafts
    return made


def taken(made: Draft) -> list[str]:
    return [f"{each.option} {each.text}" for each in made.settings]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CONNECTED_MODE=yes", ["mode connected"]),
        ('CONNECTED_MODE="no"', ["mode datagram"]),
        ("MTU=65520", ["mtu 65520"]),
        ("MTU=", []),
        ("IPADDR=10.0.0.1\nPREFIX=24", ["address 10.0.0.1/24"]),
        ("IPADDR=10.0.0.1\nNETMASK=255.255.255.0", ["address 10.0.0.1/24"]),
        ("IPADDR=10.0.0.1", ["address 10.0.0.1/8"]),
        ("IPADDR=172.16.0.1", ["address 172.16.0.1/16"]),
        ("IPADDR='192.168.1.1'  # ours", ["address 192.168.1.1/24"]),
        (
            "IPADDR0=10.0.0.1\nPREFIX0=24\nIPADDR1=10.0.1.1\nPREFIX1=25",
            ["address 10.0.0.1/24", "address 10.0.1.1/25"],
        ),
        ("GATEWAY=10.0.0.9", ["route default,via=10.0.0.9"]),
        ("GATEWAY0=10.0.0.9\nDEFROUTE=yes", ["route default,via=10.0.0.9"]),
        ("IPV6ADDR=fd00::1/64", ["address fd00::1/64"]),
        ("IPV6ADDR=fd00::1", ["address fd00::1/64"]),
        (
            'IPV6ADDR_SECONDARIES="fd01::1/64 fd02::1/64"',
            ["address fd01::1/64", "address fd02::1/64"],
        ),
        ("IPV6_DEFAULTGW=fd00::9%ib0", ["route default,via=fd00::9"]),
        ("ARPING_WAIT=0", ["dad-ipv4 off"]),
        ("ARPING_WAIT=3", ["dad-ipv4 on"]),
        ("ACD_TIMEOUT=200", ["dad-ipv4 on"]),
        ("BOOTPROTO=none", []),
        ("BOOTPROTO=static", []),
        ("ONBOOT=yes", []),
        ("DHCPV6C=yes", ["address dhcp6"]),
        ("DHCPV6C=no", []),
        ("DHCP_CLIENT_ID=mac", ["dhcp-client-id guid"]),
        ("DHCP_HOSTNAME=node7\nDHCP_SEND_HOSTNAME=yes", ["dhcp-host-name node7"]),
    ],
)
def test_what_ipoibu_has_is_taken_over(tmp_path: Path, text: str, expected: list[str]) -> None:
    made = ifcfg(tmp_path, text)
    assert (taken(made), made.notes) == (expected, [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("BOOTPROTO=autoip", draft.UNKNOWN),
        ("ONBOOT=no", draft.START),
        ("DNS1=10.0.0.53", draft.RESOLVER),
        ("DOMAIN=example.org", draft.RESOLVER),
        ("SEARCH=example.org", draft.RESOLVER),
        ("PEERDNS=no", draft.RESOLVER),
        ("DHCPV6C_OPTIONS=-v", draft.DHCP_OPTION),
        ("DHCLIENTARGS=-v", draft.UNKNOWN),
        ("PEERROUTES=no", draft.DHCP_OPTION),
        ("ZONE=trusted", draft.FIREWALL),
        ("BRIDGE=br0", draft.SEVERAL_LINKS),
        ("TEAM_MASTER=team0", draft.SEVERAL_LINKS),
        ("HWADDR=80:00", draft.BY_NAME_ONLY),
        ("METRIC=5", draft.METRIC),
        ("IPV6_AUTOCONF=yes", draft.ADVERTISED),
        ("IPV6FORWARDING=yes", draft.UNKNOWN),
        ("ETHTOOL_OPTS=x", draft.UNKNOWN),
        ("MTU=5", "'5' is no MTU"),
        ("PKEY_ID=0x8001", "without PKEY=yes"),
        ("PHYSDEV=ib0", "without PKEY=yes"),
        ("PKEY=yes\nPKEY_ID=red", "'red' is no P_Key"),
        ("IPADDR=10.0.0.1\nPREFIX=99", "'99' is no IPv4 prefix"),
        ("IPADDR=${MINE}", "not a plain assignment"),
        ("IPADDR='10.0.0.1", "not a plain assignment"),
        ("DEFROUTE=no\nGATEWAY=10.0.0.9", "DEFROUTE=no"),
        ("IPV6_DEFROUTE=no\nIPV6_DEFAULTGW=fd00::9", "IPV6_DEFROUTE=no"),
        (". ./other", "not a plain assignment"),
    ],
)
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, text: str, why: str
) -> None:
    made = ifcfg(tmp_path, text)
    (note,) = made.notes
    assert why in note.why
    assert (HEAD + text).split("\n")[note.place.line - 1].startswith(note.place.key)


def test_the_housekeeping_of_network_scripts_is_no_loss(tmp_path: Path) -> None:
    made = ifcfg(
        tmp_path,
        "NAME=storage\nUUID=4c\nUSERCTL=no\nNM_CONTROLLED=no\nIPV6INIT=yes\nBROADCAST=10.0.0.255\n"
        "NETWORK=10.0.0.0\nIPV4_FAILURE_FATAL=no\nIPV6_FAILURE_FATAL=no\nAUTOCONNECT_PRIORITY=1\n"
        "PROXY_METHOD=none\nBROWSER_ONLY=no\nIPV6_ADDR_GEN_MODE=eui64\n# comment\nexport PREFIX=24\n",
    )
    assert (made.settings, made.notes) == ([], [])
    assert made.aliases == {"storage", "4c"}


@pytest.mark.parametrize("text", ["0x8001", "0x0001", "1", "32769"])
def test_a_child_has_its_parent_and_the_p_key_of_a_full_member(tmp_path: Path, text: str) -> None:
    made = ifcfg(tmp_path, f"PKEY=yes\nPKEY_ID={text}\nPHYSDEV=ib0\n")
    assert (made.pkey, made.parent) == (PKey(0x8001), "ib0")


@pytest.mark.parametrize(
    ("name", "text", "expected", "places"),
    [
        ("route-ib0", "10.9.0.0/16 via 10.0.0.9 dev ib0", ["10.9.0.0/16,via=10.0.0.9"], []),
        ("route-ib0", "# none\n10.9.0.0/16 dev ib0", ["10.9.0.0/16"], []),
        ("route-ib0", "to 10.9.9.9 via 10.0.0.9", ["10.9.9.9/32,via=10.0.0.9"], []),
        ("route-ib0", "default via 10.0.0.9", ["default,via=10.0.0.9"], []),
        ("route-ib0", "default dev ib0", ["0.0.0.0/0"], []),
        ("route6-ib0", "fd09::/64 via fd00::9", ["fd09::/64,via=fd00::9"], []),
        ("route6-ib0", "fd09::9 via fd00::9", ["fd09::9/128,via=fd00::9"], []),
        (
            "route-ib0",
            "10.9.0.0/16 via 10.0.0.9 metric 5 table 7",
            ["10.9.0.0/16,via=10.0.0.9"],
            [(1, "metric", draft.METRIC), (1, "table", draft.ROUTE_OPTION)],
        ),
        ("route-ib0", "10.9.0.0/16 via inet6 fd00::9", [], [(1, "", draft.ROUTE_OPTION)]),
        ("route-ib0", "blackhole 10.9.0.0/16", [], [(1, "", "'blackhole' is no network")]),
        (
            "route-ib0",
            "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nGATEWAY0=10.0.0.9\nADDRESS1=10.8.0.1",
            ["10.9.0.0/16,via=10.0.0.9", "10.8.0.1/32"],
            [],
        ),
        (
            "route-ib0",
            "ADDRESS0=10.9.0.0\nNETMASK0=255.255.0.0\nMETRIC0=5\nOPTIONS0=x\nCOLOUR=red",
            ["10.9.0.0/16"],
            [
                (3, "METRIC0", draft.METRIC),
                (4, "OPTIONS0", draft.ROUTE_OPTION),
                (5, "COLOUR", draft.UNKNOWN),
            ],
        ),
        ("rule-ib0", "from 10.0.0.1 table 7", [], [(0, "", "ipoibu makes no routing rules")]),
    ],
)
def test_the_files_beside_it(
    tmp_path: Path,
    name: str,
    text: str,
    expected: list[str],
    places: list[tuple[int, str, str]],
) -> None:
    (tmp_path / name).write_text(text)
    made = ifcfg(tmp_path, "")
    assert taken(made) == [f"route {each}" for each in expected]
    assert [(note.place.line, note.place.key) for note in made.notes] == [
        (line, key) for line, key, _ in places
    ]
    for note, (_, _, why) in zip(made.notes, places, strict=True):
        assert why in note.why


@pytest.mark.parametrize(
    ("text", "is_ours"),
    [("TYPE=Ethernet\nDEVICE=ib0\n", False), ("DEVICE=ib0\n", True), ("DEVICE=eth0\n", False)],
)
def test_other_types_are_noted(tmp_path: Path, text: str, is_ours: bool) -> None:
    (tmp_path / "ifcfg-x").write_text(text)
    reading = read_ifcfg(tmp_path / "ifcfg-x")
    assert (len(reading.drafts), len(reading.notes)) == (int(is_ours), int(not is_ours))


def test_without_device_the_files_name_counts(tmp_path: Path) -> None:
    (tmp_path / "ifcfg-ib7").write_text("TYPE=InfiniBand\n")
    (made,) = read_ifcfg(tmp_path / "ifcfg-ib7").drafts
    assert made.name == "ib7"
