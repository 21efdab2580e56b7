# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu import` reads files that systemd-networkd itself accepts, and those that netplan writes."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.cli.main import main

pytestmark = pytest.mark.netns

# networkd in namespaces; it sees the files of DIRECTORY alone, and an /sys without udev's work
JUDGE: Final = """\
mount --make-rprivate / && mount -t tmpfs tmpfs /run && mount -o ro -t sysfs sysfs /sys &&
mkdir -p /run/systemd/netif /run/systemd/network && cp "$1"/* /run/systemd/network &&
chown systemd-network:systemd-network /run/systemd/netif &&
mount -t tmpfs tmpfs /etc/systemd/network && exec /lib/systemd/systemd-networkd
"""
NETDEV: Final = """\
[NetDev]
Name=ib0.8001
Kind=ipoib
MTUBytes=2K

[IPoIB]
PartitionKey=0x8001
Mode=connected
IgnoreUserspaceMulticastGroups=yes
"""
PARENT: Final = """\
[Match]
Name=ib0
Type=infiniband

[Link]
MTUBytes=4092
AllMulticast=yes
RequiredForOnline=no

[Network]
Description=storage
IPoIB=ib0.8001
LinkLocalAddressing=ipv6
Address=10.0.0.1/24
Gateway=10.0.0.254
DNS=10.0.0.53

[Address]
Address=fd00::1/64
DuplicateAddressDetection=none

[Route]
Destination=10.9.0.0/16
Gateway=10.0.0.253
Metric=100
"""
BOND: Final = {
    "device": ["mlx5_1", "mlx5_2"],
    "rail-primary": "mlx5_2",
    "rail-updelay": 500,
    "mode": "connected",
    "mtu": 65520,
    "address": ["10.1.0.1/24"],
}
CHILD: Final = "[Match]\nName=ib0.8001\n\n[Network]\nAddress=10.1.0.1/24\n"


def complaints(directory: Path) -> list[str]:
    """What networkd says against the files of a directory; a newer one says that it has loaded one."""
    unshare = [
        "unshare",
        "-m",
        "-n",
    ]  # each program replaces the one before, so we can end the last
    lines = []
    with subprocess.Popen(
        [*unshare, "sh", "-c", JUDGE, "sh", str(directory)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "SYSTEMD_LOG_TARGET": "console",
            "SYSTEMD_LOG_LEVEL": "debug",
            "container": "other",
        },
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if "Enumeration completed" in line:
                    break
            process.terminate()
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert "Enumeration completed" in lines[-1], lines
    about = [line for line in lines if "/run/systemd/network/" in line]
    return [line for line in about if not line.endswith(": Successfully loaded.\n")]


def imported(directory: Path, *paths: Path, bond: str = "") -> dict[str, Any]:
    """Import the files, and return the content of ib0.toml, which `config check` accepts."""
    ports = ["--device", "ib1=mlx5_1", "--device", "ib2=mlx5_2"] if bond else []
    words = ["--device", "mlx5_0/1", *ports, "--output", str(directory)]
    assert main(["import", *words, *map(str, paths)]) == 0
    assert main(["config", "check", str(directory / "ib0.toml")]) == 0
    if bond:
        assert tomllib.loads((directory / f"{bond}.toml").read_text()) == BOND
    return tomllib.loads((directory / "ib0.toml").read_text())


def test_files_that_networkd_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    units = tmp_path / "units"
    units.mkdir()
    (units / "10-child.netdev").write_text(NETDEV)
    (units / "20-ib0.network").write_text(PARENT)
    (units / "30-child.network").write_text(CHILD)
    assert complaints(units) == []
    assert imported(tmp_path / "out", *units.iterdir()) == {
        "device": "mlx5_0/1",
        "dad-ipv6": "off",
        "mtu": 4092,
        "address": ["10.0.0.1/24", "fd00::1/64"],
        "route": ["default,via=10.0.0.254", "10.9.0.0/16,via=10.0.0.253"],
        "allmulticast": "on",
        "child": {"0x8001": {"mode": "connected", "mtu": 2048, "address": ["10.1.0.1/24"]}},
    }
    lost = {line.split(": ")[1] for line in capsys.readouterr().err.splitlines()}
    assert lost == {"Network.DNS", "Route.Metric"}


def test_networkd_and_import_refuse_the_same_words(tmp_path: Path) -> None:
    units = tmp_path / "units"
    units.mkdir()
    (units / "10-child.netdev").write_text(
        NETDEV.replace("0x8001", "0x8000").replace("connected", "fast")
    )
    assert [line.split(":")[1] for line in complaints(units)] == ["7", "8"]
    assert main(["import", "--output", str(tmp_path), str(units / "10-child.netdev")]) == 0
    text = (tmp_path / "ib0.8001.toml").read_text()
    assert "10-child.netdev:7: IPoIB.PartitionKey: '0x8000' is no P_Key" in " ".join(
        line.removeprefix("#").strip() for line in text.splitlines()
    )
    assert "mode" not in tomllib.loads(text)


@pytest.mark.parametrize("renderer", ["networkd", "NetworkManager"])
def test_what_netplan_generates(tmp_path: Path, renderer: str) -> None:
    netplan = tmp_path / "etc/netplan/ib0.yaml"
    netplan.parent.mkdir(parents=True)
    netplan.write_text(
        f"network:\n  version: 2\n  renderer: {renderer}\n  ethernets:\n    ib0:\n"
        "      infiniband-mode: connected\n      mtu: 65520\n      addresses: [10.0.0.1/24]\n"
        "      routes:\n        - to: 10.9.0.0/16\n          via: 10.0.0.254\n"
        "    ib1: {infiniband-mode: connected}\n    ib2: {infiniband-mode: connected}\n"
        "  bonds:\n    bond0:\n      interfaces: [ib1, ib2]\n      mtu: 65520\n"
        "      addresses: [10.1.0.1/24]\n      parameters: {mode: active-backup, primary: ib2,"
        " mii-monitor-interval: 100, up-delay: 500}\n"
    )
    netplan.chmod(0o600)
    command = [shutil.which("netplan") or "netplan", "generate", "--root-dir", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    directory = {"networkd": "systemd/network", "NetworkManager": "NetworkManager"}[renderer]
    written = [
        path
        for path in (tmp_path / "run" / directory).rglob("*")
        if path.suffix in (".netdev", ".network", ".link", ".nmconnection")
    ]
    content = imported(tmp_path / "out", *written, bond="bond0")
    assert content == imported(tmp_path / "direct", netplan, bond="bond0")
    assert content == {
        "device": "mlx5_0/1",
        "mode": "connected",
        "mtu": 65520,
        "address": ["10.0.0.1/24"],
        "route": ["10.9.0.0/16,via=10.0.0.254"],
    }
