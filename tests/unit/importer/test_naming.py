# SPDX-License-Identifier: BSD-2-Clause
"""The partition that a name says, and the names that interfaces have in other programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.importer.assembly import ImportedInterface, assemble
from ipoibu.importer.document import document
from ipoibu.importer.sources import read_files

# One interface by its name alone
FILES = {
    "NAME.nmconnection": "[connection]\ntype=infiniband\ninterface-name=NAME\n",
    "NAME.network": "[Match]\nName=NAME\n[Network]\nAddress=10.0.0.1/24\n",
    "NAME.netdev": "[NetDev]\nName=NAME\nKind=ipoib\n",
    "ifcfg-NAME": "DEVICE=NAME\nTYPE=InfiniBand\n",
    "suse/ifcfg-NAME": "STARTMODE=auto\nIPADDR=10.0.0.1/24\n",
    "interfaces": "auto NAME\niface NAME inet manual\n",
    "NAME.json": '{"interfaces": [{"name": "NAME", "type": "infiniband"}]}',
    "NAME.yaml": "network: {version: 2, ethernets: {NAME: {}}}",
    "NAME.cfg": "network: {version: 1, config: [{type: infiniband, name: NAME}]}",
    "NAME.yml": "network_connections:\n- {name: NAME, type: infiniband, ip: {dhcp4: no}}\n",
}
CHILD = "[connection]\nid=storage\ntype=infiniband\n[infiniband]\np-key=32773\nparent={}\n"


def imported(directory: Path, name: str, *files: str) -> list[ImportedInterface]:
    paths = []
    for file in files:
        paths.append(directory / file.replace("NAME", name))
        paths[-1].parent.mkdir(exist_ok=True)
        paths[-1].write_text(FILES[file].replace("NAME", name))
    return assemble(read_files(paths), {"": "mlx5_0"})


def up(made: ImportedInterface, directory: Path) -> InterfaceConfig:
    """What `ipoibu up` makes of the file."""
    path = directory / f"{made.name}.toml"
    path.write_text(document(made))
    return InterfaceConfig.build(made.name, {}, path)


@pytest.mark.parametrize("file", sorted(FILES))
@pytest.mark.parametrize(("name", "pkey"), [("ib0.8001", 0x8001), ("ib0.000a", 0x800A)])
def test_a_name_says_the_partition(tmp_path: Path, file: str, name: str, pkey: int) -> None:
    (made,) = imported(tmp_path, name, file)
    assert up(made, tmp_path).endpoint.pkey == pkey
    assert [note.why for note in made.notes] == []


@pytest.mark.parametrize("file", sorted(set(FILES) - {"suse/ifcfg-NAME"}))  # wicked has a rule
def test_a_name_that_may_say_one_needs_the_administrator(tmp_path: Path, file: str) -> None:
    (made,) = imported(tmp_path, "ib0.5", file)
    assert "the name may mean a partition" in made.notes[0].why
    path = tmp_path / "ib0.5.toml"
    assert '# pkey = "0x8001"' in document(made)
    path.write_text(document(made).replace("# pkey", "pkey"))
    assert InterfaceConfig.build("ib0.5", {}, path).endpoint.pkey == 0x8001


@pytest.mark.parametrize("file", sorted(FILES))
def test_a_child_is_below_the_parent_that_its_name_says(tmp_path: Path, file: str) -> None:
    imported(tmp_path, "ib0", "ifcfg-NAME")
    imported(tmp_path, "ib0.8001", file)
    paths = [tmp_path / "ifcfg-ib0", tmp_path / file.replace("NAME", "ib0.8001")]
    (made,) = assemble(read_files(paths), {"": "mlx5_0"})
    (child,) = up(made, tmp_path).children
    assert (child.name, child.endpoint.pkey) == ("ib0.8001", 0x8001)


def test_the_p_key_of_the_file_counts_and_not_that_of_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text(
        FILES["NAME.nmconnection"].replace("NAME", "ib0.8001") + "[infiniband]\np-key=2\n"
    )
    (made,) = assemble(read_files([path]), {"": "mlx5_0"})
    assert (made.name, up(made, tmp_path).endpoint.pkey) == ("ib0.8002", 0x8002)
    assert [note.why for note in made.notes] == [
        "ib0.8001 says another partition than 0x8002: here ib0.8002"
    ]


def test_two_files_of_one_partition_stay_two_interfaces(tmp_path: Path) -> None:
    texts = [("a", "ib0.8001", "p-key=2"), ("b", "ib0.8002", "")]
    for file, name, key in texts:
        text = FILES["NAME.nmconnection"].replace("NAME", name) + f"[infiniband]\n{key}\n"
        (tmp_path / file).write_text(text)
    made = assemble(read_files([tmp_path / "a", tmp_path / "b"]), {"": "mlx5_0"})
    assert len({each.name for each in made}) == 2
    assert [up(each, tmp_path).endpoint.pkey for each in made] == [0x8002, 0x8002]


@pytest.mark.parametrize("parent", ["ib0", "main", "uuid-0"])
def test_networkmanagers_child_without_a_name_has_the_kernels(tmp_path: Path, parent: str) -> None:
    (tmp_path / "a").write_text(CHILD.format(parent))
    head = "[connection]\ntype=infiniband\ninterface-name=ib0\nid=main\nuuid=uuid-0\n"
    (tmp_path / "b").write_text(head)
    (made,) = assemble(read_files([tmp_path / "a", tmp_path / "b"]), {"": "mlx5_0"})
    (child,) = up(made, tmp_path).children
    assert (made.name, child.name, made.notes) == ("ib0", "ib0.8005", [])


def test_without_its_parents_file_it_is_an_interface_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(CHILD.format("ib0"))
    (made,) = assemble(read_files([tmp_path / "a"]), {"": "mlx5_0"})
    assert (made.name, up(made, tmp_path).endpoint.pkey) == ("ib0.8005", 0x8005)
    assert "none of the files describes its parent ib0" in made.notes[0].why


@pytest.mark.parametrize(
    ("file", "device", "name", "notes"),
    [
        ("ifcfg-ib0.8005", "ib0.8005", "ib0.8005", 0),
        ("ifcfg-ib0.0005", "ib0.0005", "ib0.8005", 1),
        ("ifcfg-child", "ib0", "ib0.8005", 1),
        ("ifcfg-storage", "storage", "storage", 1),
    ],
)
def test_an_ifcfg_child_without_physdev(
    tmp_path: Path, file: str, device: str, name: str, notes: int
) -> None:
    (tmp_path / "ifcfg-ib0").write_text("DEVICE=ib0\nTYPE=InfiniBand\n")
    (tmp_path / file).write_text(f"DEVICE={device}\nTYPE=InfiniBand\nPKEY=yes\nPKEY_ID=5\n")
    (made,) = assemble(read_files([tmp_path / "ifcfg-ib0", tmp_path / file]), {"": "mlx5_0"})
    (child,) = up(made, tmp_path).children
    assert (child.name, child.endpoint.pkey) == (name, 0x8005)
    assert len(made.notes) == notes


def test_names_of_drivers_say_infiniband(tmp_path: Path) -> None:
    paths = [tmp_path / "interfaces", tmp_path / "a.network", tmp_path / "ifcfg-hfi1_0"]
    paths[0].write_text("auto mlx5_ib0\niface mlx5_ib0 inet manual\niface mlxsw inet manual\n")
    paths[1].write_text("[Match]\nName=mlx5_ib1.8001\n")
    paths[2].write_text("ONBOOT=yes\n")
    made = assemble(read_files(paths), {"": "mlx5_0"})
    assert {each.name for each in made} == {"mlx5_ib0", "mlx5_ib1.8001", "hfi1_0"}


def test_a_child_without_device_has_the_kernels_name(tmp_path: Path) -> None:
    (tmp_path / "ifcfg-ib0").write_text("DEVICE=ib0\nTYPE=InfiniBand\n")
    ifcfg = "NAME=storage\nTYPE=InfiniBand\nPKEY=yes\nPKEY_ID=5\nPHYSDEV=ib0\n"
    (tmp_path / "ifcfg-storage").write_text(ifcfg)
    role = (
        "network_connections:\n- {name: ib0, type: infiniband}\n"
        "- {name: ib0-5, type: infiniband, parent: ib0, infiniband: {p_key: 5}}\n"
    )
    (tmp_path / "a.yml").write_text(role)
    for paths in ([tmp_path / "ifcfg-ib0", tmp_path / "ifcfg-storage"], [tmp_path / "a.yml"]):
        (made,) = assemble(read_files(paths), {"": "mlx5_0"})
        (child,) = up(made, tmp_path).children
        assert (made.name, child.name, made.notes) == ("ib0", "ib0.8005", [])


def test_a_connection_without_a_name_has_that_of_its_id_or_one_that_nobody_means(
    tmp_path: Path,
) -> None:
    nameless = "[connection]\ntype=infiniband\nid={}\n"
    (tmp_path / "a").write_text(CHILD.format("ib0"))
    (tmp_path / "b").write_text(nameless.format("ib0.8001"))
    (tmp_path / "c").write_text(nameless.format("Wired connection 1"))
    (tmp_path / "d").write_text(nameless.format("ib7"))
    made = assemble(read_files([tmp_path / name for name in "abcd"]), {"": "mlx5_0"})
    pkeys = {each.name: up(each, tmp_path).endpoint.pkey for each in made}
    assert pkeys == {"ib0.8005": 0x8005, "ib0.8001": 0x8001, "ib1": 0xFFFF, "ib7": 0xFFFF}
    assert "no usable name of an interface: it is called ib1 here" in made[2].notes[0].why
