# SPDX-License-Identifier: BSD-2-Clause
"""The checkup of an RDMA device, over a sysfs that the test writes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import NoSuchDevice
from ipoibu.doctor import verbs as checkup_verbs
from ipoibu.doctor.finding import Finding
from ipoibu.doctor.verbs import gid_table, verbs_port
from ipoibu.fabric.verbs.objects import INSTALL, REINSTALL, SHARE, import_problem, missing

GID = "fe80:0000:0000:0000:0000:00ff:fe00:0101"
MAPPED = "0000:0000:0000:0000:0000:ffff:0a00:0001"
EMPTY = "0000:0000:0000:0000:0000:0000:0000:0000"


@pytest.fixture
def sysfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """rxe0 on lo, as the kernel shows it, with everything in order."""
    device = tmp_path / "rxe0"
    port = device / "ports/1"
    for part in ("gids", "gid_attrs/types", "gid_attrs/ndevs"):
        (port / part).mkdir(parents=True)
    (device / "node_type").write_text("1: CA\n")
    (port / "link_layer").write_text("Ethernet\n")
    (port / "state").write_text("4: ACTIVE\n")
    for index, gid in enumerate((GID, MAPPED, EMPTY)):
        (port / f"gids/{index}").write_text(gid + "\n")
        if gid != EMPTY:  # reading those of an empty entry fails: EINVAL
            (port / f"gid_attrs/types/{index}").write_text("RoCE v2\n")
            (port / f"gid_attrs/ndevs/{index}").write_text("lo\n")
    there = {(1, Gid.parse(GID))}
    monkeypatch.setattr(checkup_verbs, "local_addresses", lambda: there)
    monkeypatch.setattr(checkup_verbs, "load", lambda: None)
    return tmp_path


def findings(sysfs: Path, port: int = 1) -> dict[str, Finding]:
    return {result.check: result for result in verbs_port("rxe0", port, PKey(0xFFFF), sysfs)}


def test_a_port_in_order_is_described(sysfs: Path) -> None:
    result = findings(sysfs)
    assert {name for name, finding in result.items() if finding.status != "ok"} <= {
        "verbs_extension"  # not built everywhere
    }
    assert result["rdma_port"].detail == "rxe0/1 is active"
    assert result["gid"].detail == "rxe0/1 has fe80::ff:fe00:101 (index 0, RoCE v2)"
    assert "MTU 65536 of lo carries an IP MTU of 4092" in result["mtu"].detail


def test_the_gid_table_is_read_with_its_holes(sysfs: Path) -> None:
    entries, netdevs = gid_table(sysfs / "rxe0/ports/1")
    assert [(entry.index, entry.is_roce_v2, entry.ifindex) for entry in entries] == [
        (0, True, 1),
        (1, True, 1),
    ]
    assert netdevs == ["lo"]


def test_another_port_is_named(sysfs: Path) -> None:
    result = findings(sysfs, port=2)["rdma_port"]
    assert (result.status, result.detail) == ("fail", "rxe0 has no port 2, but 1")
    assert result.remedy == "--device rxe0/1"


def test_an_infiniband_port_is_one_of_a_subnet(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sysfs / "rxe0/ports/1/link_layer").write_text("InfiniBand\n")
    asked = []

    def subnet(name: str, port: int, pkey: PKey) -> list[Finding]:
        asked.append((name, port, pkey))
        return [Finding("subnet_manager", "ok", "there is one")]

    monkeypatch.setattr(checkup_verbs, "subnet", subnet)
    result = findings(sysfs)
    assert result["rdma_port"].status == result["subnet_manager"].status == "ok"
    assert "gid" not in result  # it is the subnet's affair
    assert asked == [("rxe0", 1, PKey(0xFFFF))]


def test_an_iwarp_device_carries_a_mesh(sysfs: Path) -> None:
    (sysfs / "rxe0/node_type").write_text("4: RNIC\n")
    result = findings(sysfs)
    assert (result["link_layer"].status, result["rdma_port"].status) == ("ok", "ok")
    assert "iWARP" in result["link_layer"].detail
    assert "gid" not in result  # a mesh makes its own


def test_an_iwarp_port_that_is_down_is_reported(sysfs: Path) -> None:
    (sysfs / "rxe0/node_type").write_text("4: RNIC\n")
    (sysfs / "rxe0/ports/1/state").write_text("1: DOWN\n")
    assert findings(sysfs)["rdma_port"].status == "fail"


def test_a_port_that_is_down_is_brought_up_by_its_net_device(sysfs: Path) -> None:
    (sysfs / "rxe0/ports/1/state").write_text("1: DOWN\n")
    result = findings(sysfs)["rdma_port"]
    assert (result.status, result.remedy) == ("fail", "ip link set lo up")
    assert result.detail == "rxe0/1 is DOWN"


def test_a_gid_without_its_address_names_what_makes_one(
    sysfs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup_verbs, "local_addresses", set)
    result = findings(sysfs)["gid"]
    assert result.status == "fail"
    assert "fe80::ff:fe00:101" in result.detail
    assert result.remedy is not None
    assert "ip link set lo addrgenmode eui64" in result.remedy


def test_gids_of_the_wrong_type_are_named(sysfs: Path) -> None:
    for index in (0, 1):
        (sysfs / f"rxe0/ports/1/gid_attrs/types/{index}").write_text("IB/RoCE v1\n")
    result = findings(sysfs)["gid"]
    assert result.status == "fail"
    assert "only RoCE v1 GIDs" in result.detail


def test_a_net_device_elsewhere_is_reported(sysfs: Path) -> None:
    (sysfs / "rxe0/ports/1/gid_attrs/ndevs/0").write_text("not-here0\n")
    result = findings(sysfs)["gid"]
    assert "not-here0, below rxe0/1, is not in this network namespace" in result.detail
    assert result.remedy == "ip netns exec NAME ipoibu ..."


def test_a_port_without_any_gid_has_no_net_device_to_ask(sysfs: Path) -> None:
    for index in (0, 1):
        (sysfs / f"rxe0/ports/1/gids/{index}").write_text(EMPTY)
    result = findings(sysfs)
    assert "none at all" in result["gid"].detail
    assert "mtu" not in result


@pytest.mark.parametrize(
    ("message", "detail", "remedy"),
    [
        (
            missing(INSTALL),
            "RDMA devices need pyverbs, which is not there",
            INSTALL,
        ),
        (
            missing(SHARE),
            "RDMA devices need pyverbs, which is not there",
            SHARE,
        ),
        (
            import_problem("version `IBVERBS_PRIVATE_59' not found"),
            "pyverbs does not fit the libibverbs that is installed: a build from PyPI runs only "
            "with the very same version of rdma-core",
            REINSTALL,
        ),
        (import_problem("no libnl"), "pyverbs does not load (no libnl)", INSTALL),
    ],
)
def test_a_pyverbs_that_does_not_load_names_what_mends_it(
    monkeypatch: pytest.MonkeyPatch, message: str, detail: str, remedy: str
) -> None:
    def refuse() -> None:
        raise NoSuchDevice(message)

    monkeypatch.setattr(checkup_verbs, "load", refuse)
    result = checkup_verbs.pyverbs()
    assert (result.status, result.detail, result.remedy) == ("fail", detail, remedy)


def test_an_extension_that_was_not_built_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", None)
    result = checkup_verbs.extension()
    assert result.status == "fail"
    assert result.remedy == "apt-get install libibverbs-dev, then install ipoibu again"
