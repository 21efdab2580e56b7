# SPDX-License-Identifier: BSD-2-Clause
"""How files are recognised, and which belong to others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.importer.sources import read_files


def test_a_file_that_belongs_to_another_is_read_with_it_once(tmp_path: Path) -> None:
    (tmp_path / "ifcfg-ib0").write_text("TYPE=InfiniBand\n")
    (tmp_path / "route-ib0").write_text("10.9.0.0/16 dev ib0\n")
    (tmp_path / "a.network").write_text("[Match]\nName=ib1\n")
    (tmp_path / "a.network.d").mkdir()
    (tmp_path / "a.network.d/b.conf").write_text("[Network]\nAddress=10.0.0.1/24\n")
    names = ["route-ib0", "ifcfg-ib0", "a.network.d/b.conf", "a.network"]
    drafts = read_files(tmp_path / name for name in names).drafts
    assert [draft.name for draft in drafts] == ["ib0", "ib1"]
    assert [len(draft.settings) for draft in drafts] == [1, 1]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("route-ib7", "ifcfg-ib7, to which it belongs, is not beside it"),
        ("a.network.d/b.conf", "a.network, to which it belongs, does not exist"),
        ("readme", "not the name of a keyfile"),
        ("none", "No such file or directory"),
    ],
)
def test_other_files_are_refused_with_their_path(tmp_path: Path, name: str, why: str) -> None:
    path = tmp_path / name
    if name != "none":
        path.parent.mkdir(exist_ok=True)
        path.write_text("nothing of ours\n")
    with pytest.raises(UsageError, match=why) as caught:
        read_files([path])
    assert str(path) in str(caught.value)


def test_a_file_of_no_known_kind_beside_others_is_noted(tmp_path: Path) -> None:
    (tmp_path / "README").write_text("nothing of ours\n")
    (tmp_path / "ifcfg-ib0").write_text("TYPE=InfiniBand\n")
    (tmp_path / "directory").mkdir()
    for paths in ([tmp_path / "README", tmp_path / "ifcfg-ib0"], [tmp_path]):
        reading = read_files(paths)
        assert [each.name for each in reading.drafts] == ["ib0"]
        assert [str(note) for note in reading.notes] == [
            f"{tmp_path}/README: not read: a file of no known kind"
        ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ifcfg-v", "TYPE=Vlan\nPHYSDEV=ib0\n"),
        ("suse/ifcfg-br0", "STARTMODE=auto\nBRIDGE=yes\nBRIDGE_PORTS='ib0 eth1'\n"),
        ("a.nmconnection", "[connection]\ntype=vlan\n[vlan]\nparent=ib0\n"),
        ("interfaces", "iface br0 inet manual\n bridge_ports ib0 eth1\n"),
        ("a.yml", "network: {bridges: {br0: {interfaces: [ib0]}}}\n"),
        ("a.yml", "interfaces: [{name: v, type: vlan, vlan: {base-iface: ib0, id: 5}}]\n"),
        ("a.yml", "{version: 1, config: [{type: bridge, name: b, bridge_interfaces: [ib0]}]}\n"),
        ("a.yml", "network_connections: [{name: v, type: vlan, parent: ib0}]\n"),
    ],
)
def test_what_another_interface_does_with_ours_is_lost(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for used in ("ib0", "eth0"):
        path.write_text(text.replace("ib0", used))
        (note,) = read_files([path]).notes
        assert note.is_loss == (used == "ib0")
        assert ("(ib0)" in note.why) == note.is_loss


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("storage", "[connection]\ntype=infiniband\ninterface-name=ib0\n"),
        ("my-conf", "IPOIB_LOAD=yes\nSET_IPOIB_CM=yes\n"),
        ("network-config", "{version: 1, config: [{type: infiniband, name: ib0}]}"),
        ("50-cloud", "network:\n  version: 2\n  ethernets: {ib0: {dhcp4: true}}\n"),
        ("a.json", '{"interfaces": [{"name": "ib0", "type": "infiniband"}]}'),
        ("50-cloud.cfg", "network: {version: 1, config: [{type: infiniband, name: ib0}]}"),
        ("storage.conf", "auto ib0\niface ib0 inet dhcp\n"),
        ("interfaces", "iface ib0 inet dhcp\n"),
    ],
)
def test_a_file_is_known_by_its_name_or_its_content(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert [each.name for each in read_files([tmp_path / name]).drafts] == ["ib0"]
