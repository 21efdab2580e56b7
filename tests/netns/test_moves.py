# SPDX-License-Identifier: BSD-2-Clause
"""`ip link set ib0 netns X` and `ip link set ib0 name Y` on a running interface, as CNI plugins do."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from ipoibu.base.processes import children_of
from ipoibu.lab import NamespaceLab
from ipoibu.lab.namespace import LabNamespace

pytestmark = pytest.mark.netns

Until = Callable[..., object]

# The pump or netlink is the first to see it.
GONE = (
    "ib0: the interface is gone: another program removed it",
    "ib0: the packet device failed: it was deleted or closed",
)


@pytest.fixture(autouse=True)
def nothing_left(runtime: Path) -> Iterator[None]:
    """No control socket, and no directory of any, outlives a test."""
    yield
    assert [str(path) for path in runtime.rglob("*")] == []


@pytest.fixture
def up(bare: NamespaceLab) -> Iterator[NamespaceLab]:
    """Two hosts, up, whose interfaces end with the test."""
    for host in bare.hosts:
        host.options += ["--log-level", "info"]
        host.start()
    yield bare
    for host in bare.hosts:
        host.stop()
        assert "internal error" not in host.log()
        assert "Traceback" not in host.log()


@pytest.fixture
def pod(up: NamespaceLab, pods: tuple[LabNamespace, LabNamespace]) -> LabNamespace:
    """The namespace to which the first host's interface has moved, configured as a CNI plugin does it."""
    pod = pods[0]
    _ip(up.hosts[0].namespace, f"link set ib0 netns {pod.name}")
    _configure_as_cni(pod, "ib0")
    return pod


def _run(namespace: LabNamespace, *words: str) -> subprocess.CompletedProcess[str]:
    process = namespace.popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=60)
    return subprocess.CompletedProcess(words, process.returncode, out.decode())


def _ip(namespace: LabNamespace, words: str) -> str:
    done = _run(namespace, "ip", *words.split())
    assert done.returncode == 0, done.stdout
    return done.stdout


def _ipoibu(namespace: LabNamespace, *words: str) -> subprocess.CompletedProcess[str]:
    return _run(namespace, sys.executable, "-m", "ipoibu.cli", *words)


def _reaches(namespace: LabNamespace, target: str) -> bool:
    return _run(namespace, "ping", "-c1", "-W1", target).returncode == 0


def _await_replies(until: Until, namespace: LabNamespace, *targets: str) -> None:
    for target in targets:
        until(partial(_reaches, namespace, target))


def _configure_as_cni(pod: LabNamespace, name: str) -> None:
    _ip(pod, f"address add 10.77.0.9/24 dev {name}")
    _ip(pod, f"address add fd77::9/64 dev {name}")
    _ip(pod, f"link set {name} up")


OPTIONS = [[], pytest.param(["--user", "nobody"], marks=pytest.mark.root), ["--sandbox", "off"]]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_interface_works_where_a_container_gets_it_and_back_home(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until, options: list[str]
) -> None:
    first, second = bare.hosts
    first.options += options
    first.start()
    second.start()
    home, pod = first.namespace, pods[0]
    until(lambda: _reaches(second.namespace, "10.77.0.1"))
    _ip(home, f"link set ib0 netns {pod.name} name eth1")
    _configure_as_cni(pod, "eth1")
    _await_replies(until, second.namespace, "10.77.0.9", "fd77::9")
    _await_replies(until, pod, "10.77.0.2", "fd77::2")
    assert not _reaches(second.namespace, "10.77.0.1")  # nothing of the configuration came along
    assert "10.77.0.1" not in _ip(pod, "address show eth1")
    assert "fe80::200:ff:fe00:1/64" in _ip(pod, "address show eth1")  # as the kernel's ib0
    name = f"ib{os.getpid()}"  # other tests have interfaces in this namespace
    _ip(pod, f"link set eth1 netns {os.getpid()} name {name}")
    subprocess.run(["ip", "link", "set", name, "netns", home.name], check=True)
    _configure_as_cni(home, name)
    _await_replies(until, second.namespace, "10.77.0.9", "fd77::9")
    for host in bare.hosts:
        assert host.stop() == 0
        assert "internal error" not in host.log()


