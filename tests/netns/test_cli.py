# SPDX-License-Identifier: BSD-2-Clause
"""The command line on real interfaces: its output, and the exit codes of errors."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.behind import reaches
from tests.netns.conftest import Until

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Sh = Callable[[Host, str], str]


def _one_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line on stderr, the only one besides log lines; never a traceback."""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("ipoibu: ")
    return lines[0]


# Errors at the start


def _up(cli: Cli, host: Host, *words: str, device: str = "soft:eth0") -> tuple[int, str]:
    done = cli(host, "up", "ib0", "--device", device, *words)
    assert done.stdout == ""
    return done.returncode, _one_line(done)


def test_an_unknown_device_is_exit_code_3(idle: NamespaceLab, cli: Cli) -> None:
    for device in ("soft:eth9", "mlx5_7"):
        code, line = _up(cli, idle.hosts[0], device=device)
        assert code == 3
        assert device in line


def test_a_device_that_is_down_says_how_to_bring_it_up(
    bare: NamespaceLab, cli: Cli, sh: Sh
) -> None:
    sh(bare.hosts[0], "ip link set eth0 down")
    code, line = _up(cli, bare.hosts[0])
    assert code == 1
    assert "ip link set eth0 up" in line


def test_a_device_without_ipv6_says_how_to_switch_it_on(bare: NamespaceLab, cli: Cli) -> None:
    host = bare.hosts[0]
    host.namespace.inside(lambda: Path("/proc/sys/net/ipv6/conf/eth0/disable_ipv6").write_text("1"))
    code, line = _up(cli, host)
    assert code == 1
    assert "net.ipv6.conf.eth0.disable_ipv6=0" in line
    doctor = cli(host, "doctor", "--device", "soft:eth0", "-j")
    assert doctor.returncode == 1
    failed = {each["check"] for each in json.loads(doctor.stdout) if each["status"] == "fail"}
    assert failed == {"device_ipv6", "link_local"}


def test_an_mtu_too_small_for_ipv6_refuses_ipv6_addresses_and_routes(
    bare: NamespaceLab, cli: Cli, sh: Sh
) -> None:
    host = bare.hosts[0]
    sh(host, "ip link set eth0 mtu 1350")  # carries 1272
    for words in (["--address", "fd00::1/64"], ["--route", "fd01::/48"]):
        code, line = _up(cli, host, *words)
        assert code == 1
        assert "1280" in line
        assert "1272" in line
    code, line = _up(cli, host, "--mtu", "1279", "--address", "fd00::1/64")
    assert code == 2
    assert "1280" in line


def test_an_mtu_that_the_port_does_not_carry_is_refused(
    bare: NamespaceLab, cli: Cli, sh: Sh
) -> None:
    sh(bare.hosts[0], "ip link set eth0 mtu 2200")
    code, line = _up(cli, bare.hosts[0], "--mtu", "4092")
    assert code == 1
    assert "a datagram of 2128, not 4096" in line


def test_a_name_that_is_taken_is_exit_code_1(lab: NamespaceLab, cli: Cli) -> None:
    code, line = _up(cli, lab.hosts[0])
    assert code == 1
    assert "'ib0' exists already" in line
    done = cli(lab.hosts[0], "up", "eth0", "--device", "soft:eth0")
    assert done.returncode == 1
    assert "'eth0' exists already" in _one_line(done)
    # The interface that has the name goes on undisturbed.
    assert lab.hosts[0].ask("show")["state"] == "up"


def test_a_device_that_another_interface_uses_is_exit_code_1(lab: NamespaceLab, cli: Cli) -> None:
    done = cli(lab.hosts[0], "up", "ib1", "--device", "soft:eth0")
    assert done.returncode == 1
    assert "4791" in _one_line(done)


