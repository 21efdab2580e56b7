# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu config check` and `ipoibu up` agree about a configuration file: 1000 of them, and some by name.

`up` runs to the point where it would open a device; from there on the real code opens the link on ports
that only have a name, up to their queue pair.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from ipoibu.base.addr import Gid
from ipoibu.base.device_name import GidKind, parse_soft
from ipoibu.base.errors import NoSuchDevice
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.base.limits import SOFT_DATAGRAM_MAX_BYTES
from ipoibu.cli.main import main
from ipoibu.daemon.config.interface_config import InterfaceConfig, faults
from ipoibu.endpoint.api.endpoint import Endpoint
from ipoibu.endpoint.datapath.datapath import mtus_of
from ipoibu.fabric.base import Capabilities
from ipoibu.fabric.mesh.peer_list import PeerSource
from ipoibu.fabric.plain import PlainPort
from ipoibu.fabric.verbs.node_type import is_iwarp
from ipoibu.host.kernel_interface import InterfaceSpec
from ipoibu.proto.groups.link_params import partition_params

SEED: Final = 46
CONFIGURATIONS: Final = 1000


class Reached(Exception):
    """The endpoint would make its queue pair."""

    def __init__(self, params: PartitionParams) -> None:
        self.params = params


class NamedPort(PlainPort):
    """The best port that a built-in HCA of this name can be; it has no queue pairs."""

    def __init__(self, device: str, number: int, *_: object) -> None:
        if number != 1:
            raise NoSuchDevice(f"{device}: the built-in HCA has port 1 only, not {number}")
        name = parse_soft(device)
        text = "::ffff:192.0.2.1" if name.kind is GidKind.IPV4 else "fe80::1"
        gid = name.gid or Gid.parse(text)
        self._info = PortInfo(
            device, 1, gid, b"\1" * 8, 4096, "Ethernet", name.netdev, SOFT_DATAGRAM_MAX_BYTES
        )
        self._sa = SimpleNamespace(held={}, submit=self._join, counters=dict) if name.umad else None

    def _join(self, work: object) -> Any:
        params = partition_params(self._info, mtu_bytes=4096)
        return SimpleNamespace(result=lambda: params)

    @property
    def info(self) -> PortInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        is_ipv6 = self._info.gid.ip.version == 6
        return Capabilities(rc=True, tx_queues=True, rails=True, multicast=is_ipv6)

    @property
    def sa(self) -> Any:
        return self._sa

    def active(self) -> bool:
        return True

    def open_ud(self, params: PartitionParams) -> Any:
        raise Reached(params)

    open_connected = open_ud

    def close(self) -> None:
        pass


class FakeDaemon:
    """Opens the interface and its children as far as their queue pairs."""

    def __init__(self, config: InterfaceConfig, **options: object) -> None:
        self._config = config

    def run(self) -> None:
        for config in (self._config, *self._config.children):
            endpoint = config.endpoint
            if endpoint.mesh is not None:
                if endpoint.mesh.key is not None:
                    endpoint.mesh.key.keep()
                PeerSource(endpoint.mesh, lambda locators: None)
            device: Any = SimpleNamespace(others=[None] * (endpoint.queues - 1))
            with pytest.raises(Reached) as reached:
                Endpoint(endpoint, device=device).open()
            mtu_of_datagrams, mtu = mtus_of(endpoint, reached.value.params)
            InterfaceSpec(
                name=config.name,
                mtu_bytes=mtu,
                guid=b"\1" * 8,
                addresses=config.address,
                routes=config.route,
                datagram_mtu_bytes=mtu_of_datagrams,
            ).check()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in {
        "good.conf": "A=0x7fff,ipoib:ALL=full;\nB=0x0001,ipoib,mtu=5:ALL=full;\n",
        "small.conf": "A=0x7fff,ipoib,mtu=2:ALL=full;\n",
        "noipoib.conf": "A=0x7fff:ALL=full;\nB=0x0001:ALL=full;\n",
        "broken.conf": "A=0x7fff,ipoib ALL=full;\n",
        "qkeys.conf": "A=0x7fff,ipoib:mgid=ff12:401b:ffff::1:2,Q_Key=0x99\nALL=full;\n",
        "peers": "192.0.2.1\n",
        "nopeers": "a b\n",
        "key": "0" * 64,
        "nokey": "secret",
    }.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    return tmp_path