def test_changes_in_the_new_namespace_are_followed(
    up: NamespaceLab, pod: LabNamespace, until: Until
) -> None:
    """Addresses, routes with gateways, groups and sysctls."""
    second = up.hosts[1]
    _ip(second.namespace, "address add 10.99.0.1/32 dev lo")
    _ip(second.namespace, "address add fd99::1/128 dev lo")
    _ip(pod, "route add 10.99.0.0/16 via 10.77.0.2")
    _ip(pod, "route add fd99::/64 via fd77::2")
    _await_replies(until, pod, "10.99.0.1", "fd99::1")
    _ip(pod, "route del 10.99.0.0/16")
    until(lambda: not _reaches(pod, "10.99.0.1"))
    _ip(pod, "address add 10.98.0.9/32 dev lo")
    _ip(pod, "link set lo up")
    _ip(second.namespace, "route add 10.98.0.9/32 dev ib0")
    until(lambda: _reaches(second.namespace, "10.98.0.9"))  # unnumbered, by arp_ignore 0
    assert _run(pod, "sysctl", "-qw", "net.ipv4.conf.all.arp_ignore=1").returncode == 0

    def is_unknown() -> bool:
        assert _ipoibu(second.namespace, "neigh", "flush", "dev", "ib0").returncode == 0
        return not _reaches(second.namespace, "10.98.0.9")

    until(is_unknown)
    _ip(pod, "link set ib0 down")
    until(lambda: not _reaches(second.namespace, "10.77.0.9"))
    _ip(pod, "link set ib0 up")
    until(lambda: _reaches(second.namespace, "10.77.0.9"))
    assert not _reaches(second.namespace, "10.77.0.1")


def test_policy_rules_of_the_new_namespace_decide(
    up: NamespaceLab, pod: LabNamespace, until: Until
) -> None:
    second = up.hosts[1]
    _ip(second.namespace, "address add 10.99.0.1/32 dev lo")
    _ip(pod, "route add 10.99.0.0/16 via 10.77.0.77")  # nobody
    _ip(pod, "rule add from 10.77.0.9 table 7")
    _ip(pod, "route add 10.99.0.0/16 via 10.77.0.2 table 7")
    until(lambda: _run(pod, "ping", "-c1", "-W1", "-I", "10.77.0.9", "10.99.0.1").returncode == 0)


def test_commands_find_the_interface_in_both_namespaces(
    up: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until, runtime: Path
) -> None:
    first, _ = up.hosts
    home, (pod, further) = first.namespace, pods
    name = f"ib0@{first.pid}"
    _ip(home, f"link set ib0 netns {pod.name} name eth1")
    until(lambda: _ipoibu(pod, "stats", "eth1").returncode == 0)
    assert json.loads(_ipoibu(pod, "show", "-j").stdout)[0]["name"] == "eth1"
    for command in ("show", "neigh", "stats", "mcast", "conn"):
        assert _ipoibu(home, command, name).returncode == 0
    assert _ipoibu(home, "show", "ib0").returncode == 3
    _ip(pod, f"link set eth1 netns {further.name} name eth2")
    until(lambda: _ipoibu(further, "show", "eth2").returncode == 0)
    assert _ipoibu(pod, "show").stdout == ""
    assert _ipoibu(home, "show", name).returncode == 0
    assert first.stop() == 0
    inodes = [os.stat(each.path).st_ino for each in (home, pod, further)]
    assert [inode for inode in inodes if (runtime / f"net-{inode}").exists()] == []


