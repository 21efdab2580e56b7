# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu run` as ordinary users without any capability, on a veth pair that root made."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ipoibu.base.processes import children_of
from ipoibu.lab.host import NETDEV
from tests.netns.ordinary_user import IPOIBU, OrdinaryUser

pytestmark = [pytest.mark.netns, pytest.mark.root]

Until = Callable[..., object]


class User(OrdinaryUser):
    """A user of `ipoibu run`."""

    def command(self, *command: str, options: tuple[str, ...] = ()) -> list[str]:
        """The words of `ipoibu run` with this user's device and address."""
        device = "--device", f"soft:{NETDEV}"
        return ["run", *device, "--address", str(self.host.ipv4), *options, "--", *command]

    @contextlib.contextmanager
    def holding(
        self, command: str = "sleep 600", *options: str, before: str = ":"
    ) -> Iterator[subprocess.Popen[bytes]]:
        """`ipoibu run` of a shell command, from when it began until it is killed; the shell carries
        `before` out first."""
        process = self.popen(
            *self.command("sh", "-c", f"{before}; echo began; {command}", options=options),
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"began\n"
            yield process
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()


@pytest.fixture(scope="module")
def users() -> Iterator[tuple[User, User]]:
    with User.pair() as users:
        yield users
        assert [path for user in users for path in user.left()] == []


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_two_ordinary_users_reach_each_other(users: tuple[User, User], mode: str) -> None:
    first, second = users
    six = [(("--mode", mode), "--address", str(user.host.ipv6)) for user in users]
    options = [(*mode_words, *address) for mode_words, *address in six]
    with first.holding("sleep 200", *options[0]):
        lose_none = (
            'all() { until ping -q -c 3 -i 0.2 -W 2 "$@" | grep " 0% packet loss"; do :; done; }'
        )
        script = f"{lose_none}; all {first.host.ipv4.ip}; all -s 1800 {first.host.ipv6.ip}"
        done = second.run(*second.command("sh", "-c", script, options=options[1]))
    assert done.returncode == 0, done
    assert done.stdout.count(" 0% packet loss") == 2
    assert done.stderr == ""


@pytest.mark.parametrize("mode", ["datagram", "connected"])
def test_a_stream_and_multicast_pass(users: tuple[User, User], mode: str) -> None:
    first, second = users
    options = ("--mode", mode)
    receive = (
        "import socket; s = socket.socket(2, 2); s.bind(('', 9999));"
        "groups = socket.inet_aton('239.1.2.3') + socket.inet_aton('10.77.0.1');"
        "s.setsockopt(0, 35, groups); s.settimeout(200);"
        "print(s.recv(99).decode())"
    )
    send = (
        "import socket, time; s = socket.socket(2, 2);"
        "s.setsockopt(0, 32, socket.inet_aton('10.77.0.2'));"
        "[(s.sendto(b'hello all', ('239.1.2.3', 9999)), time.sleep(0.1)) for _ in range(20)]"
    )
    python = sys.executable
    server = f'iperf3 -s -1 > /dev/null & {python} -c "{receive}"; wait'
    with first.holding(server, *options) as process:
        stream = f"iperf3 -c {first.host.ipv4.ip} -n 20M -J"
        script = f'until out=$({stream}); do sleep 0.2; done; echo "$out"; {python} -c "{send}"'
        done = second.run(*second.command("sh", "-c", script, options=options))
        assert done.returncode == 0, done
        assert json.loads(done.stdout)["end"]["sum_received"]["bytes"] > 1_000_000
        assert process.stdout is not None
        assert process.stdout.readline() == b"hello all\n"


def test_the_command_has_one_network_its_user_and_its_directory(users: tuple[User, User]) -> None:
    first, _ = users
    script = "id -u; pwd; ip -br link | cut -d' ' -f1; ping -q -c 1 127.0.0.1; cat /etc/resolv.conf"
    done = first.run(*first.command("sh", "-c", script, options=("--name", "net7")))
    assert done.returncode == 0, done
    assert done.stdout.splitlines()[:4] == [str(first.uid), os.getcwd(), "lo", "net7"]
    assert " 0% packet loss" in done.stdout


@pytest.mark.parametrize(
    ("command", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_the_exit_status_is_the_commands(
    users: tuple[User, User], command: str, status: int
) -> None:
    assert users[0].run(*users[0].command("sh", "-c", command)).returncode == status


def test_a_command_that_does_not_exist_ends_as_in_a_shell(users: tuple[User, User]) -> None:
    done = users[0].run(*users[0].command("/no/such/program"))
    assert done.returncode == 127
    assert done.stderr == "ipoibu: /no/such/program: No such file or directory\n"


def test_an_interface_that_does_not_come_up_is_an_error_and_the_command_does_not_run(
    users: tuple[User, User],
) -> None:
    done = users[0].run("run", "--device", "soft:none0", "--", "echo", "it ran")
    assert done.returncode == 3
    assert "none0" in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--user=nobody", "--tun=attach"])
def test_what_is_for_up_alone_is_refused(users: tuple[User, User], option: str) -> None:
    done = users[0].run(*users[0].command("echo", "it ran", options=(option,)))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_signal_to_run_reaches_the_command(users: tuple[User, User]) -> None:
    loop, trap = "while :; do sleep 0.1; done", "trap 'exit 7' USR1"
    with users[0].holding(loop, before=trap) as process:
        process.send_signal(signal.SIGUSR1)
        assert process.wait(60) == 7


def test_an_interrupt_from_the_terminal_reaches_the_command_once(
    users: tuple[User, User],
) -> None:
    script = "n=0; trap 'n=$((n + 1))' INT; echo began; sleep 30; sleep 0.5; exit $((10 + n))"
    words = users[0].words(*users[0].command("sh", "-c", script))
    enter = ["nsenter", f"--net={users[0].host.namespace.path}"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(users[0].environment())
        os.execvp(enter[0], [*enter, *words])
    seen = b""
    while b"began" not in seen:
        seen += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 11


def test_the_data_path_has_no_privilege_over_the_host(users: tuple[User, User]) -> None:
    with users[0].holding() as process:
        data_path, command = _data_path(process.pid), _command(process.pid)
        status = _status(data_path)
        assert status["Uid"].split() == [str(users[0].uid)] * 4
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert _same(data_path, command, "user")
        assert not _same(data_path, process.pid, "user")
        assert _same(data_path, command, "net")
        threads = {os.readlink(path / "ns/net") for path in _tasks(data_path)}
        assert threads == {os.readlink(f"/proc/{each}/ns/net") for each in (command, process.pid)}
        assert {_thread_status(path)["Seccomp"] for path in _tasks(data_path)} == {"2"}


@pytest.mark.parametrize("victim", ["parent", "command", "data path"])
def test_when_one_process_is_killed_nothing_is_left(
    users: tuple[User, User], until: Until, victim: str
) -> None:
    with users[0].holding("sleep 61 & sleep 62") as process:
        pids = {
            "parent": process.pid,
            "command": _command(process.pid),
            "data path": _data_path(process.pid),
        }
        os.kill(pids[victim], signal.SIGKILL)
        status = process.wait(60)
        assert status == {"parent": -9, "command": 137, "data path": 1}[victim]
        for pid in pids.values():
            until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
    if victim == "parent":  # nobody was left who could remove its link; the next run does
        assert users[0].run(*users[0].command("true")).returncode == 0
    until(lambda: users[0].left() == [])


def test_show_and_join_find_a_running_command(users: tuple[User, User], until: Until) -> None:
    first, _ = users
    with first.holding() as process:
        name = f"ib0@{_data_path(process.pid)}"
        shown = json.loads(first.run("show", "-j").stdout)
        assert [each["addresses"][0]["address"] for each in shown] == [str(first.host.ipv4.ip)]
        for command in ("show", "neigh", "stats", "conn"):
            assert first.run(command, name).returncode == 0
        joined = first.run(
            "run", "--join", "ib0", "--", "sh", "-c", "ip -br -4 addr show ib0; exit 5"
        )
        assert joined.returncode == 5
        assert re.search(rf"ib0 .* {first.host.ipv4}", joined.stdout)
        both = first.run("run", "--join", "ib0", "--mtu", "2044", "--", "true")
        assert (both.returncode, both.stderr.count("\n")) == (2, 1)
    absent = first.run("run", "--join", "ib0", "--", "true")
    assert (absent.returncode, absent.stderr.count("\n")) == (3, 1)


def test_without_a_device_the_default_route_chooses(users: tuple[User, User]) -> None:
    first, _ = users
    without = first.run("run", "--", "true")
    assert without.returncode == 2
    assert "no device given" in without.stderr
    done = first.host.run(
        ["sh", "-c", f"ip addr add 192.0.2.1/24 dev {NETDEV}; ip route add default via 192.0.2.2"]
    )
    assert done.returncode == 0, done
    try:
        done = first.run("run", "--", *IPOIBU, "show", "-j")
    finally:
        first.host.run(["ip", "addr", "del", "192.0.2.1/24", "dev", NETDEV])
    assert json.loads(done.stdout)[0]["device"] == f"soft:{NETDEV}"


def _command(pid: int) -> int:
    return children_of(pid)[0]


def _data_path(pid: int) -> int:
    return children_of(pid)[1]


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _thread_status(path: Path) -> dict[str, str]:
    lines = (path / "status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _status(pid: int) -> dict[str, str]:
    return _thread_status(Path(f"/proc/{pid}"))


def _same(one: int, other: int, kind: str) -> bool:
    return os.readlink(f"/proc/{one}/ns/{kind}") == os.readlink(f"/proc/{other}/ns/{kind}")
