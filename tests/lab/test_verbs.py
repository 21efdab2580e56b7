# SPDX-License-Identifier: BSD-2-Clause
"""The endpoint on the kernel's Soft-RoCE, and Soft-RoCE as the judge of the built-in HCA."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab.machines.mounts import ROOT
from ipoibu.lab.machines.runner import SCENARIOS, Result, python, shell, source
from ipoibu.lab.machines.scenarios.verbs_machine import DEVICE
from tests.lab.bare import run
from tests.lab.reports import load, received_bytes

pytestmark = pytest.mark.lab

CASES = Path(__file__).parent / "scenarios" / "verbs_cases.sh"
PRELUDE = source(SCENARIOS / "verbs_host.sh", CASES)


def host(device: str, command: str) -> list[str]:
    """Return the command of a machine that runs a function of verbs_cases.sh beside the device."""
    return shell(f"{PRELUDE}as_host {device} {command}")


@pytest.mark.parametrize(
    ("first", "second"),
    [("rxe0", "rxe0"), ("rxe0", "soft:vec0"), ("soft:vec0", "rxe0")],
)
def test_two_hosts_converse(lab_kernel: Path, tmp_path: Path, first: str, second: str) -> None:
    commands = [host(first, f"converse {first}"), host(second, f"converse {second}")]
    results: list[Result] = run(lab_kernel, commands, directory=tmp_path, timeout_s=100)
    for result in results:
        pings = re.findall(r"5 packets transmitted, (\d) received", result.check().output)
        assert len(pings) == 3, result.output
        assert min(map(int, pings)) >= 4, result.output  # a busy machine loses some datagrams
    for name, device, index, other in (("a", first, 1, 2), ("b", second, 2, 1)):
        shown = load(tmp_path, f"show-{name}")[0]
        assert (shown["device"], shown["state"], shown["mtu"]) == (device, "up", 2044)
        assert shown["gid"] == f"fe80::ff:fe00:{index}"
        peers = {entry["ip"]: entry["hwaddr"] for entry in load(tmp_path, f"neigh-{name}")}
        tail = f"fe:80:00:00:00:00:00:00:00:00:00:ff:fe:00:00:0{other}"
        assert peers[f"10.9.0.{other}"].endswith(tail)
        assert peers[f"fd00:9::{other}"].endswith(tail)
    for family in ("4", "6"):
        assert (tmp_path / f"group{family}").read_text() == "hello, group\n"
    for direction in ("forward", "backward"):
        assert received_bytes(tmp_path, direction) > 1_000_000
    mgids = {entry["mgid"]: entry["state"] for entry in load(tmp_path, "mcast")}
    assert mgids["ff12:401b:ffff::ffff:ffff"] == "member"
    assert mgids["ff12:401b:ffff::f01:203"] == "member"  # G3: 239.1.2.3
    assert mgids["ff12:601b:ffff::1234"] == "member"
    if second == DEVICE:  # it sent most of the data, a batch for each doorbell
        counters = load(tmp_path, "stats-b")[0]["stats"]
        assert counters["fabric.tx_posted"] > 3 * counters["fabric.tx_doorbells"]
        assert counters["fabric.tx_posted"] > 3 * counters["fabric.tx_signalled"]


def test_hosts_that_meet_as_peers_converse_without_groups(lab_kernel: Path, tmp_path: Path) -> None:
    """A link without multicast between rxe and the built-in HCA: multicast goes by copies."""
    peer = "--peer fe80::ff:fe00:1"
    commands = [host(it, f"converse {it} {peer}") for it in ("rxe0", "soft:vec0")]
    for result in run(lab_kernel, commands, directory=tmp_path, timeout_s=100):
        pings = re.findall(r"5 packets transmitted, (\d) received", result.check().output)
        assert len(pings) == 3, result.output
        assert min(map(int, pings)) >= 4, result.output
    for family in ("4", "6"):
        assert (tmp_path / f"group{family}").read_text() == "hello, group\n"
    for direction in ("forward", "backward"):
        assert received_bytes(tmp_path, direction) > 1_000_000
    for name in "ab":
        counters = load(tmp_path, f"stats-{name}")[0]["stats"]
        assert counters["fabric.unicast_rx_stranger"] == 0
    # b sent to both groups; a may have learned all it needs from the requests of b
    assert counters["fabric.unicast_tx_copies"] > 0


@pytest.mark.parametrize("first", ["rxe0", "soft:vec0"])
def test_hosts_with_two_queues_converse(lab_kernel: Path, tmp_path: Path, first: str) -> None:
    """A further queue has its own queue pair on rxe, and its own UDP port on the built-in HCA."""
    devices = (first, "rxe0")
    commands = [host(device, f"converse {device} --queues 2") for device in devices]
    for result in run(lab_kernel, commands, directory=tmp_path, timeout_s=100):
        pings = re.findall(r"5 packets transmitted, (\d) received", result.check().output)
        assert len(pings) == 3, result.output
        assert min(map(int, pings)) >= 4, result.output
    for direction in ("forward", "backward"):
        assert len(load(tmp_path, direction)["end"]["streams"]) == 8
        assert received_bytes(tmp_path, direction) > 1_000_000
    for family in ("4", "6"):
        assert (tmp_path / f"group{family}").read_text() == "hello, group\n"
    for name in "ab":
        counters = load(tmp_path, f"stats-{name}")[0]["stats"]
        assert counters["queue.0.tx_packets"] > 50
        assert counters["queue.1.tx_packets"] > 50
        assert counters["fabric_errors"] == counters["rx_malformed"] == 0


@pytest.mark.parametrize("server", ["rxe0", "soft:vec0"])
def test_ibv_ud_pingpong_plays_with_the_built_in_hca(
    lab_kernel: Path, tmp_path: Path, server: str
) -> None:
    """Soft-RoCE runs rdma-core's own program, unmodified; the built-in HCA runs ours."""
    program = tmp_path / "build/soft_pingpong"
    make = ["make", "-s", "-C", str(ROOT / "ext/soft"), f"BUILD={program.parent}", str(program)]
    subprocess.run(make, check=True)
    players = {
        "rxe0": "ibv_ud_pingpong -e -d rxe0 -g 0 -n 500 -s 1024",
        "soft:vec0": "/src/soft_pingpong -e -c -d vec0 -n 500 -s 1024",
    }
    client = next(device for device in players if device != server)
    results = run(
        lab_kernel,
        [
            host(server, f"serve {players[server]}"),
            host(client, f"join_in {players[client]} 10.8.0.1"),
        ],
        share=program.parent,
    )
    outputs = dict(
        zip((server, client), (result.check().output for result in results), strict=True)
    )
    assert "500 iters in" in outputs["rxe0"]
    assert "1024 bytes, 500 messages each way in" in outputs["soft:vec0"]