def test_a_new_name_is_followed(up: NamespaceLab, until: Until) -> None:
    first, second = up.hosts
    home = first.namespace
    assert _ipoibu(home, "child", "add", "ib0", "0x8009").returncode == 0
    _ip(home, "link set ib0 name storage0")
    until(lambda: _ipoibu(home, "show", "storage0").returncode == 0)
    shown = json.loads(_ipoibu(home, "show", "-j").stdout)
    assert {each["name"]: each["parent"] for each in shown} == {
        "storage0": None,
        "ib0.8009": "storage0",
    }
    assert _ipoibu(home, "child", "del", "ib0.8009").returncode == 0
    assert _ipoibu(home, "show", "ib0").returncode == 3
    assert _ipoibu(home, "child", "add", "storage0", "0x8001").stdout.startswith(
        "storage0.8001: up"
    )
    assert _ipoibu(home, "child", "list").stdout == "storage0.8001  storage0  0x8001\n"
    assert _ipoibu(home, "child", "del", "storage0.8001").returncode == 0
    named = _ipoibu(home, "child", "add", "storage0", "0x8002", "--name", "blue")
    assert named.stdout.startswith("blue: up")
    assert "pkey 0x8002" in _ipoibu(home, "show", "blue").stdout
    assert _ipoibu(home, "child", "del", "blue").returncode == 0
    assert _ipoibu(home, "child", "list").stdout == ""
    _ip(home, "address add 10.77.0.9/24 dev storage0")
    until(lambda: _reaches(second.namespace, "10.77.0.9"))
    _ip(home, "link set eth0 down")
    until(lambda: "NO-CARRIER" in _ip(home, "link show storage0"))
    assert first.stop() == 0


def test_the_interface_ends_in_words_with_its_namespace(
    up: NamespaceLab, pod: LabNamespace, until: Until
) -> None:
    first, _ = up.hosts
    until(lambda: _ipoibu(pod, "show", "ib0").returncode == 0)
    pod.remove()
    until(first.ended)
    assert first.last_line() in GONE
    assert first.stop() == 1


def test_removal_ends_it_in_words_after_a_move(
    up: NamespaceLab, pod: LabNamespace, until: Until
) -> None:
    first, _ = up.hosts
    until(lambda: _ipoibu(pod, "show", "ib0").returncode == 0)
    _ip(pod, "link del ib0")
    until(first.ended)
    assert first.last_line() in GONE


