# SPDX-License-Identifier: BSD-2-Clause
"""The metrics of interfaces, their names and help, as Prometheus' own tool judges them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ipoibu.cli.main import main
from ipoibu.cli.view import Asked
from ipoibu.daemon.metrics import metrics
from ipoibu.daemon.metrics.counters import sections
from tests.doubles.endpoint import EndpointDouble
from tests.interpreter import run

pytest.importorskip("prometheus_client")
from prometheus_client import generate_latest

ROOT = Path(__file__).parents[3]
LABELS = 'device="soft:eth0",interface="ib0",port="1"'
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")


class Endpoint(EndpointDouble):
    """An endpoint with one neighbour of each kind, and the given counters."""

    def __init__(
        self,
        counters: Mapping[str, int] | None = None,
        name: str = "ib0",
        parent: str | None = None,
        traffic: tuple[int, ...] = (),
        rails: tuple[tuple[str, int], ...] = (("soft:eth0", 1), ("soft:eth1", 1)),
    ) -> None:
        self._name, self._parent = name, parent
        self._traffic, self._rails = traffic, rails
        self._counters = dict(counters or {})

    def show(self) -> dict[str, Any]:
        return {
            "name": self._name,
            "device": "soft:eth0",
            "port": 1,
            "link_layer": "Ethernet",
            "state": "up",
            "mode": "datagram",
            "mtu": 2044,
            "parent": self._parent,
            "pkey": "0xffff",
            "rails": [
                self._rail(0, "active")
                | dict(zip(metrics.RAIL_TRAFFIC, self._traffic, strict=False)),
                self._rail(1, "down") | dict.fromkeys(metrics.RAIL_TRAFFIC),
            ],
        }

    def _rail(self, index: int, state: str) -> dict[str, Any]:
        device, port = self._rails[index]
        return {"device": device, "port": port, "state": state, "since_s": 1.0}

    def neighbours(self) -> list[dict[str, Any]]:
        states = (("reachable", False), ("reachable", False), ("stale", True))
        return [{"state": state, "router": router} for state, router in states]

    def groups(self) -> list[dict[str, Any]]:
        return [{"kind": "full", "state": "member"}]

    def connections(self) -> list[dict[str, Any]]:
        return [{"role": "active", "state": "established"}]

    def peers(self) -> list[dict[str, Any]]:
        return []

    def guests(self) -> list[dict[str, Any]]:
        return []

    def stats(self) -> dict[str, int]:
        return self._counters


def exposed(*endpoints: Endpoint) -> str:
    observations = [json.loads(json.dumps(metrics.observe(it))) for it in endpoints]
    return generate_latest(metrics.registry(lambda: observations)).decode()


def every_counter() -> dict[str, int]:
    names = [it.prefix + name for it in sections() for name in it.counters]
    return dict.fromkeys([*names, "queue.0.tx_packets", "queue.1.tx_packets"], 1)


def test_a_counter_has_its_meaning_as_help() -> None:
    text = exposed(Endpoint({"engine.neigh_moved": 3}))
    assert (
        "# HELP ipoibu_engine_neigh_moved_total a neighbour changed its hardware address (a restart,"
        " or poisoning); logged\n# TYPE ipoibu_engine_neigh_moved_total counter\n"
        f"ipoibu_engine_neigh_moved_total{{{LABELS}}} 3.0\n"
    ) in text


def test_a_counter_with_another_name_now_has_its_former_metric_too() -> None:
    text = exposed(Endpoint({"engine.path_pending_full": 3}))
    former = "ipoibu_engine_way_pending_full_total"
    assert f"ipoibu_engine_path_pending_full_total{{{LABELS}}} 3.0\n" in text
    assert f"\n{former}{{{LABELS}}} 3.0\n" in text
    (help_text,) = [it for it in text.splitlines() if it.startswith(f"# HELP {former} ")]
    assert "deprecated" in help_text
    assert "use ipoibu_engine_path_pending_full_total" in help_text


def test_a_former_name_is_that_of_no_counter_now() -> None:
    for section in sections():
        assert set(section.renamed.values()) <= set(section.counters)
        assert not set(section.renamed) & set(section.counters)


def test_each_rail_has_its_state() -> None:
    text = exposed(Endpoint({}))
    for rail, state in (("soft:eth0", "active"), ("soft:eth1", "down")):
        assert f'ipoibu_rails{{{LABELS},rail="{rail}",state="{state}"}} 1.0\n' in text


def test_two_ports_of_one_device_are_two_rails() -> None:
    """One series for both would be counted twice, or refused."""
    endpoint = Endpoint({}, traffic=(1, 2, 3, 4), rails=(("mlx4_0", 1), ("mlx4_0", 2)))
    text = exposed(endpoint)
    for rail, state in (("mlx4_0/1", "active"), ("mlx4_0/2", "down")):
        assert f'ipoibu_rails{{{LABELS},rail="{rail}",state="{state}"}} 1.0\n' in text
    assert f'ipoibu_rail_packets_transmitted_total{{{LABELS},rail="mlx4_0/1"}} 1.0\n' in text


def test_each_rail_with_a_queue_pair_has_its_traffic() -> None:
    text = exposed(Endpoint({}, traffic=(1, 2, 3, 4)))
    found = re.findall(r"^ipoibu_rail_(\w+)_total\{.*rail=\"(.*)\"\} ([\d.]+)$", text, re.MULTILINE)
    assert found == [
        ("packets_transmitted", "soft:eth0", "1.0"),
        ("data_transmitted_bytes", "soft:eth0", "2.0"),
        ("packets_received", "soft:eth0", "3.0"),
        ("data_received_bytes", "soft:eth0", "4.0"),
    ]
    assert "ipoibu_rail_" not in exposed(Endpoint({}))


def test_packets_and_bytes_have_the_names_of_node_exporter() -> None:
    counters = {"tx_packets": 1, "tx_bytes": 2, "rx_packets": 3, "rx_bytes": 4}
    counters |= {"tx_multicast_packets": 5, "queue.1.tx_packets": 6, "fabric.rx_bytes": 7}
    text = exposed(Endpoint(counters))
    found = dict(re.findall(r"^(ipoibu_\w+_total)\{.*\} ([\d.]+)$", text, re.MULTILINE))
    assert found == {
        "ipoibu_packets_transmitted_total": "1.0",
        "ipoibu_data_transmitted_bytes_total": "2.0",
        "ipoibu_packets_received_total": "3.0",
        "ipoibu_data_received_bytes_total": "4.0",
        "ipoibu_multicast_packets_transmitted_total": "5.0",
        "ipoibu_queue_packets_transmitted_total": "6.0",
        "ipoibu_fabric_data_received_bytes_total": "7.0",
    }
    assert 'port="1",queue="1"} 6.0' in text


def test_no_two_counters_share_a_metric() -> None:
    names = {name for name in every_counter() if not name.startswith("queue.")}
    assert len({metrics.metric_name(name) for name in names}) == len(names)


def test_tables_are_counted_by_state_and_kind() -> None:
    text = exposed(Endpoint())
    assert f'ipoibu_neighbours{{{LABELS[:-9]},peer="host",port="1",state="reachable"}} 2.0' in text
    assert f'ipoibu_neighbours{{{LABELS[:-9]},peer="router",port="1",state="stale"}} 1.0' in text
    assert 'kind="full",port="1",state="member"} 1.0' in text
    assert 'port="1",role="active",state="established"} 1.0' in text
    assert f"ipoibu_link_up{{{LABELS}}} 1.0" in text
    assert f"ipoibu_mtu_bytes{{{LABELS}}} 2044.0" in text


def test_a_port_shows_its_counters_once_under_the_parents_name() -> None:
    counters = {"fabric.rx_calls": 9, "tx_packets": 1}
    text = exposed(Endpoint(counters), Endpoint(counters, "ib0.8001", "ib0"))
    assert text.count("ipoibu_fabric_rx_calls_total{") == 1
    assert text.count("ipoibu_packets_transmitted_total{") == 2


def test_a_counter_that_nobody_explained_is_shown_all_the_same() -> None:
    assert f"ipoibu_engine_of_tomorrow_total{{{LABELS}}} 1.0" in exposed(
        Endpoint({"engine.of_tomorrow": 1})
    )


def test_no_interface_makes_no_metric() -> None:
    assert exposed() == ""


@needs_promtool
def test_promtool_finds_nothing_to_mend() -> None:
    text = exposed(Endpoint(every_counter()), Endpoint(every_counter(), "ib0.8001", "ib0"))
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_page_names_every_gauge() -> None:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    gauges = re.findall(r"^# TYPE (\w+) gauge", exposed(Endpoint()), re.MULTILINE)
    assert re.findall(r"^\| `(ipoibu_\w+)` \|", page, re.MULTILINE) == gauges


# Rules and dashboard


def _metrics_of(expressions: str) -> set[str]:
    return set(re.findall(r"\bipoibu_\w+", expressions))


def _known() -> set[str]:
    return set(re.findall(r"^# TYPE (\w+)", exposed(Endpoint(every_counter())), re.MULTILINE))


@needs_promtool
def test_the_page_has_the_metrics_of_the_code() -> None:
    run(["docs/make/list_metrics.py", "--check"])


def test_promtool_accepts_and_tests_the_rules(tmp_path: Path) -> None:
    for words in (["check", "rules", "ipoibu.rules.yml"], ["test", "rules", "ipoibu.test.yml"]):
        done = subprocess.run(
            ["promtool", *words],
            cwd=ROOT / "docs/prometheus",
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboard_use_metrics_that_exist() -> None:
    rules = (ROOT / "docs/prometheus/ipoibu.rules.yml").read_text("utf-8")
    expressions = "\n".join(re.findall(r"^ +expr: (.*)$", rules, re.MULTILINE))
    dashboard = json.loads((ROOT / "docs/prometheus/dashboard.json").read_text("utf-8"))
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(shown) > 5
    used = _metrics_of(expressions) | _metrics_of("\n".join(shown))
    assert used
    assert {name for name in used if not name.endswith("_")} <= _known()


# The command


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(command: str, name: str | None) -> Asked:
        assert command == "metrics"
        name = name or "ib0"
        return Asked([(name, metrics.observe(Endpoint({"tx_packets": 1}, name)))])

    monkeypatch.setattr("ipoibu.cli.view.ask", ask)


@pytest.mark.usefixtures("answered")
def test_the_command_prints_the_named_interfaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "ib1", "ib2"]) == 0
    text = capsys.readouterr().out
    assert re.findall(r'^ipoibu_link_up\{.*interface="(\w+)"', text, re.MULTILINE) == ["ib1", "ib2"]


@pytest.mark.usefixtures("answered")
def test_a_text_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    file = tmp_path / "ipoibu.prom"
    file.write_text("old")
    before = file.stat().st_ino
    assert main(["metrics", "--textfile", str(file)]) == 0
    assert "ipoibu_packets_transmitted_total" in file.read_text()
    assert file.stat().st_ino != before
    assert stat.S_IMODE(file.stat().st_mode) & 0o444 == 0o444 & ~_umask()
    assert list(tmp_path.iterdir()) == [file]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.usefixtures("answered")
def test_a_text_file_replaces_no_device(capsys: pytest.CaptureFixture[str]) -> None:
    """Root's rename would put a file into the place of /dev/stdout."""
    assert main(["metrics", "--textfile", "/dev/null"]) == 2
    assert "/dev/null: no regular file" in capsys.readouterr().err


@pytest.mark.usefixtures("answered")
def test_a_text_file_that_cannot_be_written_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "ipoibu.prom"
    assert main(["metrics", "--textfile", str(file)]) == 1
    assert capsys.readouterr().err == f"ipoibu: {file}: No such file or directory\n"


def test_a_missing_library_is_an_error_that_names_its_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert main(["metrics"]) == 1
    assert "python3-prometheus-client" in capsys.readouterr().err
