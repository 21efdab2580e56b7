# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu import`: its output and exit codes, and keyfiles that NetworkManager itself wrote."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from ipoibu.cli.main import main

KEYFILE = "[connection]\ntype=infiniband\ninterface-name={name}\n[ipv4]\ndns=10.0.0.53;\n"

Capture = pytest.CaptureFixture[str]


def test_one_interface_goes_to_standard_output_and_the_losses_to_stderr(
    tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "a").write_text(KEYFILE.format(name="ib0"))
    assert main(["import", "--device", "mlx5_0/1", str(tmp_path / "a")]) == 0
    out, err = capsys.readouterr()
    assert tomllib.loads(out) == {"device": "mlx5_0/1"}
    assert err.splitlines() == [
        f"{tmp_path}/a:5: ipv4.dns: ipoibu sets no name servers: tell resolvectl, or write"
        " /etc/resolv.conf: `resolvectl dns ib0 10.0.0.53`"
    ]
    comment = " ".join(line.removeprefix("#").strip() for line in out.splitlines()[:6])
    assert err.strip() in comment


def test_a_check_writes_nothing_and_its_code_says_whether_something_is_lost(
    tmp_path: Path, capsys: Capture
) -> None:
    text = KEYFILE.format(name="ib0")
    out = tmp_path / "out"
    words = ["import", "--check", "--output", str(out), str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "a").write_text(text)
    (tmp_path / "b").write_text("[connection]\ntype=ethernet\n")
    assert main(words) == 1
    lost = f"{tmp_path}/a:5: ipv4.dns:"
    assert capsys.readouterr().err.split("\n")[1].startswith(lost)
    (tmp_path / "a").write_text(text.partition("[ipv4]")[0])
    assert main(words) == 0  # a connection of Ethernet is none of ours
    assert capsys.readouterr() == (
        "",
        f"{tmp_path}/b: a connection of type ethernet, not infiniband\n",
    )
    (tmp_path / "c").write_text(text.replace("ib0", "ib1"))
    assert main([*words[:2], str(tmp_path / "a"), str(tmp_path / "c")]) == 1
    assert not out.exists()


