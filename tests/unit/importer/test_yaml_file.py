# SPDX-License-Identifier: BSD-2-Clause
"""YAML of nmstate, cloud-init and netplan: settings, what is left out, and where the files have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ipoibu.importer import draft
from tests.unit.importer.imported import imported

ADDRESS = {"address": ["10.0.0.1/24"]}
STATE = """\
interfaces:
- name: ib0
  type: infiniband
  state: up
  {}
"""
VERSION_1 = """\
version: 1
config:
- type: infiniband
  name: ib0
  {}
"""
NETPLAN = """\
network:
  version: 2
  ethernets:
    ib0:
      {}
"""
IPV4 = "ipv4: {{enabled: true, {}}}"


def subnet(text: str) -> str:
    return f"subnets: [{{{text}}}]"


@pytest.mark.parametrize(
    ("whole", "text", "expected"),
    [
        (STATE, "infiniband: {mode: connected}", {"mode": "connected"}),
        (STATE, "infiniband: {mode: datagram, pkey: default}", {"mode": "datagram"}),
        (STATE, "infiniband: {mode: datagram, pkey: '0x8001'}", {"mode": "datagram", "pkey": "0x8001"}),
        (STATE, "infiniband: {pkey: 5}", {"pkey": "0x8005"}),
        (STATE, "mtu: 2000", {"mtu": 2000}),
        (STATE, IPV4.format("address: [{ip: 10.0.0.1, prefix-length: 24}]"), ADDRESS),
        (STATE, IPV4.format("dhcp: true, auto-dns: true"), {"address": ["dhcp"]}),
        (STATE, "ipv4: {enabled: false, dhcp: true}", {}),
        (STATE, "ipv6: {enabled: true, dhcp: true, autoconf: false}", {"address": ["dhcp6"]}),
        (STATE, "profile-name: storage\n  accept-all-mac-addresses: false", {}),
        (VERSION_1, "mtu: 2000", {"mtu": 2000}),
        (VERSION_1, subnet("type: static, address: 10.0.0.1/24"), ADDRESS),
        (VERSION_1, subnet("type: static, address: 10.0.0.1, netmask: 255.255.255.0"), ADDRESS),
        (VERSION_1, subnet("type: dhcp, control: auto"), {"address": ["dhcp"]}),
        (VERSION_1, subnet("type: dhcp6"), {"address": ["dhcp6"]}),
        (VERSION_1, subnet("type: manual"), {}),
        (VERSION_1, subnet("type: static, gateway: 10.0.0.9"), {"route": ["default,via=10.0.0.9"]}),
        (
            VERSION_1,
            subnet("type: static, routes: [{network: 10.9.0.0, netmask: 255.255.0.0, gateway: 10.0.0.9}]"),
            {"route": ["10.9.0.0/16,via=10.0.0.9"]},
        ),
        (VERSION_1, "\n- {type: route, destination: 10.9.0.0/16}", {"route": ["10.9.0.0/16"]}),
        (NETPLAN, "addresses: [10.0.0.1/24]", ADDRESS),
        (NETPLAN, "dhcp4: true\n      dhcp6: no", {"address": ["dhcp"]}),
        (NETPLAN, "dhcp4: true\n      dhcp-identifier: mac", {"address": ["dhcp"], "dhcp-client-id": "guid"}),
        (NETPLAN, "infiniband-mode: connected\n      mtu: 65520", {"mode": "connected", "mtu": 65520}),
        (NETPLAN, "gateway4: 10.0.0.9", {"route": ["default,via=10.0.0.9"]}),
        (NETPLAN, "routes: [{to: 10.9.0.0/16, via: 10.0.0.9}]", {"route": ["10.9.0.0/16,via=10.0.0.9"]}),
        (NETPLAN, "routes: [{to: default, via: 10.0.0.9}]", {"route": ["default,via=10.0.0.9"]}),
        (NETPLAN, "optional: true\n      link-local: [ipv6]", {}),
        (NETPLAN, "<<: {mtu: 2000}", {"mtu": 2000}),
        ("version: 2\nethernets:\n  ib0: {}\n", "{mtu: 2000}", {"mtu": 2000}),
    ],
)  # fmt: skip
def test_what_ipoibu_has_is_taken_over(
    tmp_path: Path, whole: str, text: str, expected: dict[str, Any]
) -> None:
    assert imported(tmp_path, {"a.yml": whole.replace("{}", text, 1)}) == ({"ib0": expected}, [])


@pytest.mark.parametrize(
    ("whole", "text", "key", "why"),
    [
        (STATE, "colour: red", "colour", draft.UNKNOWN),
        (STATE, "mac-address: 80:00", "mac-address", draft.BY_NAME_ONLY),
        (STATE, "controller: br0", "controller", draft.SEVERAL_LINKS),
        (STATE, "ipv6: {enabled: false}", "ipv6", draft.LINK_LOCAL),
        (STATE, "ipv6: {autoconf: true}", "ipv6.autoconf", draft.ADVERTISED),
        (STATE, "ipv6: {dhcp-duid: ll}", "ipv6.dhcp-duid", draft.DHCP_OPTION),
        (STATE, IPV4.format("colour: red"), "ipv4.colour", draft.UNKNOWN),
        (STATE, IPV4.format("address: [{ip: 10.0.0.1}]"), "ipv4.address", "is no address in CIDR form"),
        (STATE, "infiniband: {mode: fast}", "infiniband.mode", "'fast' is no mode"),
        (STATE, "infiniband: {colour: red}", "infiniband.colour", draft.UNKNOWN),
        (VERSION_1, "colour: red", "colour", draft.UNKNOWN),
        (VERSION_1, "mac_address: '80:00'", "mac_address", draft.BY_NAME_ONLY),
        (VERSION_1, "accept-ra: true", "accept-ra", draft.ADVERTISED),
        (VERSION_1, subnet("type: ipv6_slaac"), "subnets.type", draft.ADVERTISED),
        (VERSION_1, subnet("type: magic"), "subnets.type", draft.UNKNOWN),
        (VERSION_1, subnet("type: static, colour: red"), "subnets.colour", draft.UNKNOWN),
        (VERSION_1, subnet("type: dhcp, control: manual"), "subnets.control", draft.START),
        (VERSION_1, subnet("type: static, address: 10.0.0.1"), "subnets.address", "it is /8 here"),
        (VERSION_1, subnet("type: static, dns_search: [a.b]"), "subnets.dns_search", "domain ib0 a.b"),
        (NETPLAN, "colour: red", "colour", draft.UNKNOWN),
        (NETPLAN, "macaddress: 80:00", "macaddress", draft.BY_NAME_ONLY),
        (NETPLAN, "match: {driver: mlx5}", "match.driver", draft.BY_NAME_ONLY),
        (NETPLAN, "nameservers: {addresses: [10.0.0.5]}", "nameservers", "dns ib0 10.0.0.5"),
        (NETPLAN, "routes: [{to: 10.9.0.0/16, metric: 5}]", "routes.metric", draft.METRIC),
        (NETPLAN, "routes: [{to: 10.9.0.0/16, table: 5}]", "routes.table", draft.ROUTE_OPTION),
        (NETPLAN, "dhcp4-overrides: {use-dns: false}", "dhcp4-overrides.use-dns", draft.DHCP_OPTION),
        (NETPLAN, "link-local: []", "link-local", draft.LINK_LOCAL),
        (NETPLAN, "addresses: [{10.0.0.1/24: {label: x}}]", "addresses.label", draft.UNKNOWN),
        (NETPLAN, "activation-mode: manual", "activation-mode", draft.START),
    ],
)  # fmt: skip
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, whole: str, text: str, key: str, why: str
) -> None:
    _, notes = imported(tmp_path, {"a.yml": whole.replace("{}", text, 1)})
    assert len(notes) == 1
    assert notes[0].startswith(f"a.yml:5: {key}: ")
    assert why in notes[0]


def test_a_state_has_routes_servers_and_children(tmp_path: Path) -> None:
    text = """\