def scenario(lab_kernel: Path, tmp_path: Path, target: str, *args: str) -> Any:
    """Return the report of a scenario that runs in one machine."""
    command = python(f"tests.lab.scenarios.{target}", *args)
    run(lab_kernel, [command], directory=tmp_path)[0].check()
    return load(tmp_path, "report-a")


def test_a_broken_queue_pair_comes_back_with_every_buffer(lab_kernel: Path, tmp_path: Path) -> None:
    counters = scenario(lab_kernel, tmp_path, "verbs_pair:broken")
    assert counters["fabric_errors"] == counters["fabric_recoveries"] == 20
    assert counters["flushed"] == counters["rx_failed"]
    assert 20 * 1000 < counters["flushed"] <= 20 * 1024  # a few have just received something
    assert counters["handles_created"] <= 4  # they outlive the breaks


def test_a_send_that_fails_on_rxe_does_not_end_the_endpoint(
    lab_kernel: Path, tmp_path: Path
) -> None:
    counters = scenario(lab_kernel, tmp_path, "verbs_pair:unplugged")
    assert counters["failures"] >= 1
    assert counters["fabric_errors"] == counters["fabric_recoveries"]


def test_an_oversize_datagram_does_not_break_the_queue_pair(
    lab_kernel: Path, tmp_path: Path
) -> None:
    counters = scenario(lab_kernel, tmp_path, "verbs_pair:oversize")
    assert counters["fabric_errors"] == counters["rx_failed"] == 0
    assert counters["rx_packets"] >= 50


def test_an_endpoint_on_a_device_that_is_removed_fails_and_lets_it_go(
    lab_kernel: Path, tmp_path: Path
) -> None:
    seen = scenario(lab_kernel, tmp_path, "verbs_pair:removed")
    assert seen == {"failures": ["rxe0: the device is gone"], "devices": ""}


def test_the_endpoint_moves_to_the_new_gid_of_its_port(lab_kernel: Path, tmp_path: Path) -> None:
    moved = scenario(lab_kernel, tmp_path, "verbs_pair:readdressed")
    assert moved["before"].endswith("00:ff:fe:00:01:01")
    assert moved["after"].endswith("00:ff:fe:00:09:09")


def test_every_queues_queue_pair_recovers_follows_the_gid_and_is_our_own(
    lab_kernel: Path, tmp_path: Path
) -> None:
    seen = scenario(lab_kernel, tmp_path, "verbs_pair:tx_queues")
    assert seen["during"]["qp"] == seen["alone"]["qp"] + 3 + 1
    assert seen["fabric_errors"] == seen["fabric_recoveries"] >= 2
    assert seen["after"].endswith("00:ff:fe:00:09:09")
    assert seen["echo"] == []  # E8
    # Each queue sent four packets; one may have been a miss, which the engine sends by queue 0.
    assert min(seen[f"queue.{tx_queue}.tx_packets"] for tx_queue in range(3)) >= 3


def test_a_port_whose_mtu_shrinks_below_the_links_is_down(lab_kernel: Path, tmp_path: Path) -> None:
    assert scenario(lab_kernel, tmp_path, "verbs_pair:narrowed") == "came back"


