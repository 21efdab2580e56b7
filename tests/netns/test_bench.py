# SPDX-License-Identifier: BSD-2-Clause
"""The benchmark as a whole: that it runs, and that its report is complete. Speed is no criterion."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ipoibu.bench.contender import Absent, Contender, Ipoibu, Relay, number_wire, wait_answer
from ipoibu.bench.procedures import run as procedure
from ipoibu.bench.procedures.report import table
from ipoibu.bench.procedures.times import Times
from ipoibu.bench.run import CONTENDERS, Plan, contest
from ipoibu.bench.sandboxes import Pasta, Run, Slirp4netns
from ipoibu.bench.traffic import request_response, tcp
from ipoibu.cli.main import main
from ipoibu.lab import NamespaceLab

pytestmark = pytest.mark.netns

FIGURES = {
    "setup_s",
    "tcp_gbit_s",
    "udp_gbit_s",
    "udp_lost_percent",
    "super_gbit_s",
    "super_lost_percent",
    "packets_s",
    "rr_p50_us",
    "rr_p99_us",
    "ping_p50_us",
    "ping_p90_us",
    "ping_p99_us",
    "quiet_ping_p50_us",
    "quiet_ping_p90_us",
}
OF_A_PROCESS = {"tcp_ns_per_byte", "super_ns_per_byte", "ns_per_packet", "rss_mib"}


@pytest.mark.parametrize("underlay", ["routed4", "routed6"])
def test_contenders_meet_across_a_router(underlay: str) -> None:
    plan = Plan(rounds=1, seconds=3, only=("datagram", "vxlan", "queues"), underlay=underlay)
    chosen = [it for it in CONTENDERS if plan.wants(it.name)]
    runs, absent, failed = contest(chosen, plan, print)
    assert failed == {}
    assert "queues" in absent  # one thread knows the peers
    assert runs["datagram"][0]["tcp_gbit_s"] > 0
    assert {"datagram"} <= set(runs) <= {"datagram", "vxlan"}


@pytest.mark.timeout(600)
def test_a_short_run_fills_the_whole_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "report.json"
    words = ["--rounds", "1", "--seconds", "3", "--streams", "2", "--json", str(file)]
    code = main(["bench", *words, "--only", "datagram,veth,relay,tunnel"])
    seen = capsys.readouterr()
    report = json.loads(file.read_text())
    assert report["failed"] == {}
    assert code == 0
    assert sorted(report["runs"]) == ["datagram", "relay", "tunnel", "veth"]
    for name, samples in report["runs"].items():
        (sample,) = samples
        assert set(sample) == (FIGURES if name == "veth" else FIGURES | OF_A_PROCESS)
        assert all(figure >= 0 for figure in sample.values())
        assert sample["tcp_gbit_s"] > 0
        assert sample["ping_p50_us"] <= sample["ping_p90_us"] <= sample["ping_p99_us"]
    assert report["environment"]["cpus"] >= 1
    assert len(report["environment"]["load_average"]) == 3
    assert f"2 streams of TCP by {report['environment']['tcp_congestion_control']}" in seen.out
    assert "datagram" in seen.out
    assert "not measured" in seen.out  # wireguard-go did not run


@pytest.mark.parametrize("contender", [Run("run"), Pasta(), Slirp4netns()], ids=lambda it: it.name)
def test_the_programs_run_in_sandboxes_of_contenders_without_privilege(
    contender: Contender,
) -> None:
    with NamespaceLab(start=False) as lab:
        number_wire(lab)
        with contender.running(lab) as running:
            ends = running.ends(lab)
            wait_answer(ends)
            assert not {ends.sender.fd, ends.receiver.fd} & {it.namespace.fd for it in lab.hosts}
            assert len(ends.pids) == 2
            sample = tcp(ends, 3) | request_response(ends, 3)
    assert sample["tcp_gbit_s"] > 0
    assert sample["tcp_ns_per_byte"] > 0
    assert sample["rr_p50_us"] > 0


BRIEF = Times(0.05, 2, 0.2, 0.1, 1, 0.01, 2, 0.3)


def test_frames_of_known_sizes_cross_the_link_and_the_control() -> None:
    plan = procedure.Plan("rfc2544", BRIEF, only=("datagram",), sizes=(512, 4000))
    report = procedure.run(plan, print)
    assert (report["absent"], report["failed"]) == ({}, {})
    assert list(report["runs"]) == ["datagram", "control"]
    for name, (sample,) in report["runs"].items():
        (details,) = report["details"][name]
        assert list(details["sizes"]) == ["512"]  # 4000 bytes do not fit into the link's packets
        seen = details["sizes"]["512"]
        assert any(it["sent"] == it["received"] > 0 for it in seen["trials"])
        assert sample["throughput_512_frames_s"] > 0
        for each in seen.get("delays", ()):  # a very busy machine may leave one frame a trial
            assert each["count"] > 1
            assert 0 < each["least_us"] <= each["median_us"] <= each["worst_us"]
        bursts = seen["back_to_back"]
        assert len(bursts["each"]) == 2
        assert bursts["is_least"] == (max(bursts["each"]) == bursts["most"])
        assert seen["loss"][0]["percent"] == 100
    assert report["details"]["datagram"][0]["mtu"] == 2044
    assert "virtual" in table(report) or not report["environment"]["hypervisor"]


def test_tcp_has_the_metrics_of_its_rfc() -> None:
    report = procedure.run(procedure.Plan("rfc6349", BRIEF, only=("datagram",), streams=2), print)
    assert (report["absent"], report["failed"]) == ({}, {})
    (sample,), (control,) = report["runs"]["datagram"], report["runs"]["control"]
    assert (sample["path_mtu"], control["path_mtu"]) == (2044, 65535)
    for each in (sample, control):
        assert each["tcp_gbit_s"] > 0
        assert each["transfer_time_ratio"] > 0
        assert 0 < each["tcp_efficiency_percent"] <= 100
        assert each["bdp_bytes"] > 0
    told = report["details"]["datagram"][0]["transfer"]
    assert told["sent"] >= told["bytes"] > 0
    assert (
        told["mss"] == 2016 - 52
    )  # a train of full packets; headers of IPv4 and TCP, and its time stamps
    assert "TCP, 2 streams" in table(report)


def test_a_contender_for_more_cpus_than_there_are_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    two = Ipoibu("two", ("--queues", "2"), cpus=2)
    runs, absent, failed = contest([two], Plan(rounds=1, seconds=1), lambda line: None)
    assert (runs, failed) == ({}, {})
    assert absent == {"two": "it needs 2 CPUs, and there is 1"}


def test_options_that_this_version_refuses_make_a_contender_absent() -> None:
    odd = Ipoibu("odd", ("--mode", "telepathic"))
    with (
        NamespaceLab(start=False) as lab,
        pytest.raises(Absent, match="telepathic"),
        odd.running(lab),
    ):
        pass


def test_a_contender_that_fails_is_out_and_the_others_are_measured() -> None:
    bad = Relay("bad", link="a-name-that-is-too-long")
    runs, absent, failed = contest([bad], Plan(rounds=2, seconds=1), lambda line: None)
    assert (runs, absent) == ({}, {})
    assert "did not start" in failed["bad"]