def test_without_a_device_the_file_is_refused_in_words(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a").write_text(KEYFILE.format(name="ib0"))
    out = tmp_path / "out"
    assert main(["import", "--output", str(out), str(tmp_path / "a")]) == 0
    assert capsys.readouterr().out == f"{out}/ib0.toml\n"
    assert main(["config", "check", f"{out}/ib0.toml"]) == 2
    assert "no device given: use --device" in capsys.readouterr().out
    text = (out / "ib0.toml").read_text()
    assert "# Name the device" in text
    (out / "ib0.toml").write_text(text.replace("# device", "device"))
    assert main(["config", "check", f"{out}/ib0.toml"]) == 0


def test_several_interfaces_need_a_directory_and_overwrite_nothing(
    tmp_path: Path, capsys: Capture
) -> None:
    for name in ("ib0", "ib1"):
        (tmp_path / name).write_text(KEYFILE.format(name=name))
    files = [str(tmp_path / "ib0"), str(tmp_path / "ib1")]
    assert main(["import", *files]) == 2
    assert "the files describe ib0, ib1: give --output DIR" in capsys.readouterr().err
    words = ["import", "--output", str(tmp_path), "--device", "ib0=mlx5_0", "--device", "mlx5_1"]
    assert main([*words, *files]) == 0
    for name, device in (("ib0", "mlx5_0"), ("ib1", "mlx5_1")):
        assert tomllib.loads((tmp_path / f"{name}.toml").read_text())["device"] == device
    (tmp_path / "ib0.toml").unlink()
    assert main([*words, *files]) == 2
    assert f"{tmp_path}/ib1.toml exists" in capsys.readouterr().err
    assert not (tmp_path / "ib0.toml").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["a"], "none of the files describes an IPoIB interface"),
        (["none"], "No such file or directory"),
        (["--device", "b", "--device", "c", "a"], "--device c: the device is given twice"),
    ],
)
def test_a_fault_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture, words: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("[connection]\ntype=ethernet\n")
    assert main(["import", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("ipoibu: ")
    assert main(["import", *words]) == 2
    assert why in capsys.readouterr().err


def nmcli(path: Path, *words: str, kind: str = "infiniband") -> Path:
    """Write the keyfile of a connection; `nmcli --offline` needs no daemon, and touches no file."""
    command = ["nmcli", "--offline", "connection", "add", "type", kind, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    path.write_text(done.stdout)
    return path


@pytest.mark.skipif(shutil.which("nmcli") is None, reason="no nmcli here (package network-manager)")
def test_keyfiles_of_networkmanager(tmp_path: Path, capsys: Capture) -> None:
    parent = nmcli(
        tmp_path / "ib0.nmconnection",
        *("con-name", "storage", "ifname", "ib0", "transport-mode", "connected", "mtu", "65520"),
        *("ipv4.method", "manual", "ipv4.addresses", "10.0.0.1/24,10.0.1.1/24"),
        *("ipv4.gateway", "10.0.0.254", "ipv4.dns", "10.0.0.53", "ipv4.dad-timeout", "200"),
        *("ipv4.routes", "10.9.0.0/16 10.0.0.253, 10.8.0.0/16 10.0.0.252 100 onlink=true"),
        *("ipv6.method", "manual", "ipv6.addresses", "fd00::1/64", "ipv6.gateway", "fd00::fe"),
        *("ipv6.routes", "fd09::/64 fd00::fd", "connection.zone", "trusted"),
    )
    child = nmcli(
        tmp_path / "child.nmconnection",
        *("con-name", "child", "ifname", "ib0.8001", "infiniband.parent", "ib0"),
        *("infiniband.p-key", "0x8001", "transport-mode", "connected", "mtu", "2044"),
        *("ipv4.method", "manual", "ipv4.addresses", "10.1.0.1/24", "ipv6.method", "link-local"),
    )
    out = tmp_path / "out"
    words = ["import", "--device", "mlx5_0/1", "--output", str(out), str(parent), str(child)]
    assert main(words) == 0
    lost = [line.partition("nmconnection:")[2] for line in capsys.readouterr().err.splitlines()]
    assert [line.split(": ")[1] for line in lost] == [
        "connection.zone",
        "ipv4.dns",
        "ipv4.route2",
        "ipv4.route2_options",
    ]
    assert main(["config", "check", f"{out}/ib0.toml"]) == 0
    content = tomllib.loads((out / "ib0.toml").read_text())
    assert sorted(content.pop("route")) == [
        "10.8.0.0/16,via=10.0.0.252",
        "10.9.0.0/16,via=10.0.0.253",
        "default,via=10.0.0.254",
        "default,via=fd00::fe",
        "fd09::/64,via=fd00::fd",
    ]
    assert content == {
        "device": "mlx5_0/1",
        "mode": "connected",
        "dad-ipv4": "on",
        "mtu": 65520,
        "address": ["10.0.0.1/24", "10.0.1.1/24", "fd00::1/64"],
        "child": {"0x8001": {"mtu": 2044, "address": ["10.1.0.1/24"]}},
    }


@pytest.mark.skipif(shutil.which("nmcli") is None, reason="no nmcli here (package network-manager)")
def test_a_bond_and_a_nameless_child_of_networkmanager(tmp_path: Path, capsys: Capture) -> None:
    nmcli(tmp_path / "child", "con-name", "storage", "p-key", "32773", "parent", "ib7")
    nmcli(tmp_path / "parent", "con-name", "main", "ifname", "ib7")
    options = "bond.options", "mode=active-backup,miimon=100,primary=ib1"
    address = "ipv4.method", "manual", "ipv4.addresses", "10.0.0.1/24", "ipv6.method", "ignore"
    words = *options, *address, "802-3-ethernet.mtu", "2000"
    nmcli(tmp_path / "bond", "con-name", "b", "ifname", "bond0", *words, kind="bond")
    for name in ("ib0", "ib1"):
        path = nmcli(
            tmp_path / name,
            *("con-name", f"port-{name}", "ifname", name, "master", "bond0", "slave-type", "bond"),
        )
        path.write_text(
            path.read_text().partition("Warning")[2].partition("\n")[2] or path.read_text()
        )
    out = tmp_path / "out"
    devices = ("--device", "ib0=mlx5_0", "--device", "ib1=mlx5_1", "--device", "ib7=mlx5_7")
    assert main(["import", *devices, "--output", str(out), str(tmp_path)]) == 0
    assert {line.split(": ")[1] for line in capsys.readouterr().err.splitlines()} == {"ipv6.method"}
    contents = {path.name: tomllib.loads(path.read_text()) for path in out.iterdir()}
    child = contents["ib7.toml"]["child"]
    assert list(child) == ["0x8005"]
    assert "name" not in child["0x8005"]
    assert contents["bond0.toml"] == {
        "device": ["mlx5_0", "mlx5_1"],
        "rail-primary": "mlx5_1",
        "mode": "datagram",
        "mtu": 2000,
        "address": ["10.0.0.1/24"],
    }