network_state:
  interfaces:
  - {name: ib0.8013, type: infiniband, infiniband: {base-iface: ib0, mode: datagram, pkey: '0x13'}}
  - {name: ib0, type: infiniband, infiniband: {mode: datagram}}
  - {name: ib1, state: absent, type: infiniband}
  - {name: eth0, type: ethernet}
  routes:
    config:
    - {destination: 0.0.0.0/0, next-hop-address: 10.0.0.9, next-hop-interface: ib0, table-id: 254}
    - {destination: 10.9.0.0/16, next-hop-interface: eth0}
  dns-resolver: {config: {server: [10.0.0.53], search: [a.example]}}
  hostname: {config: node7}
"""
    results, notes = imported(
        tmp_path, {"a.yml": f"- hosts: all\n  vars:\n    {text.replace(chr(10), chr(10) + '    ')}"}
    )
    assert results == {
        "ib0": {"mode": "datagram", "route": ["default,via=10.0.0.9"], "child": {"0x8013": {}}}
    }
    keys = [note.split(": ")[:2] for note in notes]
    assert keys == [
        ["a.yml:8", "eth0 of type ethernet, not infiniband"],
        ["a.yml:12", "routes.config"],
        ["a.yml:14", "hostname"],
        ["a.yml:13", "dns-resolver.config.server"],
        ["a.yml:13", "dns-resolver.config.search"],
    ]


def test_the_policy_of_a_cluster_has_a_state(tmp_path: Path) -> None:
    text = (
        "kind: NodeNetworkConfigurationPolicy\nspec:\n  desiredState:\n"
        "    interfaces: [{name: ib0, type: infiniband}]\n"
    )
    assert imported(tmp_path, {"a.yaml": text}) == ({"ib0": {}}, [])


def test_version_1_has_entries_of_other_kinds(tmp_path: Path) -> None:
    text = VERSION_1.replace("{}", "mtu: 2000") + (
        "- {type: physical, name: ib1, subnets: [{type: dhcp4}]}\n"
        "- {type: physical, name: eth0}\n"
        "- {type: nameserver, address: [10.0.0.53]}\n"
        "- {type: nameserver, interface: ib1, address: 10.0.0.53, search: [a.example]}\n"
    )
    results, notes = imported(tmp_path, {"network-config": text})
    assert results == {"ib0": {"mtu": 2000}, "ib1": {"address": ["dhcp"]}}
    assert [note.partition(": ")[0] for note in notes] == [
        *("network-config:7", "network-config:8", "network-config:9", "network-config:9")
    ]


def test_netplan_has_names_by_match_and_interfaces_of_other_kinds(tmp_path: Path) -> None:
    text = (
        "network:\n  ethernets:\n    a: {match: {name: ib7}, set-name: storage, mtu: 2000}\n"
        "    b: {match: {name: 'ib*'}, mtu: 2001}\n    eth0: {dhcp4: true}\n  vlans:\n    v: {id: 5}\n"
    )
    results, notes = imported(tmp_path, {"a.yaml": text})
    assert results == {"storage": {"mtu": 2000}, "ib0": {"mtu": 2001}}
    assert [note.partition(": ")[0] for note in notes] == [
        "a.yaml:5",
        "a.yaml:7",
        "a.yaml:4",
        "a.yaml:4",
    ]


def test_a_file_of_yaml_may_have_several_descriptions(tmp_path: Path) -> None:
    text = (
        "network_connections:\n- {name: ib0, type: infiniband, ip: {dhcp4: no}}\n"
        "network_state:\n  interfaces: [{name: ib1, type: infiniband}]\n"
    )
    assert imported(tmp_path, {"a.yml": text}) == ({"ib0": {}, "ib1": {}}, [])


def test_a_merge_of_itself_ends(tmp_path: Path) -> None:
    text = NETPLAN.format("&a\n      mtu: 2000\n      <<: *a").replace("ib0:\n      &a", "ib0: &a")
    results, _ = imported(tmp_path, {"a.yml": text})
    assert results == {"ib0": {"mtu": 2000}}