@pytest.mark.parametrize(
    "words",
    [
        ["--address", "10.0.0.1/33"],
        ["--address", "10.0.0.1"],
        ["--pkey", "0x8000"],
        ["--pkey", "0x12345"],
        ["--mode", "unreliable"],
        ["--route", "10.0.0.1/8"],
        ["--mtu", "9"],
        ["--faults", "loss"],
    ],
    ids=" ".join,
)
def test_a_malformed_option_is_exit_code_2_and_is_named(
    idle: NamespaceLab, cli: Cli, words: list[str]
) -> None:
    code, line = _up(cli, idle.hosts[0], *words)
    assert code == 2
    assert words[0] in line


def test_a_route_that_the_kernel_refuses_carries_the_kernels_reason(
    idle: NamespaceLab, cli: Cli
) -> None:
    code, line = _up(cli, idle.hosts[0], "--route", "10.9.0.0/16,via=10.200.0.1")
    assert code == 1
    assert "10.9.0.0/16" in line
    assert "invalid gateway" in line


def _as_nobody(
    host: Host, *words: str, runtime: str | None = None
) -> subprocess.CompletedProcess[str]:
    # May read everything, because the checkout can lie in a directory of root's own.
    reads = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *reads]
    environment = ["env", f"IPOIBU_RUNTIME_DIR={runtime}"] if runtime is not None else []
    return host.run([*environment, *command, sys.executable, "-m", "ipoibu.cli", *words])


@pytest.mark.root
def test_without_privileges_nothing_starts_and_the_exit_code_is_4(idle: NamespaceLab) -> None:
    done = _as_nobody(idle.hosts[0], "up", "ib0", "--device", "soft:eth0")
    assert done.returncode == 4, done.stderr
    assert "root" in _one_line(done)


@pytest.mark.root
def test_another_user_may_not_look_at_an_interface(lab: NamespaceLab) -> None:
    done = _as_nobody(lab.hosts[0], "show", "ib0")
    assert done.returncode == 4
    assert "root" in _one_line(done)


IMPOSTOR: Final = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
while True:
    clients = [listener.accept()]
