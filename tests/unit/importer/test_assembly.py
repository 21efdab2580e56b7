# SPDX-License-Identifier: BSD-2-Clause
"""Interfaces of several files: names, parents, children, and what ipoibu refuses."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.base.limits import CHILDREN_MAX
from ipoibu.daemon.config.interface_config import faults
from ipoibu.importer.assembly import ImportedInterface, assemble
from ipoibu.importer.document import document
from ipoibu.importer.sources import read_files

PARENT = "[connection]\ntype=infiniband\nid=storage\nuuid=4c\ninterface-name=ib0\n"
CHILD = (
    "[connection]\ntype=infiniband\ninterface-name={name}\n"
    "[infiniband]\np-key={pkey}\nparent={parent}\n"
)
ALL_DEVICES = {"": "mlx5_0/1"}


def made_of(directory: Path, **texts: str) -> list[ImportedInterface]:
    """Write files by name, in which __ stands for a dot, and assemble what they hold."""
    paths = []
    for name, text in texts.items():
        paths.append(directory / name.replace("__", "."))
        paths[-1].write_text(text)
    return assemble(read_files(paths), ALL_DEVICES)


def toml(made: ImportedInterface, directory: Path) -> dict[str, Any]:
    """The content of its file, which `ipoibu config check` accepts."""
    path = directory / f"{made.name}.toml"
    path.write_text(document(made))
    assert [str(fault) for fault in faults(path)] == []
    return tomllib.loads(path.read_text())


def whys(made: ImportedInterface) -> list[str]:
    return [note.why for note in made.notes]


@pytest.mark.parametrize("parent", ["ib0", "storage", "4c"])
def test_a_child_finds_its_parent_by_name_or_alias(tmp_path: Path, parent: str) -> None:
    child = CHILD.format(name="ib0.8001", pkey="0x8001", parent=parent)
    (made,) = made_of(tmp_path, b=child + "mtu=2044\n[ipv4]\naddress1=10.1.0.1/24\n", a=PARENT)
    assert toml(made, tmp_path) == {
        "device": "mlx5_0/1",
        "child": {"0x8001": {"mtu": 2044, "address": ["10.1.0.1/24"]}},
    }
    assert whys(made) == []


def test_the_files_of_networkd_belong_together(tmp_path: Path) -> None:
    (made,) = made_of(
        tmp_path,
        a__netdev="[NetDev]\nName=storage\nKind=ipoib\nMTUBytes=2044\n[IPoIB]\nPartitionKey=0x8001\n",
        b__network="[Match]\nName=storage\n[Network]\nAddress=10.1.0.1/24\n",
        c__network="[Match]\nName=ib0\n[Network]\nIPoIB=storage\nIPoIB=missing\nAddress=10.0.0.1/24\n",
    )
    assert toml(made, tmp_path) == {
        "device": "mlx5_0/1",
        "address": ["10.0.0.1/24"],
        "child": {"0x8001": {"name": "storage", "mtu": 2044, "address": ["10.1.0.1/24"]}},
    }
    assert whys(made) == ["none of the files has the P_Key of the child missing"]


def test_a_child_has_its_own_mode_and_routes(tmp_path: Path) -> None:
    child = CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0")
    (made,) = made_of(
        tmp_path,
        a=PARENT + "[infiniband]\ntransport-mode=connected\n",
        b=child
        + "transport-mode=datagram\n[ipv4]\naddress1=10.1.0.1/24,10.1.0.9\nroute1=10.7.0.0/16\n",
    )
    assert toml(made, tmp_path)["child"] == {
        "0x8001": {
            "mode": "datagram",
            "address": ["10.1.0.1/24"],
            "route": ["10.7.0.0/16", "default,via=10.1.0.9"],
        }
    }
    assert whys(made) == []


def test_a_child_leaves_what_no_child_has(tmp_path: Path) -> None:
    child = CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0")
    (made,) = made_of(tmp_path, a=PARENT, b=child + "[ipv4]\naddress1=10.1.0.1/24\ndad-timeout=0\n")
    assert toml(made, tmp_path)["child"] == {"0x8001": {"address": ["10.1.0.1/24"]}}
    assert whys(made) == ["a child has its parent's dad-ipv4"]


def test_a_child_with_its_parents_mode_loses_nothing(tmp_path: Path) -> None:
    child = CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0")
    for mode in ("datagram", "connected"):
        line = f"transport-mode={mode}\n"
        (made,) = made_of(tmp_path, a=f"{PARENT}[infiniband]\n{line}", b=child + line)
        assert whys(made) == []
    (made,) = made_of(tmp_path, a=PARENT, b=f"{child}transport-mode=datagram\n")
    assert whys(made) == []


def test_a_child_whose_parent_is_in_no_file_is_an_interface(tmp_path: Path) -> None:
    (made,) = made_of(tmp_path, a=CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0"))
    assert (made.name, toml(made, tmp_path)["pkey"]) == ("ib0.8001", "0x8001")
    assert "none of the files describes its parent ib0" in whys(made)[0]


def test_parents_that_cannot_be_are_noted(tmp_path: Path) -> None:
    made = made_of(
        tmp_path,
        a=PARENT,
        b=CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0"),
        c=CHILD.format(name="x", pkey="0x8002", parent="ib0.8001"),
        d=CHILD.format(name="y", pkey="-1", parent="ib0"),
        e=CHILD.format(name="z", pkey="0x8003", parent="z"),
    )
    assert [each.name for each in made] == ["ib0", "x", "y", "z.8003"]
    assert whys(made[1]) == ["its parent ib0.8001 is a child: a child has none of its own"]
    assert whys(made[2]) == ["no P_Key: y is no child of ib0 here"]
    assert "z is its parent" in whys(made[3])[0]


@pytest.mark.parametrize(
    ("pkeys", "why"),
    [
        (["0xffff"], "0xffff is the partition of ib0 itself"),
        (["0x0001", "0x8001"], "another child has the partition 0x8001"),
    ],
)
def test_children_that_the_parent_refuses_are_left(
    tmp_path: Path, pkeys: list[str], why: str
) -> None:
    files = {
        f"c{n}": CHILD.format(name=f"c{n}", pkey=key, parent="ib0") for n, key in enumerate(pkeys)
    }
    (made,) = made_of(tmp_path, a=PARENT, **files)
    assert len(toml(made, tmp_path).get("child", {})) == len(pkeys) - 1
    assert whys(made)[-1] == why


def test_a_value_of_a_child_that_ipoibu_refuses_is_left_alone(tmp_path: Path) -> None:
    child = CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0")
    (made,) = made_of(
        tmp_path, a=PARENT, b=f"{child}mtu=1000\n[ipv6]\naddress1=fd00::1/64\nmethod=manual\n"
    )
    assert toml(made, tmp_path)["child"] == {"0x8001": {"address": ["fd00::1/64"]}}
    assert whys(made) == ["--mtu 1000 is too small for fd00::1/64: IPv6 needs 1280"]


@pytest.mark.parametrize(("device", "largest"), [("mlx5_0", 4092), ("soft:eth0", 9140)])
def test_an_mtu_of_connected_mode_alone_is_left(tmp_path: Path, device: str, largest: int) -> None:
    child = CHILD.format(name="ib0.8001", pkey="0x8001", parent="ib0") + "mtu=65520\n"
    (tmp_path / "a").write_text(f"{PARENT}[infiniband]\nmtu=65520\n")
    (tmp_path / "b").write_text(child)
    (made,) = assemble(read_files([tmp_path / "a", tmp_path / "b"]), {"": device})
    assert toml(made, tmp_path) == {"device": device, "child": {"0x8001": {}}}
    assert [f"choose at most {largest}, or" in why for why in whys(made)] == [True, True]


def test_children_beyond_the_most_are_left(tmp_path: Path) -> None:
    files = {
        f"c{n}": CHILD.format(name=f"ib0.{n | 0x8000:04x}", pkey=n, parent="ib0")
        for n in range(1, CHILDREN_MAX + 2)
    }
    (made,) = made_of(tmp_path, a=PARENT, **files)
    assert len(toml(made, tmp_path)["child"]) == CHILDREN_MAX
    assert whys(made) == [f"an interface has at most {CHILDREN_MAX} children"]


def test_contradictions_are_left_with_the_place_of_the_value(tmp_path: Path) -> None:
    (made,) = made_of(
        tmp_path,
        a=f"{PARENT}[infiniband]\nmtu=1000\n[ipv6]\naddress1=fd00::1/64\nmethod=manual\n",
    )
    assert toml(made, tmp_path) == {"device": "mlx5_0/1", "address": ["fd00::1/64"]}
    assert [str(note) for note in made.notes] == [
        f"{tmp_path}/a:7: infiniband.mtu: --mtu 1000 is too small for fd00::1/64: IPv6 needs 1280"
    ]


def test_of_two_files_about_one_interface_the_first_counts(tmp_path: Path) -> None:
    (made,) = made_of(
        tmp_path,
        **{"ifcfg-ib0": "TYPE=InfiniBand\nMTU=2044\nIPADDR=10.0.0.1\nPREFIX=24\n"},
        a=f"{PARENT}[infiniband]\nmtu=65520\np-key=5\n[ipv4]\naddress1=10.0.0.1/24\n",
        b=f"{PARENT}[infiniband]\np-key=6\n[ipv4]\naddress1=10.0.1.1/24\n",
    )
    content = toml(made, tmp_path)
    assert content["mtu"] == 2044
    assert content["pkey"] == "0x8005"
    assert content["address"] == ["10.0.0.1/24", "10.0.1.1/24"]
    assert whys(made) == ["mtu is 2044 already", "another file gives ib0 the partition 0x8005"]


def test_interfaces_without_a_usable_name_get_one(tmp_path: Path) -> None:
    nameless = "[connection]\ntype=infiniband\n"
    made = made_of(
        tmp_path,
        a=nameless,
        b=PARENT,
        c=f"{nameless}interface-name=a-name-that-is-too-long\n",
        d=f"{nameless}[infiniband]\np-key=1\nparent=ib0\n",
    )
    assert [each.name for each in made] == ["ib1", "ib0", "ib2"]
    assert list(made[1].children) == [0x8001]
    assert "it is called ib1 here" in whys(made[0])[0]
    assert "is too long" in whys(made[2])[0]


def test_devices_belong_to_interfaces_that_exist(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(PARENT)
    drafts = read_files([tmp_path / "a"])
    with pytest.raises(UsageError, match="ib7=mlx5_0: the files describe no interface ib7"):
        assemble(drafts, {"ib7": "mlx5_0"})
    with pytest.raises(UsageError, match="'soft:' is not a device"):
        assemble(drafts, {"": "soft:"})
    (made,) = assemble(drafts, {"ib0": "mlx5_1", "": "mlx5_0"})
    assert made.devices == ["mlx5_1"]


def test_a_long_list_has_a_line_for_each_text(tmp_path: Path) -> None:
    addresses = "".join(f"address{n}=10.0.{n}.1/24\n" for n in range(1, 9))
    (made,) = made_of(tmp_path, a=f"{PARENT}[ipv4]\n{addresses}")
    assert '    "10.0.8.1/24",\n]\n' in document(made)
    assert len(toml(made, tmp_path)["address"]) == 8


def test_bytes_of_a_file_cannot_leave_a_comment(tmp_path: Path) -> None:
    (made,) = made_of(tmp_path, a=f"{PARENT}[ipv4]\na\rdevice='x'\x07\u2028=1\n")
    assert toml(made, tmp_path) == {"device": "mlx5_0/1"}
