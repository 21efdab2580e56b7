# SPDX-License-Identifier: BSD-2-Clause
"""Partitions on the built-in HCA: child interfaces at run time, isolation, and partitions.conf."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import CHILDREN_MAX, INTERFACE_DESCRIPTORS, PROCESS_SPARE_DESCRIPTORS
from ipoibu.daemon.control.client import Client
from ipoibu.lab import LabError, NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.behind import reaches

pytestmark = pytest.mark.netns

Sh = Callable[[Host, str], str]
Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]


@pytest.fixture(scope="module")
def green(lab: NamespaceLab, cli: Cli) -> NamespaceLab:
    """Two hosts, each with ib0 and, in partition 0x8001, ib0.8001: 10.88.0.N/24 and fd88::N/64."""
    for host in lab.hosts:
        words = [f"--address=10.88.0.{host.number}/24", f"--address=fd88::{host.number}/64"]
        # One host gives the limited key: the membership bit is set in any case (E7).
        done = cli(host, "child", "add", "ib0", ("0x8001", "0x0001")[host.number - 1], *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("ib0.8001: up, hwaddr 00:")
    return lab


def ask(host: Host, name: str, command: str, **arguments: object) -> Any:
    with Client(name, host.namespace.path) as client:
        return client.request(command, **arguments)


def links(host: Host) -> set[str]:
    out = host.run(["ip", "-o", "link", "show"]).stdout
    return {line.split(": ")[1].partition("@")[0] for line in out.splitlines()}


@pytest.mark.parametrize("target", ["10.88.0.2", "fd88::2", "fe80::200:ff:fe00:2%ib0.8001"])
def test_children_of_two_hosts_reach_each_other(
    green: NamespaceLab, until: Until, target: str
) -> None:
    until(lambda: reaches(green.hosts[0], target))


def test_the_parents_go_on_beside_their_children(green: NamespaceLab, until: Until) -> None:
    until(lambda: reaches(green.hosts[0], str(green.hosts[1].ipv4.ip)))


def test_a_childs_tcp_carries_data(green: NamespaceLab, sh: Sh) -> None:
    first, second = green.hosts
    server = second.namespace.popen(
        ["socat", "-u", "TCP-LISTEN:7,bind=10.88.0.2", "OPEN:/dev/null"]
    )
    try:
        sh(
            first,
            "for n in $(seq 100); do head -c 20000000 /dev/zero |"
            " socat -u - TCP:10.88.0.2:7 && exit; sleep 0.2; done; exit 1",
        )
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.wait()


def test_a_child_is_shown_by_its_own_name_and_among_all(
    green: NamespaceLab, cli: Cli, until: Until
) -> None:
    host = green.hosts[0]
    until(lambda: reaches(host, "10.88.0.2"))
    (child,) = json.loads(cli(host, "show", "ib0.8001", "-j").stdout)
    parent = host.ask("show")
    assert (child["name"], child["parent"], parent["parent"]) == ("ib0.8001", "ib0", None)
    assert (child["pkey"], child["membership"]) == ("0x8001", "full")
    assert child["gid"] == parent["gid"]
    assert child["qpn"] != parent["qpn"]
    # CONFORMANCE G4: the broadcast group has the partition's key in it
    assert child["broadcast"] == "00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff"
    shown = json.loads(cli(host, "show", "-j").stdout)
    assert [each["name"] for each in shown] == ["ib0", "ib0.8001"]
    (neighbour,) = [
        n for n in json.loads(cli(host, "neigh", "ib0.8001", "-j").stdout) if n["ip"] == "10.88.0.2"
    ]
    assert neighbour["hwaddr"] == ask(green.hosts[1], "ib0.8001", "show")["hwaddr"]
    assert "10.88.0.2 dev ib0.8001 " in cli(host, "neigh").stdout
    assert "ff12:401b:8001::ffff:ffff" in cli(host, "mcast", "ib0.8001").stdout
    assert cli(host, "stats", "ib0.8001").returncode == 0
    assert cli(host, "child", "list").stdout == "ib0.8001  ib0  0x8001\n"


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (("add", "ib0", "0x8001"), 1, "ib0: ib0.8001 has the partition 0x8001 already"),
        (("add", "ib0", "0x0001"), 1, "ib0: ib0.8001 has the partition 0x8001 already"),
        (("add", "ib0", "0xffff"), 1, "ib0: 0xffff is the partition of ib0 itself"),
        (("add", "ib0", "0x7fff"), 1, "ib0: 0xffff is the partition of ib0 itself"),
        (("add", "ib0", "0"), 2, "P_Key 0x0000 is invalid"),
        (("add", "ib0", "0x8000"), 2, "P_Key 0x8000 is invalid"),
        (("add", "ib0.8001", "2"), 1, "a child interface has no children"),
        (("del", "ib0", "2"), 1, "ib0: the interface has no child in partition 0x8002"),
        (("add", "ib7", "2"), 3, "no interface 'ib7'"),
        (("add", "ib0", "2", "--mtu", "9141"), 1, "--mtu 9141 is too large"),
    ],
)
def test_what_cannot_be_is_one_line_and_changes_nothing(
    green: NamespaceLab, cli: Cli, words: tuple[str, ...], code: int, why: str
) -> None:
    host = green.hosts[0]
    before = links(host)
    done = cli(host, "child", *words)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1)
    assert why in done.stderr
    assert links(host) == before


def test_a_name_that_is_taken_is_refused(green: NamespaceLab, cli: Cli, sh: Sh) -> None:
    host = green.hosts[0]
    sh(host, "ip link add ib0.8005 type bridge")
    try:
        done = cli(host, "child", "add", "ib0", "5")
        assert done.returncode == 1
        assert "an interface 'ib0.8005' exists already" in done.stderr
    finally:
        sh(host, "ip link del ib0.8005")


# Isolation


FORGE = """
    import sys, time
    from ipoibu import Endpoint, EndpointConfig, Gid, PKey, Qpn
    from ipoibu.base.ib import Destination
    from ipoibu.base.addr import HwAddr

    pkey, target = PKey(int(sys.argv[1], 0)), HwAddr.parse(sys.argv[2])
    # An ARP request, which every member of the partition would look at.
    frame = bytes.fromhex("08060000" "0020" "0800" "14" "04" "0001") + bytes(48)
    with Endpoint(EndpointConfig("forger", "soft:eth0", pkey=pkey)) as endpoint:
        for _ in range(20):
            endpoint._call(endpoint._pump.send_frame, Destination(target.gid, target.qpn), frame)
            time.sleep(0.01)
        time.sleep(3)  # the end of an endpoint waits for no packet
