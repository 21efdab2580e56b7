# SPDX-License-Identifier: BSD-2-Clause
"""A bond of two ports in each program is one interface with two devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.importer.assembly import assemble
from ipoibu.importer.bonds import take_bond_option
from ipoibu.importer.draft import Draft, Place
from ipoibu.importer.sources import read_files
from tests.unit.importer.imported import imported

OPTIONS = "mode=active-backup miimon=100 primary=ib1 updelay=200"
RAILS = {
    "device": ["mlx5_0", "mlx5_1/2"],
    "rail-primary": "mlx5_1/2",
    "rail-updelay": 200,
    "address": ["10.0.0.1/24"],
}
KEYFILE = "[connection]\ntype={}\nid={}\ninterface-name={}\n"
OLD_PORT = "master=b0\nslave-type=bond\n"
PORT = "controller=b0\nport-type=bond\n"
BONDS = {
    "ifcfg": {
        "ifcfg-bond0": f'TYPE=Bond\nBONDING_MASTER=yes\nBONDING_OPTS="{OPTIONS}"\n'
        "IPADDR=10.0.0.1\nPREFIX=24\n",
        "ifcfg-ib0": "TYPE=InfiniBand\nMASTER=bond0\nSLAVE=yes\n",
        "ifcfg-ib1": "TYPE=InfiniBand\nMASTER=bond0\nSLAVE=yes\n",
    },
    "suse": {
        "ifcfg-bond0": f"STARTMODE=auto\nBONDING_MASTER=yes\nBONDING_MODULE_OPTS='{OPTIONS}'\n"
        "BONDING_SLAVE_0=ib0\nBONDING_SLAVE_1=ib1\nIPADDR=10.0.0.1/24\n",
        "ifcfg-ib0": "STARTMODE=hotplug\nBOOTPROTO=none\n",
        "ifcfg-ib1": "STARTMODE=hotplug\nBOOTPROTO=none\n",
    },
    "keyfile": {
        "a": KEYFILE.format("bond", "b0", "bond0") + "[bond]\n" + OPTIONS.replace(" ", "\n")
        + "\n[ipv4]\nmethod=manual\naddress1=10.0.0.1/24\n",
        "b": KEYFILE.format("infiniband", "p0", "ib0") + PORT,
        "c": KEYFILE.format("infiniband", "p1", "ib1") + OLD_PORT,
    },
    "networkd": {
        "a.netdev": "[NetDev]\nName=bond0\nKind=bond\n[Bond]\nMode=active-backup\n"
        "MIIMonitorSec=100ms\nUpDelaySec=200ms\n",
        "b.network": "[Match]\nName=bond0\n[Network]\nAddress=10.0.0.1/24\n",
        "c.network": "[Match]\nName=ib0\n[Network]\nBond=bond0\n",
        "d.network": "[Match]\nName=ib1\n[Network]\nBond=bond0\nPrimarySlave=yes\n",
    },
    "netplan": {
        "a.yaml": "network:\n  version: 2\n  ethernets:\n    ib0: {dhcp4: false}\n    p1:\n"
        "      match: {name: ib1}\n  bonds:\n    bond0:\n      interfaces: [ib0, p1]\n"
        "      addresses: [10.0.0.1/24]\n      parameters:\n"
        "        {mode: active-backup, mii-monitor-interval: 100, primary: p1, up-delay: 200}\n"
    },
    "nmstate": {
        "a.yml": "interfaces:\n- name: bond0\n  type: bond\n  state: up\n  ipv4: {enabled: true, address:"
        " [{ip: 10.0.0.1, prefix-length: 24}]}\n  link-aggregation:\n    mode: active-backup\n"
        "    port: [ib0, ib1]\n    options: {miimon: 100, primary: ib1, updelay: 200}\n"
        "- {name: ib0, type: infiniband}\n"
    },
    "nmstate, as its page on InfiniBand has it": {
        "a.yml": "interfaces:\n- name: bond0\n  type: bond\n  bond: {mode: active-backup, port: [ib0, ib1],"
        " options: {primary: ib1, updelay: 200}}\n  ipv4: {address: [{ip: 10.0.0.1, prefix-length: 24}]}\n"
    },
    "role": {
        "a.yml": "network_connections:\n- {name: b0, interface_name: bond0, type: bond, bond: {"
        "mode: active-backup, miimon: 100, primary: ib1, updelay: 200},"
        " ip: {dhcp4: no, address: 10.0.0.1/24}}\n"
        "- {name: ib0, type: infiniband, controller: b0, port_type: bond}\n"
        "- {name: ib1, type: infiniband, controller: b0, port_type: bond}\n"
    },
    "cloud-init": {
        "a.yml": "version: 1\nconfig:\n- {type: infiniband, name: ib0}\n- {type: infiniband, name: ib1}\n"
        "- type: bond\n  name: bond0\n  bond_interfaces: [ib0, ib1]\n  params: {"
        "bond-mode: active-backup, bond-miimon: 100, bond-primary: ib1, bond-updelay: 200}\n"
        "  subnets: [{type: static, address: 10.0.0.1/24}]\n"
    },
    "ifupdown": {
        "interfaces": "auto bond0\niface bond0 inet static\n address 10.0.0.1/24\n bond-slaves ib0 ib1\n"
        " bond-mode active-backup\n bond-miimon 100\n bond_primary ib1\n bond_updelay 200\n"
    },
    "ifupdown, by its ports": {
        "interfaces": "auto bond0 ib0 ib1\niface ib0 inet manual\n bond-master bond0\niface ib1 inet manual\n"
        " bond-master bond0\niface bond0 inet static\n address 10.0.0.1/24\n bond-slaves none\n bond-mode 1\n"
        " bond-primary ib1\n bond-updelay 200\n"
    },
}  # fmt: skip


@pytest.mark.parametrize("head", ["", "BONDING_OPTS=mode=1\n", "DEVICE=bond0\n"])
def test_older_files_of_network_scripts(tmp_path: Path, head: str) -> None:
    texts = {**BONDS["ifcfg"], "ifcfg-bond0": f"{head}IPADDR=10.0.0.1\nPREFIX=24\n"}
    results, notes = imported(tmp_path, texts)
    assert (results["bond0"]["device"], notes) == (["mlx5_0", "mlx5_1/2"], [])


def test_a_bond_that_only_its_ports_name(tmp_path: Path) -> None:
    text = "auto b\niface b inet static\n address 10.0.0.1/24\n" + "".join(
        f"auto ib{n}\niface ib{n} inet manual\n bond-master b\n" for n in (0, 1)
    )
    results, notes = imported(tmp_path, {"interfaces": text})
    assert (results["b"]["device"], notes) == (["mlx5_0", "mlx5_1/2"], [])


@pytest.mark.parametrize("program", BONDS)
def test_a_bond_is_an_interface_with_rails(tmp_path: Path, program: str) -> None:
    results, notes = imported(tmp_path, BONDS[program])
    assert results == {"bond0": RAILS}
    assert notes == []


@pytest.mark.parametrize("program", BONDS)
@pytest.mark.parametrize("first", ["mlx4_0", "mlx4_0/1"])
def test_a_bond_of_two_ports_of_one_device(tmp_path: Path, program: str, first: str) -> None:
    devices = {"ib0": first, "ib1": "mlx4_0/2"}
    results, notes = imported(tmp_path, BONDS[program], devices)
    rails = {"device": [first, "mlx4_0/2"], "rail-primary": "mlx4_0/2"}
    assert (results, notes) == ({"bond0": RAILS | rails}, [])


def test_the_primary_is_the_port_of_the_device_that_has_two(tmp_path: Path) -> None:
    texts = dict(BONDS["ifcfg"])
    texts["ifcfg-bond0"] = texts["ifcfg-bond0"].replace("primary=ib1", "primary=ib0")
    imported(tmp_path, texts, {"ib0": "mlx4_0", "ib1": "mlx4_0/2"})
    config = InterfaceConfig.build("bond0", {}, tmp_path / "bond0.toml").endpoint
    assert (config.places, config.primary) == ((("mlx4_0", 1), ("mlx4_0", 2)), 0)


def test_one_port_for_both_ports_of_a_bond_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mlx4_0/1 is given twice: each rail needs a port"):
        imported(tmp_path, BONDS["ifcfg"], {"ib0": "mlx4_0", "ib1": "mlx4_0/1"})


def test_without_devices_the_file_says_which_to_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(AssertionError):  # `config check` refuses it
        imported(tmp_path / "a", BONDS["ifcfg"], {"": "mlx5_0"})
    text = (tmp_path / "a/bond0.toml").read_text()
    assert '# device = ["mlx5_0/1", "mlx5_1/1"]' in text
    assert "/sys/class/net/{ib0,ib1}/dev_port" in text
    assert '# rail-primary = "mlx5_1"  # the device of ib1' in text


def test_the_ports_are_of_one_partition(tmp_path: Path) -> None:
    texts = dict(BONDS["ifcfg"])
    for n in (0, 1):
        texts[f"ifcfg-ib{n}"] += f"DEVICE=ib{n}.8001\nMTU=2000\n"
    results, notes = imported(
        tmp_path, texts, {"": "mlx5_9", "ib0.8001": "mlx5_0", "ib1.8001": "mlx5_1"}
    )
    assert (results["bond0"]["pkey"], results["bond0"]["mtu"]) == ("0x8001", 2000)
    assert len(notes) == 1
    assert "the primary port ib1 is none of its ports" in notes[0]
    other = tmp_path / "other"
    texts["ifcfg-ib1"] = texts["ifcfg-ib1"].replace("8001", "8002")
    results, notes = imported(other, texts, {"": "mlx5_0"})
    assert [content.get("pkey") for content in results.values()] == ["0x8001", "0x8002"]
    assert "another partition than that of ib0.8001" in "".join(notes)


@pytest.mark.parametrize(
    ("name", "port", "made_name", "pkey"),
    [
        ("bond0", "ib{}.8001", "bond0", "0x8001"),
        ("bond0.8001", "ib{}.8001", "bond0.8001", "0x8001"),
        ("bond0.8002", "ib{}.8001", "bond0-rails", "0x8001"),
        ("bond0.8002", "ib{}", "bond0-rails", "0xffff"),
        ("bond0.5", "ib{}", "bond0.5", "0xffff"),
        ("bond0", "ib{}", "bond0", None),
    ],
)
def test_the_partition_is_that_of_the_ports_names(
    tmp_path: Path, name: str, port: str, made_name: str, pkey: str | None
) -> None:
    ports = [port.format(n) for n in (0, 1)]
    text = f"auto {name}\niface {name} inet manual\n bond-slaves {' '.join(ports)}\n"
    devices = dict(zip(ports, ("mlx5_0", "mlx5_1"), strict=True))
    results, _ = imported(tmp_path, {"interfaces": text}, devices)
    assert {each: content.get("pkey") for each, content in results.items()} == {made_name: pkey}


def test_ports_that_may_be_in_a_partition_need_the_administrator(tmp_path: Path) -> None:
    (tmp_path / "interfaces").write_text("iface bond0 inet manual\n bond-slaves ib0.5 ib1.5\n")
    (made,) = assemble(read_files([tmp_path / "interfaces"]), {})
    assert made.needs_pkey
    assert "the name may mean a partition" in "".join(note.why for note in made.notes)


def test_a_port_of_ethernet_is_lost(tmp_path: Path) -> None:
    text = "auto bond0\niface bond0 inet manual\n bond-slaves ib0 eth1\n"
    _, notes = imported(tmp_path, {"interfaces": text})
    assert notes == ["interfaces:2: its port eth1 is no InfiniBand interface of the files"]


def test_what_a_port_has_of_its_own_is_left(tmp_path: Path) -> None:
    texts = dict(BONDS["ifcfg"])
    texts["ifcfg-ib0"] += "IPADDR=10.9.0.1\nPREFIX=24\nMTU=2000\n"
    texts["ifcfg-ib1"] += "MTU=2001\n"
    results, notes = imported(tmp_path, texts)
    assert results["bond0"] == {**RAILS, "mtu": 2000}
    assert notes == [
        "ifcfg-ib0:4: IPADDR: a port of bond0 has no address or route",
        "ifcfg-ib1:4: MTU: mtu is 2000 already",
    ]


def test_a_stanza_sets_the_mode_of_its_ports(tmp_path: Path) -> None:
    text = BONDS["ifupdown"]["interfaces"] + "".join(
        f" pre-up echo connected > /sys/class/net/ib{n}/mode\n" for n in (0, 1)
    )
    results, notes = imported(tmp_path, {"interfaces": text})
    assert results == {"bond0": {**RAILS, "mode": "connected"}}
    assert notes == []


def test_a_bond_of_other_ports_is_none_of_ours(tmp_path: Path) -> None:
    texts = {**BONDS["ifcfg"], "ifcfg-ib2": "TYPE=InfiniBand\n"}
    del texts["ifcfg-ib0"], texts["ifcfg-ib1"]
    results, notes = imported(tmp_path, texts)
    assert results == {"ib2": {}}
    assert notes == ["ifcfg-bond0: a bond without a port of InfiniBand"]


def test_a_port_without_its_bond_is_noted(tmp_path: Path) -> None:
    results, notes = imported(tmp_path, {"ifcfg-ib0": BONDS["ifcfg"]["ifcfg-ib0"]})
    assert list(results) == ["ib0"]
    assert "its bond bond0 is not among the files" in notes[0]


@pytest.mark.parametrize(
    ("key", "value", "expected", "why"),
    [
        ("mode", "1", [], ""),
        ("mode", "balance-xor", ["rail-mode balance-xor"], ""),
        ("mode", "2", ["rail-mode balance-xor"], ""),
        ("mode", "802.3ad", [], "802.3ad: rails are active-backup"),
        ("mode", "0", [], "balance-rr: rails are active-backup"),
        ("bond-miimon", "100", [], ""),
        ("fail_over_mac", "active", [], ""),
        ("arp_ip_target", "10.0.0.9,+10.0.0.8", ["rail-monitor 10.0.0.9", "rail-monitor 10.0.0.8"], ""),
        ("ARPIPTargets", "10.0.0.9 10.0.0.8", ["rail-monitor 10.0.0.9", "rail-monitor 10.0.0.8"], ""),
        ("updelay", "0", [], ""),
        ("updelay", "soon", [], "'soon'"),
        ("downdelay", "200", [], "is left at once"),
        ("primary_reselect", "always", [], ""),
        ("primary_reselect", "failure", [], "always preferred"),
        ("xmit_hash_policy", "layer2", [], "rails have no such setting"),
    ],
)  # fmt: skip
def test_each_option_of_a_bond(key: str, value: str, expected: list[str], why: str) -> None:
    made = Draft(Place(Path("a")), "bond0", is_bond=True)
    take_bond_option(made, key, value, Place(Path("a"), 7))
    assert [f"{each.option} {each.text}" for each in made.settings] == expected
    assert [why in note.why for note in made.notes] == [True] * bool(why)