def test_an_application_lends_its_context_and_domain(lab_kernel: Path, tmp_path: Path) -> None:
    seen = scenario(lab_kernel, tmp_path, "verbs_pair:lent")
    assert seen["after"] == seen["alone"]
    assert seen["during"]["qp"] == seen["alone"]["qp"] + 2
    assert seen["during"]["pd"] == seen["alone"]["pd"]  # no domain but the lent one
    assert seen["during"]["ctx"] == seen["alone"]["ctx"]


@pytest.mark.parametrize("cycles", ["250", pytest.param("1000", marks=pytest.mark.nightly)])
def test_endpoints_without_end_leave_nothing_on_the_device(
    lab_kernel: Path, tmp_path: Path, cycles: str
) -> None:
    """Two machines at once: one opens by name, one on a lent context, with more handles than rxe has."""
    results = run(
        lab_kernel,
        [
            python("tests.lab.scenarios.verbs_cycles:own_device", cycles, "4"),
            python("tests.lab.scenarios.verbs_cycles:lent_device", "50", "700"),
        ],
        directory=tmp_path,
        timeout_s=100,
    )
    for result in results:
        result.check()
    reports = [load(tmp_path, f"report-{name}") for name in "ab"]
    for report in reports:
        before, after = report["before"], report["after"]
        assert after["rss_kib"] - before["rss_kib"] < 512
        for what in ("resources", "descriptors", "threads"):
            assert after[what] == before[what], what
    assert reports[1]["handles"] > 32767  # RXE_MAX_AH, of one context all the time


def test_a_small_port_carries_ipv4_and_refuses_ipv6(lab_kernel: Path, tmp_path: Path) -> None:
    result = run(lab_kernel, [shell(f"{PRELUDE}narrow_host")], directory=tmp_path)[0].check()
    assert "mtu 1020" in result.output
    assert "IPv6 needs an MTU of 1280" in result.output


@pytest.mark.parametrize(
    ("device", "status", "words"),
    [
        ("rxe7", 3, ["rxe7: no such RDMA device", "there are: rxe0"]),
        ("va", 3, ["soft:va"]),
        ("rxe0/2", 3, ["rxe0", "no port 2"]),
    ],
)
def test_a_missing_device_or_port_is_named(
    lab_kernel: Path, tmp_path: Path, device: str, status: int, words: list[str]
) -> None:
    command = f"ipoibu up ib0 --device {device}"
    script = f"{PRELUDE}call verbs_machine:on_a_veth; {command} && exit 1; echo status $?"
    output = run(lab_kernel, [shell(script)], directory=tmp_path)[0].check().output
    assert output.splitlines()[-1] == f"status {status}"
    for word in words:
        assert word in output


def doctor(lab_kernel: Path, tmp_path: Path, before: str) -> dict[str, dict[str, str]]:
    """Return the findings of `ipoibu doctor --device rxe0` after `before`, by check."""
    script = f"""{PRELUDE}call verbs_machine:on_a_veth
        {before}
        ipoibu doctor --device rxe0 -j >/run/lab/doctor.json || true
    """
    run(lab_kernel, [shell(script)], directory=tmp_path)[0].check()
    return {finding["check"]: finding for finding in load(tmp_path, "doctor")}


def test_the_doctor_finds_nothing_wrong_with_rxe(lab_kernel: Path, tmp_path: Path) -> None:
    findings = doctor(lab_kernel, tmp_path, "")
    statuses = {name: finding["status"] for name, finding in findings.items()}
    assert {name: status for name, status in statuses.items() if status != "ok"} == {}
    assert "fe80::ff:fe00:101 (index 0, RoCE v2)" in findings["gid"]["detail"]


def test_the_doctor_names_the_remedies(lab_kernel: Path, tmp_path: Path) -> None:
    """All at once: a small MTU, no address behind the GID, no nodes, no memory to lock."""
    findings = doctor(
        lab_kernel,
        tmp_path,
        """
        ip link set va mtu 1500
        ip -6 addr flush dev va
        mount -t tmpfs none /dev/infiniband
        ulimit -l 64
        ipoibu() { setpriv --bounding-set -ipc_lock "$(type -P ipoibu)" "$@"; }
        """,
    )
    remedies = {
        name: finding["remedy"] for name, finding in findings.items() if finding["status"] != "ok"
    }
    assert remedies == {
        "rdma_nodes": "modprobe ib_uverbs",
        "memlock": "ulimit -l unlimited",
        "gid": "sysctl -w net.ipv6.conf.va.disable_ipv6=0; "
        "ip link set va addrgenmode eui64 down; ip link set va up",
        "mtu": "ip link set va mtu 2128",
    }


def test_too_little_memory_to_lock_is_an_error_with_a_remedy(
    lab_kernel: Path, tmp_path: Path
) -> None:
    script = f"""{PRELUDE}call verbs_machine:on_a_veth
        ulimit -l 64
        setpriv --bounding-set -ipc_lock ipoibu up ib0 --device rxe0 && exit 1
        echo "status $?"
    """
    output = run(lab_kernel, [shell(script)], directory=tmp_path)[0].check().output
    assert "rxe0" in output
    assert "ulimit -l unlimited" in output
    assert output.splitlines()[-1] == "status 1"
    assert "Traceback" not in output
