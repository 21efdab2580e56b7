# SPDX-License-Identifier: BSD-2-Clause
"""Puts a pyverbs in place of the installed one, if any: `install(monkeypatch)`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

HERE = str(Path(__file__).parent)


class Fabric:
    """In place of the compiled VerbsFabric; `made` lists all objects."""

    made: list[Fabric]
    refuse: BaseException | None

    def __init__(self, qp: Any, **options: Any) -> None:
        if (error := type(self).refuse) is not None:
            raise error
        self.qp, self.options = qp, options
        self.log: list[tuple[object, ...]] = []
        self.pending = 0
        self.errors: dict[str, OSError] = {}
        self.event_fd = 7 if options["owns_events"] else None
        self.qpn, self.native = qp.qp_num, object()
        type(self).made.append(self)

    def _do(self, what: str, *args: object) -> None:
        self.log.append((what, *args))
        machine().log.append(what)
        if what in self.errors:
            raise self.errors[what]

    def connect(self, pattern: Any, *, cmd_fd: int, loses_receives: bool) -> None:
        assert pattern.attr.srq is not None
        self.loses_receives = loses_receives
        self._do("connect")

    def attach(self, mgid: bytes, mlid: int) -> None:
        self._do("attach", mgid, mlid)

    def detach(self, mgid: bytes, mlid: int) -> None:
        self._do("detach", mgid, mlid)

    def rebind(self, gid: bytes, index: int) -> None:
        self._do("rebind", gid, index)

    def break_queue_pair(self) -> None:
        self._do("break")

    def events(self) -> int:
        pending, self.pending = self.pending, 0
        return pending

    def counters(self) -> dict[str, int]:
        return {"tx_doorbells": 3}

    def close(self) -> None:
        self._do("close fabric")


class Membership:
    """In place of the compiled Membership; `groups` has the joined groups."""

    refuse: OSError | None
    groups: dict[bytes, int]

    def __init__(self, ifindex: int) -> None:
        self.ifindex = ifindex

    def join(self, group: bytes) -> int:
        if (error := type(self).refuse) is not None:
            raise error
        type(self).groups[group] = len(type(self).groups)
        return type(self).groups[group]

    def leave(self, group: bytes, number: int) -> None:
        assert type(self).groups.pop(group) == number

    def close(self) -> None:
        machine().log.append("close membership")


class Connection:
    """In place of the compiled VerbsConnection."""

    refuse: OSError | None

    def __init__(self, fabric: Fabric, qp: Any, *, cmd_fd: int) -> None:
        if (error := type(self).refuse) is not None:
            raise error
        self.qp, self.qpn, self.native = qp, qp.qp_num, object()

    def program(self, receive_psn: int, path_mtu_bytes: int) -> None:
        machine().log.append(f"program {receive_psn:#x} {path_mtu_bytes}")

    def end(self) -> None:
        machine().log.append("end connection")


class Mesh:
    """In place of the compiled VerbsMesh."""

    refuse: OSError | None

    def __init__(self, pattern: Any, **options: Any) -> None:
        if (error := type(self).refuse) is not None:
            raise error
        self.options, self.native, self.event_fd = options, object(), 7

    def counters(self) -> dict[str, int]:
        return {"mesh_doorbells": 2}

    def close(self) -> None:
        machine().log.append("close mesh")


class LayoutError(Exception):
    pass


def install(monkeypatch: pytest.MonkeyPatch, enums: str = "libibverbs_enums") -> SimpleNamespace:
    """Install the fake pyverbs, with its enum module under this name; return the fake compiled module."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyverbs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(HERE)
    importlib.import_module("pyverbs.machine")
    monkeypatch.setitem(
        sys.modules, f"pyverbs.{enums}", importlib.import_module("pyverbs.constants")
    )
    Fabric.made, Fabric.refuse = [], None
    Membership.groups, Membership.refuse = {}, None
    Connection.refuse = Mesh.refuse = None
    return SimpleNamespace(
        VerbsFabric=Fabric,
        VerbsConnection=Connection,
        VerbsMesh=Mesh,
        MESH_RECEIVES=64,
        MESH_WINDOW=32,
        Membership=Membership,
        LayoutError=LayoutError,
        PORT_DOWN=1,
        PORT_CHANGED=2,
        FATAL=4,
        PKEYS_CHANGED=8,
        SUBNET_CHANGED=16,
    )


def uninstall() -> None:
    """Forget the fake, so that the next import loads the installed pyverbs."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyverbs"]:
        del sys.modules[name]


def machine() -> Any:
    return sys.modules["pyverbs.machine"].machine
