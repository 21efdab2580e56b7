# SPDX-License-Identifier: BSD-2-Clause
"""Every key of a connection of the system role `network`: taken over, without effect, or left."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.errors import UsageError
from ipoibu.importer import draft
from ipoibu.importer.draft import Draft, Reading
from ipoibu.importer.yaml_file import read_yaml


def variables(path: Path, item: str) -> Reading:
    """Read a file of variables with one connection."""
    lines = "".join(f"  {line}\n" for line in item.rstrip("\n").split("\n"))
    path.write_text(f"---\nnetwork_connections:\n{lines}")
    return read_yaml(path)


def connection(path: Path, lines: str, ip: str = "dhcp4: no") -> Draft:
    item = f"- name: ib0\n  type: infiniband\n  ip: {{{ip}}}\n"
    (made,) = variables(path, item + "".join(f"  {line}\n" for line in lines.split("\n"))).drafts
    return made


@pytest.mark.parametrize(
    ("lines", "ip", "expected"),
    [
        ("infiniband: {transport_mode: connected}", "", ["mode connected"]),
        ("infiniband: {transport_mode: datagram, p_key: -1}", "", ["mode datagram"]),
        ("infiniband_transport_mode: connected", "", ["mode connected"]),
        ("mtu: 65520", "", ["mtu 65520"]),
        ("mtu: null", "", []),
        ("state: up", "address: 10.0.0.1/24", ["address 10.0.0.1/24"]),
        (
            "state: up",
            "address: [10.0.0.1/24, 'fd00::1/64']",
            ["address 10.0.0.1/24", "address fd00::1/64"],
        ),
        ("state: up", "address: [{address: 10.0.0.1, prefix: 25}]", ["address 10.0.0.1/25"]),
        (
            "state: up",
            "address: [10.0.0.1, 'fd00::1']",
            ["address 10.0.0.1/24", "address fd00::1/64"],
        ),
        ("state: up", "gateway4: 10.0.0.9", ["route default,via=10.0.0.9"]),
        ("state: up", "gateway6: 'fd00::9'", ["route default,via=fd00::9"]),
        (
            "state: up",
            "route: [{network: 10.9.0.0, prefix: 16, gateway: 10.0.0.9}]",
            ["route 10.9.0.0/16,via=10.0.0.9"],
        ),
        ("state: up", "route: [{network: 10.9.0.0, metric: -1}]", ["route 10.9.0.0/24"]),
    ],
)
def test_what_ipoibu_has_is_taken_over(
    tmp_path: Path, lines: str, ip: str, expected: list[str]
) -> None:
    made = connection(tmp_path / "a.yml", lines, f"dhcp4: no, {ip}")
    assert [f"{each.option} {each.text}" for each in made.settings] == expected
    assert made.notes == []


@pytest.mark.parametrize(
    ("lines", "ip", "key", "why"),
    [
        ("autoconnect: no", "", "autoconnect", draft.START),
        ("state: down", "", "state", draft.START),
        ("zone: trusted", "", "zone", draft.FIREWALL),
        ("mac: 80:00", "", "mac", draft.BY_NAME_ONLY),
        ("match: {path: [pci]}", "", "match", draft.BY_NAME_ONLY),
        ("controller: br0\nport_type: bridge", "", "controller", draft.SEVERAL_LINKS),
        ("master: br0\nslave_type: bridge", "", "master", draft.SEVERAL_LINKS),
        ("ethtool: {features: {gro: no}}", "", "ethtool", draft.UNKNOWN),
        ("mtu: 5", "", "mtu", "'5' is no MTU"),
        ("mtu: '{{ mtu }}'", "", "mtu", "a template"),
        ("infiniband: {p_key: red}", "", "infiniband_p_key", "'red' is no P_Key"),
        ("infiniband: {colour: red}", "", "infiniband_colour", draft.UNKNOWN),
        ("state: up", "dns: [10.0.0.53]", "ip.dns", draft.RESOLVER),
        ("state: up", "dns_search: [example.org]", "ip.dns_search", draft.RESOLVER),
        ("state: up", "auto6: yes", "ip.auto6", draft.ADVERTISED),
        ("state: up", "ipv6_disabled: yes", "ip.ipv6_disabled", draft.LINK_LOCAL),
        ("state: up", "route_append_only: yes", "ip.route_append_only", draft.UNKNOWN),
        ("state: up", "route_metric4: 5", "ip.route_metric4", draft.METRIC),
        ("state: up", "gateway4: '{{ gw }}'", "ip.gateway4", "a template"),
        ("state: up", "address: ['{{ address }}']", "ip.address", "is no address in CIDR form"),
        (
            "state: up",
            "route: [{network: 10.9.0.0, prefix: 16, metric: 5}]",
            "ip.route.metric",
            draft.METRIC,
        ),
        (
            "state: up",
            "route: [{network: 10.9.0.0, prefix: 16, table: 5}]",
            "ip.route.table",
            draft.ROUTE_OPTION,
        ),
        ("state: up", "routing_rule: []", "ip.routing_rule", draft.UNKNOWN),
    ],
)
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, lines: str, ip: str, key: str, why: str
) -> None:
    made = connection(tmp_path / "a.yml", lines, f"dhcp4: no, {ip}")
    (note,) = made.notes
    assert why in note.why
    assert (note.place.line, note.place.key) == (5 if key.startswith("ip.") else 6, key)


@pytest.mark.parametrize(("ip", "line"), [("dhcp4: yes", 5), ("auto6: no", 3)])
def test_dhcp_is_asked_for_or_the_default(tmp_path: Path, ip: str, line: int) -> None:
    made = connection(tmp_path / "a.yml", "state: up", ip)
    assert made.notes == []
    assert [(each.text, each.place.line) for each in made.settings] == [("dhcp", line)]


def test_the_housekeeping_of_the_role_is_no_loss(tmp_path: Path) -> None:
    made = connection(
        tmp_path / "a.yml",
        "interface_name: ib7\nautoconnect: yes\npersistent_state: present\nautoconnect_retries: 2\n"
        "force_state_change: no\nwait: 5\ncheck_iface_exists: no\nignore_errors: no",
    )
    assert (made.name, made.aliases, made.notes, made.settings) == ("ib7", {"ib0"}, [], [])


@pytest.mark.parametrize("key", ["infiniband_p_key: 0x8001", "infiniband: {p_key: 32769}"])
def test_a_child_has_its_parent_and_p_key(tmp_path: Path, key: str) -> None:
    made = connection(tmp_path / "a.yml", f"{key}\nparent: storage")
    assert (made.pkey, made.parent) == (PKey(0x8001), "storage")


def test_other_items_are_noted_or_changes_of_others(tmp_path: Path) -> None:
    reading = variables(
        tmp_path / "a.yml",
        "- {name: eth0, type: ethernet}\n- {name: ib0, state: up}\n"
        "- {name: ib0, type: infiniband, persistent_state: absent}\n",
    )
    assert reading.drafts == []
    assert [str(note) for note in reading.notes] == [
        f"{tmp_path}/a.yml:3: a connection of type ethernet, not infiniband"
    ]


def test_lists_are_found_in_plays_and_tasks_and_tags_are_not_resolved(tmp_path: Path) -> None:
    path = tmp_path / "site.yml"
    path.write_text(
        "- hosts: a\n  vars:\n    secret: !vault x\n    network_connections: &all\n"
        "      - {name: ib0, type: infiniband}\n"
        "- hosts: b\n  vars: {network_connections: *all}\n"
        "- hosts: c\n  tasks:\n    - include_role: {name: network}\n      vars:\n"
        "        network_connections: [{name: ib1, type: infiniband}]\n"
        "- hosts: d\n  vars: {network_connections: none}\n"
    )
    reading = read_yaml(path)
    assert [made.name for made in reading.drafts] == ["ib0", "ib0", "ib1"]
    assert [str(note) for note in reading.notes] == [
        f"{path}:14: network_connections: a list of connections is expected"
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("network: {}\n", "neither network_connections nor"),
        ("a: [\n", "a.yml:2: not a YAML file"),
        ("", "neither network_connections nor"),
        ("a: *b\n", "not a YAML file"),
        ("[" * 5000, "not a YAML file"),
    ],
)
def test_a_file_without_connections_is_an_error_of_one_line(
    tmp_path: Path, text: str, why: str
) -> None:
    (tmp_path / "a.yml").write_text(text)
    with pytest.raises(UsageError, match=why) as caught:
        read_yaml(tmp_path / "a.yml")
    assert "\n" not in str(caught.value)


def test_without_pyyaml_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UsageError, match="apt-get install python3-yaml, or pip install pyyaml"):
        read_yaml(tmp_path / "a.yml")