@pytest.fixture
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ipoibu.cli.options.start_log", lambda level, name: None)
    monkeypatch.setattr(
        "ipoibu.daemon.privilege.namespace_helper", lambda *_: contextlib.nullcontext()
    )
    monkeypatch.setattr("ipoibu.daemon.daemon.Daemon", FakeDaemon)
    for module in ("api.life", "rails.rails"):
        monkeypatch.setattr(f"ipoibu.endpoint.{module}.open_port", NamedPort)


def values(files: Path) -> Mapping[str, list[Any]]:
    """Values of each option, good ones and bad ones; None leaves it out."""
    return {
        "device": [
            *["soft:eth0"] * 8,
            ["soft:eth0", "soft:eth1"],
            ["soft:eth0", "soft:eth0"],
            ["mlx4_0", "mlx4_0/1"],
            "soft:eth0,ipv4",
            "soft:eth0,192.0.2.1",
            "soft:eth0,fd00::1",
            "soft:eth0@ibsim0",
            ["soft:eth0@ibsim0", "soft:eth1@ibsim1"],
            ["soft:eth0", "soft:eth1@ibsim1"],
            "soft:eth0/2",
            "soft:",
            None,
        ],
        "pkey": [None, None, 0x8001, "0x0002", "0x8000"],
        "mode": [None, "datagram", "connected", "fast"],
        "mtu": [None, None, 67, 252, 600, 1279, 1280, 2044, 4092, 4093, 9140, 9141, 65520, 65521],
        "address": [None, ["10.0.0.1/24"], ["fd00::1/64"], "dhcp", ["dhcp6"], ["10.0.0.0/24"]],
        "route": [None, None, ["10.1.0.0/16"], ["fd01::/48"]],
        "partitions": [None] * 6
        + [str(files / f"{name}.conf") for name in ("good", "small", "noipoib", "broken", "qkeys")]
        + [str(files / "none.conf")],
        "peer": [None] * 5 + [["192.0.2.1"], ["a b"]],
        "peers-file": [None] * 5 + [str(files / name) for name in ("peers", "nopeers", "none")],
        "peer-key-file": [None] * 5 + [str(files / name) for name in ("key", "nokey", "none")],
        "queues": [None, None, None, 2, 17],
        "rail-mode": [None, None, "active-backup", "balance-xor"],
        "rail-primary": [None] * 4 + ["soft:eth0", "soft:eth9", "mlx4_0/2"],
        "allmulticast": [None] * 5 + ["on"],
        "ethernet": [None] * 6 + ["on"],
        "vlan": [None] * 6 + [["10=0x8003"], ["10=0x8003", "11=0x8003"]],
        "frames": [None, None, 64],
        "tun": [None, None, None, "attach"],
    }


def configuration(rng: random.Random, candidates: Mapping[str, list[Any]]) -> str:
    """A file with a device, a few options and perhaps children, which have a few options, too."""

    def lines(names: list[str]) -> Iterator[str]:
        for name in names:
            value = rng.choice(candidates[name])
            if value is not None:
                yield f"{name} = {json.dumps(value)}\n"

    others = [name for name in candidates if name != "device"]
    text = "".join(lines(["device", *rng.sample(others, rng.choice([0, 1, 2, 3, 4, 6]))]))
    own = ["mode", "mtu", "address", "route"]
    for pkey in rng.sample(["0x8001", "0x1", "0x8002", "0x0003", "0x0"], rng.choice([0, 0, 1, 2])):
        text += f"[child.{pkey}]\n" + "".join(lines(rng.sample(own, rng.randint(0, 2))))
    return text