"""


@pytest.fixture
def victim(bare: NamespaceLab, cli: Cli) -> tuple[Host, Host]:
    """A host that only forges, and a host with a parent and a child in 0x8001."""
    forger, victim = bare.hosts
    victim.start()
    done = cli(victim, "child", "add", "ib0", "0x8001", "--address", "10.88.0.2/24")
    assert done.returncode == 0, done.stderr
    return forger, victim


@pytest.mark.parametrize("way", ["hwaddr", "broadcast"])
def test_a_packet_with_another_partitions_key_is_dropped_and_counted(
    victim: tuple[Host, Host], way: str, until: Until
) -> None:
    """By unicast to the child's queue pair, and by multicast to its broadcast group (E7)."""
    forger, host = victim
    target = ask(host, "ib0.8001", "show")[way]

    def counts() -> tuple[int, int]:
        """Return how many frames the child's pump saw (it drops those that concern nobody here), and how
        many the HCA dropped for their P_Key."""
        stats = ask(host, "ib0.8001", "stats")
        return stats["rx_control"] + stats["rx_unconcerned"], stats["fabric.drop_pkey"]

    def forge(pkey: str) -> tuple[int, int]:
        """Send 20 frames; return the counts before them."""
        before = counts()
        program = [sys.executable, "-c", textwrap.dedent(FORGE), pkey, target]
        done = forger.run(program)
        assert done.returncode == 0, done.stderr
        return before

    seen, dropped = forge("0x8001")
    until(lambda: counts()[0] >= seen + 20)
    assert counts()[1] == dropped
    for wrong in ("0xffff", "0x8002"):
        seen, dropped = forge(wrong)
        until(lambda dropped=dropped: counts()[1] >= dropped + 20)
        assert counts()[1] == dropped + 20
        assert counts()[0] < seen + 20  # echoes of its own announcements at most


