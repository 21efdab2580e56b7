# SPDX-License-Identifier: BSD-2-Clause
"""Every key of a keyfile of type infiniband: taken over, without effect, or left with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.addr import PKey
from ipoibu.importer import draft
from ipoibu.importer.draft import Draft
from ipoibu.importer.keyfile import read_keyfile

HEAD = "[connection]\ntype=infiniband\ninterface-name=ib0\n"


def keyfile(path: Path, text: str) -> Draft:
    path.write_text(HEAD + text)
    (made,) = read_keyfile(path).drafts
    return made


@pytest.mark.parametrize(
    ("section", "line", "expected"),
    [
        ("infiniband", "mtu=65520", ["mtu 65520"]),
        ("infiniband", "mtu=0", []),
        ("infiniband", "transport-mode=connected", ["mode connected"]),
        ("infiniband", "transport-mode=datagram", ["mode datagram"]),
        ("ipv4", "address1=10.0.0.1/24", ["address 10.0.0.1/24"]),
        (
            "ipv4",
            "addresses1=10.0.0.1;24;10.0.0.9;",
            ["address 10.0.0.1/24", "route default,via=10.0.0.9"],
        ),
        ("ipv4", "routes1=10.9.0.0;16;10.0.0.9;0;", ["route 10.9.0.0/16,via=10.0.0.9"]),
        (
            "ipv4",
            "address1=10.0.0.1/24,10.0.0.9",
            ["address 10.0.0.1/24", "route default,via=10.0.0.9"],
        ),
        ("ipv4", "address2=10.0.0.1/24,0.0.0.0", ["address 10.0.0.1/24"]),
        ("ipv4", "gateway=10.0.0.9", ["route default,via=10.0.0.9"]),
        ("ipv6", "gateway=fd00::9", ["route default,via=fd00::9"]),
        ("ipv6", "address1=fd00::1/64", ["address fd00::1/64"]),
        ("ipv6", "method=dhcp", ["address dhcp6"]),
        ("ipv4", "route1=10.9.1.1/16", ["route 10.9.0.0/16"]),
        ("ipv4", "route1=10.9.0.0/16,10.0.0.9,0", ["route 10.9.0.0/16,via=10.0.0.9"]),
        ("ipv6", "route1=fd09::/64,fd00::9", ["route fd09::/64,via=fd00::9"]),
        ("ipv4", "route1=10.9.0.0/16,0.0.0.0", ["route 10.9.0.0/16"]),
        ("ipv4", "dad-timeout=0", ["dad-ipv4 off"]),
        ("ipv4", "dad-timeout=200", ["dad-ipv4 on"]),
        ("ipv4", "dad-timeout=-1", []),
        ("ipv4", "dhcp-client-id=mac", ["dhcp-client-id guid"]),
        ("ipv4", "dhcp-client-id=ff:1:02", ["dhcp-client-id ff:01:02"]),
        ("ipv4", "dhcp-client-id=n7", ["dhcp-client-id 00:6e:37"]),
        ("ipv4", "dhcp-hostname=node7", ["dhcp-host-name node7"]),
        ("ipv4", "dhcp-send-hostname=true", []),
    ],
)
def test_what_ipoibu_has_is_taken_over(
    tmp_path: Path, section: str, line: str, expected: list[str]
) -> None:
    made = keyfile(tmp_path / "ib0", f"[{section}]\n{line}\n")
    assert [f"{each.option} {each.text}" for each in made.settings] == expected
    assert {each.place.line for each in made.settings} <= {5}
    assert made.notes == []


@pytest.mark.parametrize(
    ("section", "line", "why"),
    [
        ("connection", "autoconnect=false", draft.START),
        ("connection", "zone=trusted", draft.FIREWALL),
        ("connection", "master=bond0", draft.SEVERAL_LINKS),
        ("connection", "controller=bond0", draft.SEVERAL_LINKS),
        ("connection", "mdns=1", draft.RESOLVER),
        ("connection", "llmnr=1", draft.RESOLVER),
        ("connection", "dns-over-tls=1", draft.RESOLVER),
        ("connection", "secondaries=vpn", draft.UNKNOWN),
        ("infiniband", "mac-address=80:00", draft.BY_NAME_ONLY),
        ("infiniband", "p-key=red", "'red' is no P_Key"),
        ("infiniband", "p-key=0x8000", "'0x8000' is no P_Key"),
        ("infiniband", "mtu=5", "'5' is no MTU"),
        ("infiniband", "transport-mode=fast", "'fast' is no mode"),
        ("infiniband", "colour=red", draft.UNKNOWN),
        ("match", "path=pci-0000:00:1f.0;", draft.BY_NAME_ONLY),
        ("ethtool", "feature-tso=true", draft.UNKNOWN),
        ("tc", "qdisc.root=fq", draft.UNKNOWN),
        ("ipv4", "method=dhcp", draft.UNKNOWN),
        ("ipv6", "method=auto", draft.ADVERTISED),
        ("ipv6", "method=disabled", draft.LINK_LOCAL),
        ("ipv4", "method=shared", draft.UNKNOWN),
        ("ipv4", "method=link-local", draft.UNKNOWN),
        ("ipv4", "dns=10.0.0.53;", draft.RESOLVER),
        ("ipv4", "dns-search=example.org;", draft.RESOLVER),
        ("ipv4", "dns-options=edns0;", draft.RESOLVER),
        ("ipv4", "dns-priority=5", draft.RESOLVER),
        ("ipv4", "ignore-auto-dns=true", draft.RESOLVER),
        ("ipv4", "ignore-auto-routes=true", draft.DHCP_OPTION),
        ("ipv4", "dhcp-client-id=stable", "'stable' is no client identifier here"),
        ("ipv4", "dhcp-send-hostname=false", draft.DHCP_OPTION),
        ("ipv4", "dhcp-timeout=5", draft.DHCP_OPTION),
        ("ipv6", "dhcp-duid=ll", draft.DHCP_OPTION),
        ("ipv4", "route-metric=100", draft.METRIC),
        ("ipv4", "route-table=7", draft.UNKNOWN),
        ("ipv4", "routing-rule1=priority 5 from 0.0.0.0/0 table 5", draft.UNKNOWN),
        ("ipv4", "route1=10.9.0.0/16,10.0.0.9,100", draft.METRIC),
        ("ipv4", "route1_options=onlink=true", draft.ROUTE_OPTION),
        ("ipv4", "route1=nowhere", "'nowhere' is no network"),
        ("ipv4", "address1=10.0.0.0/24", "is the address of the network"),
        ("ipv4", "never-default=true\ngateway=10.0.0.9", "never-default"),
        ("ipv6", "ip6-privacy=2", draft.UNKNOWN),
        ("ipv6", "token=::1", draft.UNKNOWN),
    ],
)
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, section: str, line: str, why: str
) -> None:
    made = keyfile(tmp_path / "ib0", f"[{section}]\n{line}\n")
    (note,) = made.notes
    assert note.why.startswith(why) or why in note.why
    lines = line.split("\n")
    key = lines[-1].partition("=")[0]
    assert (note.place.line, note.place.key) == (4 + len(lines), f"{section}.{key}")


def test_the_housekeeping_of_networkmanager_is_no_loss(tmp_path: Path) -> None:
    made = keyfile(
        tmp_path / "ib0",
        "id=storage\nuuid=4c\ntimestamp=1\npermissions=\nautoconnect=true\nautoconnect-priority=1\n"
        "autoconnect-retries=1\nread-only=false\n[infiniband]\np-key=-1\n[ipv4]\nmethod=manual\n"
        "may-fail=false\n[ipv6]\naddr-gen-mode=default\nmethod=link-local\n[proxy]\nmethod=1\n"
        "[user]\nnote=text\n# a comment\n",
    )
    assert (made.name, made.pkey, made.settings, made.notes) == ("ib0", None, [], [])
    assert made.aliases == {"storage", "4c"}


@pytest.mark.parametrize("text", ["0x0001", "0x8001", "32769", "1", "0100001"])
def test_a_p_key_becomes_that_of_a_full_member(tmp_path: Path, text: str) -> None:
    made = keyfile(tmp_path / "ib0", f"[infiniband]\np-key={text}\nparent=ib0\n")
    assert (made.pkey, made.parent) == (PKey(0x8001), "ib0")


def test_a_line_that_is_no_setting_is_noted(tmp_path: Path) -> None:
    made = keyfile(tmp_path / "ib0", "[ipv4]\nnonsense\n")
    assert [str(note) for note in made.notes] == [
        f"{tmp_path}/ib0:5: 'nonsense' is no setting of a section"
    ]


def test_another_type_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "eth0.nmconnection"
    path.write_text("[connection]\ntype=ethernet\n")
    reading = read_keyfile(path)
    assert reading.drafts == []
    assert str(reading.notes[0]) == f"{path}: a connection of type ethernet, not infiniband"
