# SPDX-License-Identifier: BSD-2-Clause
"""A port of an iWARP device, over a pyverbs and connections that the test plays."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.base.ib import IWARP, PartitionParams
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.mesh import port as mesh_port
from ipoibu.fabric.mesh.port import IwarpPort
from tests.doubles.port_contract import check_port
from tests.unit.fabric.verbs.verbs_fake import Mesh, install, machine, uninstall

MAC = "02:00:00:00:01:01"
PARAMS = PartitionParams(pkey=PKey(0xFFFF), qkey=0x0B1B, mtu_bytes=65524)
OPENED = ["close cq", "close cq", "close channel"]


class Connections:
    """In place of MeshConnections."""

    refuse: LinkError | None = None

    def __init__(self, *_: Any) -> None:
        if self.refuse is not None:
            raise self.refuse

    def __getattr__(self, name: str) -> Any:
        def note(*_: Any) -> Any:
            machine().log.append(f"{name} connections")
            return {"peers": [], "counters": {"mesh_peers": 0}}.get(name)

        return note


@pytest.fixture(autouse=True)
def _device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", install(monkeypatch))
    machine().devices = {"siw0": 1}
    machine().gids = [(0, "200:0:101::", 1, 1, 1)]
    (tmp_path / "lo").mkdir()
    (tmp_path / "lo" / "address").write_text(f"{MAC}\n")
    monkeypatch.setattr(mesh_port, "_NETDEVS", tmp_path)
    monkeypatch.setattr(mesh_port, "MeshConnections", Connections)
    yield
    uninstall()


def closed() -> list[str]:
    return [line for line in machine().log if line.startswith("close")]


def test_a_port_is_described_by_its_mac() -> None:
    info = IwarpPort("siw0").info
    assert (info.gid, info.link_layer, info.netdev) == (
        Gid.parse("fe80::ff:fe00:101"),
        IWARP,
        "lo",
    )


def test_an_iwarp_port_keeps_the_contract() -> None:
    check_port(IwarpPort("siw0"))
    assert closed()[-2:] == ["close pd", "close context"]


def test_closing_the_port_closes_its_meshes_first() -> None:
    port = IwarpPort("siw0")
    mesh = port.open_ud(PARAMS)
    assert mesh.counters() == {"mesh_doorbells": 2, "mesh_peers": 0}
    machine().log.clear()
    port.close()
    port.close()
    mesh_closed = ["close connections", "close mesh", *OPENED]
    assert closed()[:7] == [*mesh_closed, "close pd", "close context"]


def test_a_device_that_sends_nothing_inline_is_used_without() -> None:
    machine().max_inline = 0
    IwarpPort("siw0").open_ud(PARAMS)
    assert machine().log.count("qp") == 2


def test_a_mesh_that_the_core_refuses_leaves_nothing() -> None:
    Mesh.refuse = OSError(errno.ENOMEM, "")
    with pytest.raises(LinkError, match=r"siw0/1: mesh: Cannot allocate memory"):
        IwarpPort("siw0").open_ud(PARAMS)
    assert closed() == ["close qp", *OPENED]


def test_a_mesh_that_cannot_listen_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connections, "refuse", LinkError("in use"))
    with pytest.raises(LinkError, match="in use"):
        IwarpPort("siw0").open_ud(PARAMS)
    assert closed() == ["close qp", "close mesh", *OPENED]


def test_a_peer_that_is_not_one_leaves_nothing() -> None:
    with pytest.raises(UsageError):
        IwarpPort("siw0").open_mesh(PARAMS, MeshOptions(("10.0.0.1:x",)))
    assert closed() == ["close qp", "close connections", "close mesh", *OPENED]