def test_a_multicast_of_one_partition_does_not_arrive_in_another(
    green: NamespaceLab, until: Until
) -> None:
    """MGIDs carry the P_Key, so no packet of the default partition reaches the child, and the reverse."""
    first, second = green.hosts

    def arrived(name: str) -> int:
        stats = ask(second, name, "stats")
        return sum(
            stats[key] for key in ("rx_packets", "rx_control", "rx_broadcast") if key in stats
        )

    parent, child = arrived("ib0"), arrived("ib0.8001")
    out = first.run(["ping", "-c100", "-i0.01", "-W1", "-b", "-I", "ib0.8001", "10.88.0.255"])
    assert "100 packets transmitted" in out.stdout
    until(lambda: arrived("ib0.8001") >= child + 100)
    assert arrived("ib0") < parent + 50  # its own neighbour probes


# Coming and going


def resources(host: Host) -> tuple[int, int]:
    return (
        len(os.listdir(f"/proc/{host.pid}/fd")),
        len(os.listdir(f"/proc/{host.pid}/task")),
    )


def settled(host: Host) -> tuple[int, int]:
    """Return the counts as soon as they stay the same: the clients' connections end by themselves."""
    last, now = None, resources(host)
    while now != last:
        time.sleep(0.3)
        last, now = now, resources(host)
    return now


def rss(host: Host) -> int:
    return int(Path(f"/proc/{host.pid}/statm").read_text().split()[1]) * 4096


def test_descriptors_threads_and_memory_stay_flat_over_50_children(
    bare: NamespaceLab, until: Until
) -> None:
    """Every queue pair has completion queues, and these have descriptors: flat means all are gone.

    A busy machine makes asyncio's pool start a thread where another one would do: it has six at most.
    """
    host = bare.hosts[0]
    host.start()

    def cycle() -> None:
        # Below 1280 bytes there is no IPv6, and so no second of duplicate address detection.
        host.ask("child-add", pkey="0x8001", mtu="1000", address=["10.88.0.1/24"])
        host.ask("child-del", pkey="0x8001")

    for _ in range(5):  # the first cycles load and allocate once
        cycle()
    before, memory = settled(host), rss(host)
    for _ in range(50):
        cycle()
    until(lambda: resources(host)[0] <= before[0])  # one of its clients may have lingered
    until(lambda: resources(host)[1] <= before[1] + 6)
    assert rss(host) - memory < 8 << 20
    assert "ib0.8001" not in links(host)
    host.stop()


def test_a_child_for_which_there_are_not_enough_descriptors_is_refused_in_words(
    bare: NamespaceLab,
) -> None:
    host = bare.hosts[0]
    host.start()
    assert host.pid is not None
    used = len(os.listdir(f"/proc/{host.pid}/fd"))
    room = used + 4 + INTERFACE_DESCRIPTORS + PROCESS_SPARE_DESCRIPTORS  # 4: for the request
    resource.prlimit(host.pid, resource.RLIMIT_NOFILE, (room, room))
    host.ask("child-add", pkey="0x8001", mtu="1000")
    with pytest.raises(
        IpoibuError, match=rf"needs {INTERFACE_DESCRIPTORS} file descriptors.*ulimit -n"
    ):
        host.ask("child-add", pkey="0x8002", mtu="1000")
    assert "Traceback" not in host.log()
    host.stop()