def verdicts(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[list[str], str]:
    """The faults that `config check` prints, and the error of `up`."""
    capsys.readouterr()
    main(["config", "check", str(file)])
    checked = capsys.readouterr().out.splitlines()
    code = main(["up", "ib0", "--config", str(file)])
    error = capsys.readouterr().err
    assert (code == 0) == (error == ""), error
    return checked, error


@pytest.mark.usefixtures("stand_ins")
def test_config_check_and_up_agree_about_1000_configurations(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng, candidates = random.Random(SEED), values(files)
    file = files / "ib0.toml"
    seen: Counter[bool] = Counter()
    for _ in range(CONFIGURATIONS):
        text = configuration(rng, candidates)
        file.write_text(text)
        checked, error = verdicts(file, capsys)
        assert bool(checked) == bool(error), f"{text}\ncheck: {checked}\nup: {error}"
        assert not checked or any(
            line.split(": ", 1)[1].split(": ")[-1] in error for line in checked
        ), f"{text}\ncheck: {checked}\nup: {error}"
        seen[bool(checked)] += 1
    assert min(seen[True], seen[False]) > CONFIGURATIONS // 5, seen


@pytest.mark.parametrize(
    ("node_type", "text", "line"),
    [
        ("1: CA", "mtu = 65520", 2),
        ("1: CA", "mtu = 4092", 0),
        ("1: CA", "mtu = 65520\nmode = 'connected'", 0),
        ("1: CA", "[child.0x8001]\nmtu = 9000", 3),
        ("4: RNIC", "mtu = 65520", 0),
        (None, "mtu = 65520", 2),  # `up` refuses the device
        (None, "mtu = 65520\nwait = 30", 0),  # ... or waits for it
    ],
)
def test_an_rdma_device_has_an_mtu_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, node_type: str | None, text: str, line: int
) -> None:
    if node_type is not None:
        (tmp_path / "mlx5_0").mkdir()
        (tmp_path / "mlx5_0" / "node_type").write_text(f"{node_type}\n")
    monkeypatch.setattr(
        "ipoibu.daemon.config.interface_config.is_iwarp", lambda name: is_iwarp(name, root=tmp_path)
    )
    file = tmp_path / "ib0.toml"
    file.write_text(f"device = 'mlx5_0'\n{text}\n")
    assert [(fault.line, "at most 4092" in fault.text) for fault in faults(file)] == (
        [(line, True)] if line else []
    )


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("mtu = 65520", "2: mtu: --mtu 65520 is too large for datagram mode: choose at most 9140"),
        ("[child.0x8001]\nmtu = 65520", "3: child.0x8001.mtu: --mtu 65520 is too large"),
        ("mode = 'connected'\n[child.0x1]\nmode = 'datagram'\nmtu = 9141", "5: child.0x1.mtu: "),
        ("allmulticast = 'on'", "2: allmulticast: --allmulticast needs a subnet administrator"),
        ("partitions = 'FILES/none.conf'", "2: partitions: FILES/none.conf: No such file"),
        ("partitions = 'FILES/small.conf'\nmtu = 600", "2: partitions: FILES/small.conf:1: the l"),
        (
            "partitions = 'FILES/small.conf'\n[child.0x8001]",
            "2: partitions: FILES/small.conf has no partition 0x8001: add the line: ",
        ),
        (
            "partitions = 'FILES/small.conf'\naddress = 'fd00::1/64'",
            "2: partitions: FILES/small.conf:1: the link carries an MTU of 508, too small for fd00::",
        ),
        ("peer-key-file = 'FILES/nokey'", "2: peer-key-file: FILES/nokey:1: no key: "),
        ("peers-file = 'FILES/nopeers'", "2: peers-file: FILES/nopeers:1: "),
        (
            "ethernet = 'on'\nvlan = ['1=0x8101', '2=0x8102']\n"
            + "".join(f"[child.{0x8001 + n:#x}]\n" for n in range(126)),
            "3: vlan: --vlan: more than 127 partitions",
        ),
    ],
)
def test_what_up_refuses_has_its_line_in_config_check(
    files: Path, capsys: pytest.CaptureFixture[str], text: str, fault: str
) -> None:
    file = files / "ib0.toml"
    file.write_text(f"device = 'soft:eth0'\n{text.replace('FILES', str(files))}\n")
    (line,), error = verdicts(file, capsys)
    assert line.startswith(f"{file}:{fault.replace('FILES', str(files))}")
    assert line.split(": ", 2)[2] in error