"""


@pytest.mark.root
def test_a_command_believes_no_socket_of_another_user(idle: NamespaceLab) -> None:
    """Any user can make /tmp/ipoibu-UID first."""
    host = idle.hosts[0]
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        directory = Path(place, f"net-{os.stat(host.namespace.path).st_ino}")
        directory.mkdir()
        for each in (Path(place), directory):
            each.chmod(0o777)
        stranger = ["setpriv", "--reuid=65533", "--clear-groups", sys.executable, "-c", IMPOSTOR]
        impostor = subprocess.Popen(
            [*stranger, str(directory / "ib0.sock")], stdout=subprocess.PIPE
        )
        try:
            assert impostor.stdout is not None
            assert impostor.stdout.readline() == b"listens\n"
            (directory / "ib0.sock").chmod(0o666)
            done = _as_nobody(host, "show", "ib0", runtime=place)
        finally:
            impostor.kill()
            impostor.communicate()
    assert done.returncode == 4, done.stderr
    assert "a socket of another user (65533)" in _one_line(done)


@pytest.mark.root
def test_the_doctor_without_privileges_says_so(idle: NamespaceLab) -> None:
    done = _as_nobody(idle.hosts[0], "doctor", "--device", "soft:eth0", "-j")
    assert done.returncode == 1
    findings = {each["check"]: each for each in json.loads(done.stdout)}
    assert findings["cap_net_admin"]["status"] == "fail"
    assert findings["device"]["status"] == "ok"


# Output


def test_the_line_at_the_start_names_hwaddr_mtu_and_addresses(lab: NamespaceLab) -> None:
    host = lab.hosts[0]
    shown = host.ask("show")
    line = host.log().splitlines()[0]
    assert line.startswith(f"ib0: up, hwaddr {shown['hwaddr']}, mtu 2044, addresses ")
    assert "10.77.0.1" in line
    assert "fd77::1" in line


def _json(cli: Cli, host: Host, *words: str) -> Any:
    done = cli(host, *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_show_has_stable_keys(lab: NamespaceLab, cli: Cli) -> None:
    (shown,) = _json(cli, lab.hosts[0], "show", "-j")
    assert {
        "name",
        "device",
        "port",
        "link_layer",
        "state",
        "mode",
        "mtu",
        "pkey",
        "qkey",
        "hwaddr",
        "qpn",
        "gid",
        "guid",
        "broadcast",
        "addresses",
    } <= set(shown)
    assert (shown["name"], shown["device"], shown["port"]) == ("ib0", "soft:eth0", 1)
    assert shown["state"] == "up"
    assert shown["mtu"] == 2044
    assert len(bytes.fromhex(shown["hwaddr"].replace(":", ""))) == 20
    # CONFORMANCE G4: the broadcast group of P_Key 0xffff, scope 2
    assert shown["broadcast"] == "00:ff:ff:ff:ff:12:40:1b:ff:ff:00:00:00:00:00:00:ff:ff:ff:ff"
    states = {entry["address"]: entry["state"] for entry in shown["addresses"]}
    assert states["10.77.0.1"] == states["fd77::1"] == "preferred"


def test_the_link_local_address_is_made_from_the_port_guid(lab: NamespaceLab, cli: Cli) -> None:
    """I1, I2: MAC 02:00:00:00:00:01 gives the GID fe80::ff:fe00:1 and the GUID 000000fffe000001."""
    (shown,) = _json(cli, lab.hosts[0], "show", "-j")
    assert shown["guid"] == "000000fffe000001"
    assert "fe80::200:ff:fe00:1" in {entry["address"] for entry in shown["addresses"]}


def test_neighbours_groups_and_counters_are_shown(
    lab: NamespaceLab, cli: Cli, until: Until
) -> None:
    first, second = lab.hosts
    until(lambda: reaches(first, str(second.ipv4.ip)))
    (neighbour,) = [n for n in _json(cli, first, "neigh", "-j") if n["ip"] == "10.77.0.2"]
    assert neighbour["hwaddr"] == second.ask("show")["hwaddr"]
    assert neighbour["dev"] == "ib0"
    underlay = f"underlay {neighbour['underlay']} REACHABLE"
    line = f"10.77.0.2 dev ib0 lladdr {neighbour['hwaddr']} {underlay}"
    until(lambda: reaches(first, "10.77.0.2") and line in cli(first, "neigh", "ib0").stdout)
    groups = _json(cli, first, "mcast", "-j")
    assert "ff12:401b:ffff::ffff:ffff" in {group["mgid"] for group in groups}
    assert "255.255.255.255" in cli(first, "mcast").stdout
    (counters,) = _json(cli, first, "stats", "-j")
    assert counters["stats"]["tx_packets"] > 0
    assert "tx_packets" in cli(first, "stats", "ib0").stdout
    assert "10.77.0.1 preferred" in cli(first, "show").stdout


def test_interfaces_of_one_name_in_two_namespaces_do_not_meet(lab: NamespaceLab, cli: Cli) -> None:
    hwaddrs = [_json(cli, host, "show", "ib0", "-j")[0]["hwaddr"] for host in lab.hosts]
    assert hwaddrs[0] != hwaddrs[1]


def test_the_doctor_finds_a_healthy_device_healthy(idle: NamespaceLab, cli: Cli) -> None:
    done = cli(idle.hosts[0], "doctor", "--device", "soft:eth0", "-j")
    findings = {each["check"]: each["status"] for each in json.loads(done.stdout)}
    assert done.returncode == 0, findings
    for name in ("tun", "cap_net_admin", "ipv6", "device", "link_local", "mtu", "udp_port"):
        assert findings[name] == "ok"


def test_the_doctor_finds_that_a_device_has_lost_its_multicast_and_the_remedy_helps(
    idle: NamespaceLab, cli: Cli
) -> None:
    host = idle.hosts[0]

    def finding() -> dict[str, str]:
        done = cli(host, "doctor", "--device", "soft:eth0", "-j")
        (found,) = (it for it in json.loads(done.stdout) if it["check"] == "multicast")
        return dict(found)

    assert finding()["status"] == "ok"
    lost = host.run(
        ["ip", "-6", "route", "del", "multicast", "ff00::/8", "dev", "eth0", "table", "local"]
    )
    assert lost.returncode == 0, lost.stderr
    found = finding()
    assert found["status"] == "fail"
    assert host.run(found["remedy"].split()).returncode == 0
    assert finding()["status"] == "ok"


def test_the_doctor_names_our_interface_that_holds_the_port(lab: NamespaceLab, cli: Cli) -> None:
    done = cli(lab.hosts[0], "doctor", "--device", "soft:eth0", "-j")
    assert done.returncode == 0
    findings = {each["check"]: each for each in json.loads(done.stdout)}
    assert findings["udp_port"]["status"] == "ok"
    assert findings["udp_port"]["detail"] == "ib0 runs on soft:eth0 and holds its UDP port"
    assert findings["udp_port"]["remedy"] == "ipoibu child add ib0 P_KEY"
    again = cli(lab.hosts[0], "up", "ib1", "--device", "soft:eth0")
    assert "`ipoibu child add` gives a running interface another partition" in again.stderr


def test_the_doctor_sees_the_port_that_another_program_holds(idle: NamespaceLab, cli: Cli) -> None:
    def hold() -> socket.socket:
        other = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        other.bind(("::", 4791))
        return other

    with idle.hosts[0].namespace.inside(hold):
        done = cli(idle.hosts[0], "doctor", "--device", "soft:eth0", "-j")
    findings = {each["check"]: each["status"] for each in json.loads(done.stdout)}
    assert findings["udp_port"] == "fail"


# Service manager and configuration file


def test_a_configuration_file_does_what_options_do(
    bare: NamespaceLab, cli: Cli, tmp_path: Path, sh: Sh
) -> None:
    host = bare.hosts[0]
    file = tmp_path / "ib0.toml"
    file.write_text('pkey = 0x8001\nmtu = 1500\naddress = "10.1.0.1/24"\nroute = "10.2.0.0/16"\n')
    host.options = ["--config", str(file)]
    host.start()
    shown = host.ask("show")
    assert (shown["pkey"], shown["mtu"]) == ("0x8001", 1500)
    assert "10.2.0.0/16 dev ib0 proto static scope link" in sh(host, "ip route")
    # Options win over the file: the host gives its own addresses with --address.
    assert "10.77.0.1/24 brd 10.77.0.255" in sh(host, "ip -4 address show ib0")


def test_the_children_of_a_configuration_file_come_up_with_the_interface(
    bare: NamespaceLab, tmp_path: Path, sh: Sh
) -> None:
    host = bare.hosts[0]
    file = tmp_path / "ib0.toml"
    file.write_text('[child.0x8001]\naddress = ["10.1.0.1/24"]\n[child.0x8002]\nmtu = 1280\n')
    host.options = ["--config", str(file)]
    host.start()
    names = [child["name"] for child in host.ask("child-list")]
    assert names == ["ib0.8001", "ib0.8002"]
    assert "10.1.0.1/24" in sh(host, "ip -4 address show ib0.8001")
    assert "mtu 1280" in sh(host, "ip link show ib0.8002")
    assert "ib0.8001: up" in host.log()


def test_the_control_socket_is_open_to_its_owner_alone(lab: NamespaceLab, runtime: Path) -> None:
    inode = os.stat(lab.hosts[0].namespace.path).st_ino
    path = runtime / f"net-{inode}" / "ib0.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        client.sendall(b"rubbish\n")
        assert not json.loads(client.recv(4096))["ok"]
