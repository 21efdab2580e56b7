# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu@NAME.service` under a real systemd, which is the first process of namespaces of its own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ipoibu.base.processes import children_of
from ipoibu.sandbox import landlock
from ipoibu.sandbox.errors import Unavailable

pytestmark = [
    pytest.mark.netns,
    pytest.mark.root,
    pytest.mark.beside,  # the tests share one systemd, and follow each other
    pytest.mark.skipif(not Path("/lib/systemd/systemd").exists(), reason="no systemd here"),
]

Until = Callable[..., Any]
PROJECT: Final = Path(__file__).parents[2]
BOOT: Final = Path(__file__).with_name("boot_systemd.sh")
SUSPEND: Final = Path(__file__).with_name("suspend_thread.py")
PATIENCE_S: Final = 60.0  # also on a busy machine
_NAMESPACES: Final = ("-m", "-n", "-p", "-u", "-i", "-C", "-r", "-w")
CONFIG: Final = """\
device = "soft:eth0"
address = ["10.0.0.1/24"]
log-level = "info"

[child.0x8001]
address = ["10.1.0.1/24"]
"""


class Machine:
    """A systemd in namespaces; `run` runs a command beside it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pid = ""
        self.root = Path()

    def has_booted(self) -> bool:
        assert self._process.poll() is None, "systemd did not start"
        children = children_of(self._process.pid)  # of `unshare`
        self._pid = str(children[0]) if children else ""
        self.root = Path(f"/proc/{self._pid}/root")
        states = ("running", "degraded")  # a unit of the machine's may fail here
        return bool(self._pid) and self.run("systemctl is-system-running") in states

    def end(self) -> None:
        """End systemd, the first process of its namespace, and all others with it."""
        if self._pid:
            os.kill(int(self._pid), signal.SIGKILL)
        else:
            self._process.kill()
        self._process.wait()

    def run(self, command: str) -> str:
        enter = ["nsenter", "-t", self._pid, *_NAMESPACES, "--"]
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "container": "other"}
        pipe = subprocess.PIPE
        with subprocess.Popen(
            [*enter, "sh", "-c", command],
            stdout=pipe,
            stderr=pipe,
            text=True,
            env=env,
            process_group=0,
        ) as process:
            try:
                return "".join(process.communicate(timeout=PATIENCE_S)).strip()
            except BaseException:  # else what `nsenter` started keeps the pipes, and we wait for it
                os.killpg(process.pid, signal.SIGKILL)
                raise

    def property(self, name: str) -> str:
        return self.run(f"systemctl show -P {name} ipoibu@ib0")

    def links(self) -> set[str]:
        shown = self.run("ip -o link show up").splitlines()
        return {line.split(": ")[1].partition("@")[0] for line in shown}

    def journal(self, words: str) -> str:
        """The messages of a unit, as far as they have been sent to the journal."""
        return self.run(f"journalctl --sync; journalctl -o cat --no-pager -u {words}")

    def log(self) -> str:
        return self.journal("ipoibu@ib0")


@pytest.fixture(scope="module")
def cgroup(tmp_path_factory: pytest.TempPathFactory, until: Until) -> Iterator[Path]:
    """A cgroup for systemd alone, in a mount of cgroup2 that the test makes."""
    mounted = tmp_path_factory.mktemp("cgroup2")
    subprocess.run(["mount", "-t", "cgroup2", "cgroup2", mounted], check=True)
    try:
        own = Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        made = mounted / own / f"ipoibu-test-{os.getpid()}"
        made.mkdir()
        yield made
        until(lambda: _is_removed(made), PATIENCE_S)  # its processes end just after they are killed
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


def _is_removed(cgroup: Path) -> bool:
    for directory, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
    return not cgroup.exists()


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory, cgroup: Path, until: Until
) -> Iterator[Machine]:
    directory = tmp_path_factory.mktemp("systemd")
    command = shutil.which("ipoibu", path=str(Path(sys.executable).parent))
    assert command is not None
    unshare = "unshare -p -f -m -n -u -i -C --kill-child"
    join = f'echo $$ >{cgroup}/cgroup.procs; exec {unshare} "$@"'
    with open(directory / "console", "wb") as console:
        process = subprocess.Popen(
            ["sh", "-c", join, "sh", "sh", BOOT, directory, PROJECT, command],
            stdout=console,
            stderr=console,
        )
    machine = Machine(process)
    try:
        until(machine.has_booted, PATIENCE_S)
        (machine.root / "etc/ipoibu/ib0.toml").write_text(CONFIG)
        yield machine
    finally:
        machine.end()


@pytest.fixture(scope="module")
def cable(machine: Machine) -> None:
    """A cable from eth0 to another host, which the first test has laid unless it was left out."""
    if "eth0" not in machine.links():
        lay_cable(machine)


def lay_cable(machine: Machine) -> None:
    machine.run(
        "ip netns add peer; ip link add eth0 type veth peer eth1 netns peer; ip link set eth0 up;"
        " ip -n peer link set lo up; ip -n peer link set eth1 up"
    )


@pytest.fixture
def service(machine: Machine, cable: None) -> None:
    """The service runs; does nothing where the tests before have left it so."""
    machine.run("systemctl start ipoibu@ib0")
    assert machine.property("ActiveState") == "active"


def test_the_service_waits_for_a_device_that_appears_late(machine: Machine, until: Until) -> None:
    machine.run("systemctl start --no-block ipoibu@ib0")
    until(lambda: "eth0: no such network device" in machine.log(), PATIENCE_S)
    lay_cable(machine)
    until(lambda: machine.property("ActiveState") == "active", PATIENCE_S)
    assert {"ib0", "ib0.8001"} <= machine.links()
    until(lambda: machine.property("StatusText") == "up", PATIENCE_S)  # IPv6 is checked, too
    assert "10.1.0.1/24" in machine.run("ip -4 address show ib0.8001")
    errors = machine.journal("ipoibu@ib0 -p err SYSLOG_IDENTIFIER=ipoibu").splitlines()
    assert set(errors) == {"ipoibu: soft:eth0: no such network device; `ip link` lists them"}
    lines = machine.journal("ipoibu@ib0 IPOIBU_INTERFACE=ib0.8001 PRIORITY=6").splitlines()
    assert lines
    assert all(line.startswith("ib0.8001: ") for line in lines)


@pytest.mark.usefixtures("service")
def test_the_unit_permits_every_stage_of_the_sandbox(machine: Machine) -> None:
    try:
        stages = f"Landlock version {landlock.version()}, seccomp"
    except Unavailable as error:
        pytest.skip(str(error))
    assert f"ib0: sandbox: capabilities net_admin, no_new_privs, {stages}" in machine.log()


@pytest.fixture(scope="module")
def peer(machine: Machine, cable: None, until: Until) -> str:
    """The prefix of commands on another host of the link, 10.0.0.2 and 10.1.0.2."""
    inside = "ip netns exec peer "
    up = "ipoibu up ib9 --device soft:eth1 --address 10.0.0.2/24 --address fd00::2/64"
    machine.run(f"{inside}setsid {up} >/tmp/peer 2>&1 &")
    until(lambda: "ib9: up" in machine.run("cat /tmp/peer"), PATIENCE_S)
    machine.run(f"{inside}ipoibu child add ib9 0x8001 --address 10.1.0.2/24")
    return inside


def hwaddr(machine: Machine, name: str = "ib0") -> str:
    return str(json.loads(machine.run(f"ipoibu show {name} -j"))[0]["hwaddr"])


@pytest.mark.usefixtures("service")
def test_a_restart_keeps_the_interface_and_the_streams_over_it(
    machine: Machine, peer: str, until: Until
) -> None:
    """Applications and peers see a pause: packets wait in the TUN and in the socket of the HCA."""
    machine.run("ip address add 10.7.0.1/24 dev ib0; ip route add 10.8.0.0/16 via 10.0.0.2")
    links, before = machine.links(), (hwaddr(machine), hwaddr(machine, "ib0.8001"))
    index = machine.run("cat /sys/class/net/ib0/ifindex")
    machine.run("setsid iperf3 -s -D -I /tmp/iperf3.pid")
    until(lambda: ":5201 " in machine.run("ss -ltn"), PATIENCE_S)
    machine.run(f"{peer} setsid iperf3 -c 10.0.0.1 -b 10M -t 6 >/tmp/stream 2>&1 &")
    machine.run(f"{peer} setsid ping -q -i 0.1 -c 300 -W 5 10.0.0.1 >/tmp/ping 2>&1 &")
    for _ in range(2):
        machine.run("systemctl restart ipoibu@ib0")
        assert machine.property("ActiveState") == "active"
        # The peer asks whether we are there before the next pause, which is long on a busy machine
        until(lambda: " 0% packet loss" in machine.run("ping -c 1 -W 1 10.0.0.2"), PATIENCE_S)
    assert machine.links() == links
    assert (hwaddr(machine), hwaddr(machine, "ib0.8001")) == before
    assert machine.run("cat /sys/class/net/ib0/ifindex") == index
    assert "10.7.0.1/24" in machine.run("ip address show ib0")
    assert "via 10.0.0.2" in machine.run("ip route show 10.8.0.0/16")
    until(lambda: "received" in machine.run("cat /tmp/ping"), PATIENCE_S)
    pings = machine.run("cat /tmp/ping")
    assert int(re.findall(r"(\d+) received", pings)[0]) > 240, pings
    until(lambda: "receiver" in machine.run("cat /tmp/stream"), PATIENCE_S)
    machine.run("kill $(cat /tmp/iperf3.pid)")


def is_connected(machine: Machine) -> bool:
    """Ask for a connection to the peer, and return whether there is one."""
    machine.run("ping -c 1 -W 1 10.0.0.2")
    shown = json.loads(machine.run("ipoibu conn ib0 -j"))
    return ("active", "live") in [(each["role"], each["state"]) for each in shown]


@pytest.mark.usefixtures("service")
def test_a_restart_in_connected_mode_keeps_the_streams_too(
    machine: Machine, peer: str, until: Until
) -> None:
    """The connections end, and come back with the next packets; a reload has changed the mode before."""
    config = machine.root / "etc/ipoibu/ib0.toml"
    config.write_text(f'mode = "connected"\n{CONFIG}')
    pid = machine.property("MainPID")
    machine.run(f"systemctl reload ipoibu@ib0; {peer} ipoibu set ib9 mode connected")
    assert machine.property("MainPID") == pid
    until(lambda: is_connected(machine), PATIENCE_S)
    before = (hwaddr(machine), hwaddr(machine, "ib0.8001"))
    machine.run("setsid iperf3 -s -1 -D")
    until(lambda: ":5201 " in machine.run("ss -ltn"), PATIENCE_S)
    machine.run(f"{peer} setsid iperf3 -c 10.0.0.1 -b 10M -t 5 >/tmp/stream 2>&1 &")
    machine.run(f"{peer} setsid ping -q -i 0.1 -c 200 -W 5 10.0.0.1 >/tmp/ping 2>&1 &")
    machine.run("systemctl restart ipoibu@ib0")
    assert machine.property("ActiveState") == "active"
    assert (hwaddr(machine), hwaddr(machine, "ib0.8001")) == before
    until(lambda: "received" in machine.run("cat /tmp/ping"), PATIENCE_S)
    pings = machine.run("cat /tmp/ping")
    received = int(re.findall(r"(\d+) received", pings)[0])
    assert received >= 180, pings  # what was on its way in a connection is lost
    until(lambda: "receiver" in machine.run("cat /tmp/stream"), PATIENCE_S)
    until(lambda: is_connected(machine), PATIENCE_S)
    config.write_text(CONFIG)
    machine.run(f"systemctl reload ipoibu@ib0; {peer} ipoibu set ib9 mode datagram")
    until(lambda: " 0% packet loss" in machine.run("ping -c 1 -W 1 10.0.0.2"), PATIENCE_S)


@pytest.mark.usefixtures("service")
def test_a_restart_follows_the_file(machine: Machine, until: Until) -> None:
    """A changed address replaces the one of the file, and a child that the file does not name ends."""
    machine.run("ip address replace 10.7.0.1/24 dev ib0")  # which the file does not name
    config = machine.root / "etc/ipoibu/ib0.toml"
    config.write_text('device = "soft:eth0"\naddress = ["10.0.0.3/24"]\n')
    machine.run("systemctl restart ipoibu@ib0")
    until(lambda: machine.links() == {"lo", "eth0", "ib0"}, PATIENCE_S)
    shown = machine.run("ip -4 -o address show dev ib0 scope global")
    assert re.findall(r"inet (\S+)", shown) == ["10.7.0.1/24", "10.0.0.3/24"]
    config.write_text(CONFIG)
    machine.run("systemctl restart ipoibu@ib0; ipoibu child del ib0 0x8001")
    # systemd drops the child's TUN, too
    until(lambda: machine.links() == {"lo", "eth0", "ib0"}, PATIENCE_S)


@pytest.mark.usefixtures("service")
def test_a_reload_takes_over_what_costs_no_packet(machine: Machine, until: Until) -> None:
    machine.run("ip address replace 10.7.0.1/24 dev ib0")
    config = machine.root / "etc/ipoibu/ib0.toml"
    pid = machine.property("MainPID")
    changed = CONFIG.replace("10.0.0.1/24", "10.0.0.4/24").replace("0x8001", "0x8002")
    config.write_text(f"mtu = 1400\nqueues = 2\n{changed}")
    assert machine.run("systemctl reload ipoibu@ib0; echo $?") == "0"
    assert machine.property("MainPID") == pid
    until(lambda: machine.links() == {"lo", "eth0", "ib0", "ib0.8002"}, PATIENCE_S)
    shown = machine.run("ip -4 -o address show dev ib0 scope global")
    assert re.findall(r"inet (\S+)", shown) == ["10.7.0.1/24", "10.0.0.4/24"]
    assert "mtu 1400" in machine.run("ip link show ib0")
    assert "ib0: queues: a change needs a restart" in machine.log()
    # A faulty file: `systemctl reload` fails, and the journal has the line
    config.write_text("mtu = 5\n")
    machine.run("systemctl reload ipoibu@ib0")
    assert "/etc/ipoibu/ib0.toml:1: mtu: '5' is no MTU" in machine.log()
    assert machine.property("MainPID") == pid
    assert "mtu 1400" in machine.run("ip link show ib0")
    # SIGHUP does the same
    config.write_text(CONFIG)
    machine.run(f"kill -{signal.SIGHUP:d} {pid}")
    until(lambda: machine.links() == {"lo", "eth0", "ib0", "ib0.8001"}, PATIENCE_S)
    until(lambda: machine.property("ActiveState") == "active", PATIENCE_S)
    assert machine.run("ipoibu reload ib0") == "ib0: nothing has changed"
    assert machine.property("MainPID") == pid


@pytest.mark.usefixtures("service")
def test_a_service_that_is_killed_comes_back_and_leaves_nothing(
    machine: Machine, until: Until
) -> None:
    before = machine.property("MainPID")
    machine.run(f"kill -{signal.SIGKILL:d} {before}")
    until(lambda: machine.property("MainPID") not in (before, "0"), PATIENCE_S)
    until(lambda: machine.property("ActiveState") == "active", PATIENCE_S)
    assert {"ib0", "ib0.8001"} <= machine.links()
    machine.run("systemctl stop ipoibu@ib0")
    assert machine.property("Result") == "success"
    # systemd drops the TUN from its store a little later
    until(lambda: machine.links() == {"lo", "eth0"}, PATIENCE_S)
    assert machine.run("find /run/ipoibu -name 'ib0*'") == ""


@pytest.fixture
def watched(machine: Machine, service: None) -> Iterator[str]:
    """The process of a service whose watchdog does not wait long."""
    directory = machine.root / "etc/systemd/system/ipoibu@ib0.service.d"
    directory.mkdir()
    (directory / "watchdog.conf").write_text("[Service]\nWatchdogSec=8\n")
    machine.run("systemctl daemon-reload; systemctl restart ipoibu@ib0")
    try:
        yield machine.property("MainPID")
    finally:
        shutil.rmtree(directory)
        machine.run("systemctl daemon-reload; systemctl stop ipoibu@ib0")


def test_the_watchdog_ends_a_process_that_hangs_and_starts_it_again(
    machine: Machine, watched: str, until: Until
) -> None:
    machine.run(f"kill -{signal.SIGSTOP:d} {watched}")
    until(lambda: machine.property("MainPID") not in (watched, "0"), PATIENCE_S)
    until(lambda: machine.property("ActiveState") == "active", PATIENCE_S)
    assert "Fatal Python error: Aborted" in machine.log()
    assert {"ib0", "ib0.8001"} <= machine.links()


def test_the_watchdog_notices_that_only_a_pump_hangs(
    machine: Machine, watched: str, until: Until
) -> None:
    suspend = f"{sys.executable} {SUSPEND} {watched} ipoibu-pump"
    machine.run(f"{suspend} >/dev/null 2>&1 &")
    until(lambda: machine.property("MainPID") not in (watched, "0"), PATIENCE_S)
    until(lambda: machine.property("ActiveState") == "active", PATIENCE_S)
    assert "no progress for 2.0 s" in machine.log()


def test_a_faulty_file_ends_the_start_with_one_error_in_the_journal(machine: Machine) -> None:
    (machine.root / "etc/ipoibu/ib1.toml").write_text("mtu = 5\n")
    machine.run("systemctl start ipoibu@ib1")
    assert machine.run("systemctl is-failed ipoibu@ib1") == "failed"
    errors = machine.journal("ipoibu@ib1 -p err SYSLOG_IDENTIFIER=ipoibu")
    assert errors.splitlines() == [
        "ipoibu: /etc/ipoibu/ib1.toml:1: mtu: '5' is no MTU: expected 68 to 65520 bytes"
    ]


@pytest.mark.usefixtures("cable")
def test_the_service_of_an_ordinary_user_starts_again(machine: Machine) -> None:
    (machine.root / "etc/ipoibu/ib2.toml").write_text(f'user = "nobody"\nmtu = 1000\n{CONFIG}')
    for action in ("start", "restart"):
        machine.run(f"systemctl {action} ipoibu@ib2")
        assert machine.run("systemctl is-active ipoibu@ib2") == "active"
    pid = machine.run("systemctl show -P MainPID ipoibu@ib2")
    assert machine.run(f"ps -o user= -p {pid}") == "nobody"
    assert "IPv6 is off" in machine.journal("ipoibu@ib2")
    machine.run("systemctl stop ipoibu@ib2")


@pytest.mark.usefixtures("cable")
def test_a_service_with_a_drop_in_uses_other_namespaces(machine: Machine, until: Until) -> None:
    """docs/use/rootless.md: the option `netns`, and a move while it runs; the unit alone permits neither."""
    machine.run("ip netns add blue; ip netns add green")
    (machine.root / "etc/ipoibu/ib3.toml").write_text(f'netns = "blue"\n{CONFIG}')
    machine.run("systemctl start ipoibu@ib3")
    assert machine.run("systemctl is-failed ipoibu@ib3") == "failed"
    journal = machine.journal("ipoibu@ib3")
    assert "--netns blue: entering it needs CAP_SYS_ADMIN" in journal
    directory = machine.root / "etc/systemd/system/ipoibu@ib3.service.d"
    directory.mkdir()
    (directory / "netns.conf").write_text(
        "[Service]\nCapabilityBoundingSet=CAP_SYS_ADMIN CAP_NET_BROADCAST\nRestrictNamespaces=net\n"
    )
    machine.run("systemctl daemon-reload; systemctl start ipoibu@ib3")
    assert machine.run("systemctl is-active ipoibu@ib3") == "active"
    assert "10.0.0.1/24" in machine.run("ip -n blue -4 address show ib3")
    machine.run("ip -n blue link set ib3 netns green")
    until(lambda: "ib3: device" in machine.run("ip netns exec green ipoibu show ib3"), PATIENCE_S)
    machine.run("systemctl stop ipoibu@ib3")
    assert machine.run("systemctl show -P Result ipoibu@ib3") == "success"
    assert "ib3" not in machine.run("ip -n green link show")