def test_it_is_followed_through_ten_moves_in_a_row(
    up: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    first, second = up.hosts
    at = first.namespace
    for _ in range(5):
        for to in pods:
            _ip(at, f"link set ib0 netns {to.name}")
            at = to
    _configure_as_cni(at, "ib0")
    until(lambda: _reaches(second.namespace, "10.77.0.9"))


def test_without_the_right_it_ends_and_says_what_is_missing(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until, tmp_path: Path
) -> None:
    first = bare.hosts[0]
    command = ["up", "ib0", "--device", "soft:eth0"]
    log = (tmp_path / "log").open("w+")
    process = first.namespace.popen(
        ["setpriv", "--bounding-set=-sys_admin", sys.executable, "-m", "ipoibu.cli", *command],
        stdout=subprocess.PIPE,
        stderr=log,
    )
    assert process.stdout is not None
    assert b"up" in process.stdout.readline()
    assert children_of(process.pid) == []
    _ip(first.namespace, f"link set ib0 netns {pods[0].name}")
    assert process.wait(60) == 1
    process.stdout.close()
    log.seek(0)
    assert "needs CAP_SYS_ADMIN and CAP_NET_BROADCAST at its start" in log.read()
    log.close()


def test_the_helper_keeps_three_capabilities_and_ends_with_the_daemon(
    up: NamespaceLab, until: Until
) -> None:
    first = up.hosts[0]
    assert first.pid is not None
    [helper] = children_of(first.pid)
    lines = Path(f"/proc/{helper}/status").read_text().splitlines()
    status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    kept = 1 << 11 | 1 << 12 | 1 << 21  # CAP_NET_BROADCAST, CAP_NET_ADMIN, CAP_SYS_ADMIN
    assert (int(status["CapPrm"][0], 16), int(status["CapBnd"][0], 16)) == (kept, 0)
    assert (status["NoNewPrivs"], status["Seccomp"], status["Threads"]) == (["1"], ["2"], ["1"])
    first.kill()
    until(lambda: not Path(f"/proc/{helper}").exists())


ATTEMPTS = """
import errno, json, os
from ipoibu.base.errors import NoSuchDevice
from ipoibu.host.namespace import HERE
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.tun import Tun
from ipoibu.sandbox.stages import Stage

def ending(*words, **arguments):
    try:
        os.close(helper.open(*words, **arguments))
    except NoSuchDevice:
        return "gone"
    except OSError as error:
        return errno.errorcode[error.errno]
    return "ok"

with NamespaceHelper("t0", None, Stage.SECCOMP) as helper, Tun.open("t0") as tun:
    assert helper.locate(tun.fd) is HERE
    namespace = os.open("/proc/self/ns/net", os.O_RDONLY)
    file = dict(what="file", flags=os.O_RDONLY)
    print(json.dumps({
        "sysctl": ending(tun.fd, path="/proc/sys/net/ipv4/conf/all/arp_ignore", **file),
        "socket": ending(tun.fd, "netlink"),
        "notices": ending(None, "notices"),
        "shadow": ending(tun.fd, path="/etc/shadow", **file),
        "detour": ending(tun.fd, path="/proc/sys/net/../kernel/hostname", **file),
        "namespace": ending(namespace, "netlink"),
        "no TUN": ending(None, "netlink"),
        "unknown": ending(tun.fd, "raw"),
        "moved": ending(tun.fd, "netlink", inode=1),
        "again": ending(tun.fd, "inet"),
    }))
"""


def test_the_helper_opens_what_the_daemon_needs_and_nothing_else(
    pods: tuple[LabNamespace, LabNamespace],
) -> None:
    done = _run(pods[0], sys.executable, "-c", ATTEMPTS)
    assert json.loads(done.stdout) == {
        "sysctl": "ok",
        "socket": "ok",
        "notices": "ok",
        "shadow": "EACCES",
        "detour": "EACCES",
        "namespace": "ENOTTY",
        "no TUN": "EINVAL",
        "unknown": "EINVAL",
        "moved": "gone",
        "again": "ok",
    }


LATE = """
import os, signal
from ipoibu.base.errors import IpoibuError
from ipoibu.host.namespace import HERE
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.tun import Tun
from ipoibu.sandbox.stages import Stage

with NamespaceHelper("t0", None, Stage.SECCOMP) as helper, Tun.open("t0") as tun:
    os.kill(helper._pid, signal.SIGSTOP)
    helper._channel.settimeout(0.1)
    try:
        helper.open(None, "notices")
    except IpoibuError as error:
        print(error)
    os.kill(helper._pid, signal.SIGCONT)
    helper._channel.settimeout(60)
    before = len(os.listdir("/proc/self/fd"))
    print(helper.locate(tun.fd) is HERE, len(os.listdir("/proc/self/fd")) == before)
"""


def test_an_answer_of_the_helper_that_comes_too_late_is_passed_over(
    pods: tuple[LabNamespace, LabNamespace],
) -> None:
    done = _run(pods[0], sys.executable, "-c", LATE)
    assert done.stdout == "the namespace helper does not answer\nTrue True\n"


BY_DESCRIPTOR = """
import os, sys
from ipoibu.host.namespace import HERE
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.netns import NetworkNamespace
from ipoibu.host.tun import Tun
from ipoibu.sandbox.stages import Stage

fd = os.open(sys.argv[1], os.O_RDONLY)
name = NetworkNamespace.parse(f"/proc/self/fd/{fd}")
with name.open() as namespace, NamespaceHelper("t0", None, Stage.SECCOMP, namespace) as helper:
    namespace.enter()
    with Tun.open("t0") as tun:
        print(helper.locate(tun.fd) is HERE, name.is_gone())
"""


def test_a_namespace_by_a_descriptor_of_the_daemon_is_one_to_the_helper_too(
    pods: tuple[LabNamespace, LabNamespace],
) -> None:
    """/proc/self is another process there, which has closed the descriptor."""
    done = _run(pods[0], sys.executable, "-c", BY_DESCRIPTOR, str(pods[1].path))
    assert done.stdout == "True False\n"


ENDING = """
import os, subprocess
from ipoibu.base.errors import NoSuchDevice
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.tun import Tun
from ipoibu.lab.namespace import LabNamespace
from ipoibu.sandbox.stages import Stage

def is_refused(helper, number):
    name = f"ipoibu-{os.getpid()}-ending{number}"
    namespace = LabNamespace.create(name)
    with Tun.open("t0") as tun:
        subprocess.run(["ip", "link", "set", "t0", "netns", name], check=True)
        moved = helper.locate(tun.fd)
        namespace.remove()
        while True:
            try:
                moved.inet_socket().close()
                refused = False
            except NoSuchDevice:
                refused = True
            try:
                tun.current_name()
            except OSError:
                return False
            if refused:
                return True

with NamespaceHelper("t0", None, Stage.SECCOMP) as helper:
    print(any(is_refused(helper, number) for number in range(500)))
"""


def test_the_helper_finds_no_interface_while_its_namespace_ends(
    pods: tuple[LabNamespace, LabNamespace],
) -> None:
    """The TUN is still there, but nothing can enter its namespace any more."""
    assert _run(pods[0], sys.executable, "-c", ENDING).stdout == "True\n"


def test_an_interface_in_another_namespace_moves_on(
    bare: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    """`--netns` and a move together: the first namespace may then lose its name."""
    first, second = bare.hosts
    first.options += ["--netns", pods[0].name]
    first.start()
    second.start()
    _ip(pods[0], f"link set ib0 netns {pods[1].name}")
    _configure_as_cni(pods[1], "ib0")
    until(lambda: _reaches(second.namespace, "10.77.0.9"))
    until(lambda: _reaches(second.namespace, "fd77::9"))
    until(lambda: _ipoibu(pods[1], "show", "ib0").returncode == 0)
    pods[0].remove()
    assert not first.ended()
    until(lambda: _reaches(pods[1], "10.77.0.2"))
    assert first.stop() == 0
    second.stop()


def test_groups_of_programs_in_the_new_namespace_are_joined(
    up: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    first, _ = up.hosts
    pod = pods[0]
    _ip(first.namespace, f"link set ib0 netns {pod.name}")
    _configure_as_cni(pod, "ib0")

    def groups() -> str:
        return _ipoibu(pod, "mcast", "ib0").stdout

    request = socket.inet_aton("239.1.2.3") + socket.inet_aton("10.77.0.9")
    with pod.socket(socket.AF_INET, socket.SOCK_DGRAM) as member:
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
        until(lambda: "239.1.2.3" in groups())
    until(lambda: "239.1.2.3" not in groups())


def test_a_child_moves_by_itself(
    up: NamespaceLab, pods: tuple[LabNamespace, LabNamespace], until: Until
) -> None:
    first, second = up.hosts
    pod = pods[0]
    for number, host in enumerate(up.hosts, start=1):
        words = ["child", "add", "ib0", "0x8001", "--address", f"10.79.0.{number}/24"]
        assert _ipoibu(host.namespace, *words).returncode == 0
    _ip(first.namespace, f"link set ib0.8001 netns {pod.name}")
    _ip(pod, "address add 10.79.0.9/24 dev ib0.8001")
    _ip(pod, "link set ib0.8001 up")
    until(lambda: _reaches(second.namespace, "10.79.0.9"))
    until(lambda: _reaches(second.namespace, "10.77.0.1"))  # the parent stayed
    _ip(pod, "link del ib0.8001")
    until(lambda: "the parent removes this child" in first.log())
    until(lambda: _reaches(second.namespace, "10.77.0.1"))