@pytest.mark.timeout(600)
def test_as_many_children_as_may_be_come_up_under_the_usual_limit_of_descriptors(
    bare: NamespaceLab,
) -> None:
    host = bare.hosts[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        host.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for number in range(1, CHILDREN_MAX + 1):
        host.ask("child-add", pkey=f"{0x8000 | number:#x}", mtu="1000")
    assert len(os.listdir(f"/proc/{host.pid}/fd")) > 1024
    assert len(links(host) & {f"ib0.{0x8000 | n:x}" for n in range(1, 256)}) == CHILDREN_MAX
    with pytest.raises(IpoibuError, match=f"at most {CHILDREN_MAX} children"):
        host.ask("child-add", pkey="0x80ff", mtu="1000")
    assert "Traceback" not in host.log()
    host.stop()


PKEY_TABLE = """
    from ipoibu import Endpoint, EndpointConfig, PKey
    with Endpoint(EndpointConfig("ib0", "soft:eth0")) as parent:
        hca = parent._opened().fabric._hca
        children = [parent.child(PKey(n)) for n in range(1, 4)]
        for child in children:
            child.open()
        print(hca.pkeys)
        children[1].close()
        again = parent.child(PKey(1))  # the same partition twice, on one table entry
        again.open()
        print(hca.pkeys)
        other = parent.child(PKey(9))  # takes the entry that is free
        other.open()
        print(hca.pkeys)
        for child in (children[0], children[2], other):
            child.close()
        print(hca.pkeys)
        again.close()
        print(hca.pkeys)
"""


def test_the_hcas_p_key_table_holds_the_keys_in_use(bare: NamespaceLab) -> None:
    done = bare.hosts[0].run([sys.executable, "-c", textwrap.dedent(PKEY_TABLE)])
    assert done.returncode == 0, done.stderr
    assert [json.loads(line.replace("0x", "")) for line in done.stdout.splitlines()] == [
        [0xFFFF, 0x8001, 0x8002, 0x8003],
        [0xFFFF, 0x8001, 0x8003],
        [0xFFFF, 0x8001, 0x8009, 0x8003],
        [0xFFFF, 0x8001],
        [0xFFFF],
    ]


@pytest.fixture
def family(bare: NamespaceLab) -> Host:
    """A host with ib0, ib0.8001 and ib0.8002."""
    host = bare.hosts[0]
    host.start()
    for pkey in ("0x8001", "0x8002"):
        host.ask("child-add", pkey=pkey, mtu="1000")
    assert {"ib0", "ib0.8001", "ib0.8002"} <= links(host)
    return host


@pytest.fixture
def sockets(runtime: Path) -> Callable[[Host], Iterator[Path]]:
    return lambda host: runtime.glob(f"net-{os.stat(host.namespace.path).st_ino}/*")


def test_a_signal_to_the_parent_ends_its_children_too(
    family: Host, sockets: Callable[[Host], Iterator[Path]]
) -> None:
    assert {path.name for path in sockets(family)} == {
        "ib0.sock",
        "ib0.8001.sock",
        "ib0.8002.sock",
    }
    assert family.stop() == 0
    assert not any(name.startswith("ib0") for name in links(family))
    assert list(sockets(family)) == []
    assert "Traceback" not in family.log()


def test_a_crash_of_the_parent_takes_its_children_with_it(
    family: Host, cli: Cli, until: Until
) -> None:
    family.kill()
    until(lambda: not any(name.startswith("ib0") for name in links(family)))
    assert cli(family, "show").stdout == ""
    family.start()
    family.ask("child-add", pkey="0x8001", mtu="1000")  # in place of the dead one's socket
    assert ask(family, "ib0.8001", "show")["state"] == "up"


def test_parent_and_children_go_down_and_come_back_with_the_port(
    family: Host, sh: Sh, until: Until
) -> None:
    def states() -> set[str]:
        return {ask(family, name, "show")["state"] for name in ("ib0", "ib0.8001", "ib0.8002")}

    sh(family, "ip link set eth0 down")
    until(lambda: states() == {"down"})
    gid = family.ask("show")["gid"]  # the kernel forgot it, and an SA gives it back
    sh(family, f"ip link set eth0 up && ip -6 address add {gid}/64 dev eth0 nodad")
    until(lambda: states() == {"up"})


def test_a_child_that_someone_deletes_is_gone_and_its_parent_stays(
    family: Host, sh: Sh, until: Until
) -> None:
    sh(family, "ip link del ib0.8001")
    until(lambda: [each["name"] for each in family.ask("child-list")] == ["ib0.8002"])
    assert "ERROR: ib0.8001: the " in family.log()  # either thread may notice and report first
    family.ask("child-add", pkey="0x8001", mtu="1000")
    assert family.ask("show")["state"] == "up"


def test_a_signal_while_a_child_comes_up_ends_everything_cleanly(
    bare: NamespaceLab, until: Until, sockets: Callable[[Host], Iterator[Path]]
) -> None:
    host = bare.hosts[0]
    host.start()
    adding = host.namespace.popen(
        [sys.executable, "-m", "ipoibu.cli", "child", "add", "ib0", "1"],
        stderr=subprocess.PIPE,
    )
    until(lambda: "ib0.8001" in links(host))
    assert host._end(signal.SIGTERM) == 0
    adding.communicate(timeout=60)
    assert not any(name.startswith("ib0") for name in links(host))
    assert list(sockets(host)) == []
    assert "error" not in host.log().lower()


# partitions.conf


GUIDS = [f"0x000000fffe{number:06x}" for number in (1, 2, 3)]  # MAC 02:00:00:00:00:0N


def test_a_file_makes_the_link_and_limited_members_talk_to_full_ones_only(
    tmp_path: Path, until: Until, cli: Cli
) -> None:
    """Two keys without the membership bit do not match, as on InfiniBand."""
    file = tmp_path / "partitions.conf"
    members = f"{GUIDS[0]}=full, {GUIDS[1]}, {GUIDS[2]}=limited"
    file.write_text(f"# lab\ngreen=1, ipoib, mtu=5, Q_Key=0x1b1b, TClass=8 : {members};\n")
    with NamespaceLab(3, options=["--partitions", str(file), "--pkey", "0x8001"]) as lab:
        full, limited, other = lab.hosts
        for host, membership in ((full, "full"), (limited, "limited"), (other, "limited")):
            shown = host.ask("show")
            assert (shown["pkey"], shown["membership"]) == ("0x8001", membership)
            assert (shown["qkey"], shown["mtu"]) == ("0x00001b1b", 4092)
        until(lambda: reaches(full, str(limited.ipv4.ip)) and reaches(full, str(other.ipv6.ip)))
        until(lambda: reaches(other, str(full.ipv4.ip)))
        before = other.ask("stats")["fabric.drop_pkey"]
        for target in (other.ipv4.ip, other.ipv6.ip):
            assert not reaches(limited, str(target))
        until(lambda: other.ask("stats")["fabric.drop_pkey"] > before)
        assert "pkey 0x8001 membership limited " in cli(other, "show").stdout
        assert "pkey 0x8001 qkey " in cli(full, "show").stdout
        warning = r"warn  membership +ib0 is a limited member of partition 0x8001: .*; [1-9]"
        assert re.search(warning, cli(other, "doctor").stdout)
        assert "membership" not in cli(full, "doctor").stdout


def test_a_child_has_connections_with_a_host_that_is_in_no_other_partition(
    bare: NamespaceLab, cli: Cli, sh: Sh, until: Until
) -> None:
    """Datagrams of queue pair 1 carry the connection's P_Key: the host takes no other."""
    one, other = bare.hosts
    one.options = ["--mode", "connected"]
    other.options = ["--mode", "connected", "--pkey", "0x8001", "--address", "10.88.0.2/24"]
    bare.start()
    done = cli(one, "child", "add", "ib0", "0x8001", "--address=10.88.0.1/24")
    assert done.returncode == 0, done.stderr

    def are_connected() -> bool:
        ends = ask(one, "ib0.8001", "conn"), other.ask("conn")
        return reaches(one, "10.88.0.2") and all(
            [c["state"] for c in end] == ["live", "live"] for end in ends
        )

    until(are_connected, 120)
    assert other.ask("stats").get("fabric.drop_pkey", 0) == 0


def test_a_child_has_a_mode_and_routes_of_its_own(
    bare: NamespaceLab, cli: Cli, sh: Sh, until: Until
) -> None:
    bare.start()
    words = ("--mode=connected", "--route=10.99.0.0/16,via=10.88.0.2")
    for number, host in enumerate(bare.hosts, 1):
        address = f"--address=10.88.0.{number}/24"
        done = cli(host, "child", "add", "ib0", "0x8001", address, *words[: 3 - number])
        assert done.returncode == 0, done.stderr
    one, other = bare.hosts
    assert "via 10.88.0.2" in sh(one, "ip route show 10.99.0.0/16 dev ib0.8001")
    assert (one.ask("show")["mode"], ask(one, "ib0.8001", "show")["mode"]) == (
        "datagram",
        "connected",
    )

    def are_connected() -> bool:
        ends = ask(one, "ib0.8001", "conn")
        return reaches(one, "10.88.0.2") and [c["state"] for c in ends] == ["live", "live"]

    until(are_connected, 120)
    assert other.ask("conn") == []


@pytest.fixture(scope="module")
def idle(cli: Cli) -> Iterator[Callable[..., subprocess.CompletedProcess[str]]]:
    """Run `ipoibu` in a host whose device no interface uses."""
    with NamespaceLab(start=False) as lab:
        yield lambda *words: cli(lab.hosts[0], *words)


@pytest.mark.parametrize(
    ("text", "words", "refusal"),
    [
        (
            "green=1, ipoib : ALL=full;",
            ("--pkey", "2"),
            (1, "has no partition 0x8002: add the line"),
        ),
        (
            "\ngreen=1 : ALL=full;",
            ("--pkey", "1"),
            (1, ":2: partition green (0x8001) has no broad"),
        ),
        ("\ngreen=1, ipoib : 0x9;", ("--pkey", "1"), (1, ":2: soft:eth0/1 is no member of")),
        ("green=1, ipoib : ALL;", ("--pkey", "1", "--mtu", "4092"), (2, ":1: the link carries an")),
        ("green=1, ipoib : ALL;", ("--pkey", "0"), (2, "P_Key 0x0000 is invalid")),
        ("green=1, ipoib : ALL;", ("--pkey", "0x8000"), (2, "P_Key 0x8000 is invalid")),
        ("green=1, ipoib, mtu=9 : ALL;", ("--pkey", "1"), (2, ":1: mtu 9 is out of range")),
        (None, ("--pkey", "1"), (2, "No such file or directory")),
    ],
)
def test_what_a_file_does_not_allow_is_one_line(
    idle: Callable[..., subprocess.CompletedProcess[str]],
    tmp_path: Path,
    text: str | None,
    words: tuple[str, ...],
    refusal: tuple[int, str],
) -> None:
    file = tmp_path / "partitions.conf"
    if text is not None:
        file.write_text(text)
    code, why = refusal
    done = idle("up", "ib9", "--device", "soft:eth0", "--partitions", str(file), *words)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert why in done.stderr


def test_a_configuration_file_names_the_partitions_file_and_a_child_reads_it_again(
    bare: NamespaceLab, tmp_path: Path
) -> None:
    partitions, config = tmp_path / "partitions.conf", tmp_path / "ib0.toml"
    partitions.write_text("Default=0x7fff, ipoib, Q_Key=0x55 : ALL=full;\n")
    config.write_text(f'partitions = "{partitions}"\n')
    host = bare.hosts[0]
    host.options = ["--config", str(config)]
    host.start()
    assert host.ask("show")["qkey"] == "0x00000055"
    with pytest.raises(Exception, match="has no partition 0x8001"):
        host.ask("child-add", pkey="0x8001")
    partitions.write_text(partitions.read_text() + "green=1, ipoib, Q_Key=0x66 : ALL=limited;\n")
    host.ask("child-add", pkey="0x8001")
    shown = ask(host, "ib0.8001", "show")
    assert (shown["qkey"], shown["membership"]) == ("0x00000066", "limited")
    host.stop()
    partitions.write_text("")
    with pytest.raises(LabError, match="no broadcast group"):
        host.start()
