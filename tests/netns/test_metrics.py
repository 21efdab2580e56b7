# SPDX-License-Identifier: BSD-2-Clause
"""A real Prometheus scrapes a confined interface and its child."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

Cli = Callable[..., subprocess.CompletedProcess[str]]
Until = Callable[..., Any]

METRICS = "127.0.0.1:9838"
PROMETHEUS = "127.0.0.1:9090"
CONFIGURATION = f"""\
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: ipoibu
    static_configs: [{{targets: ["{METRICS}"]}}]
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with NamespaceLab(start=False) as lab:
        host = lab.hosts[0]
        host.options += ["--metrics", METRICS]
        host.start()
        yield host


@pytest.fixture
def prometheus(host: Host, tmp_path: Path) -> Iterator[None]:
    (tmp_path / "prometheus.yml").write_text(CONFIGURATION)
    server = host.namespace.popen(
        [
            "prometheus",
            f"--config.file={tmp_path}/prometheus.yml",
            f"--storage.tsdb.path={tmp_path}/data",
            f"--web.listen-address={PROMETHEUS}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield
    server.terminate()
    server.wait(60)


def _get(host: Host, url: str) -> bytes | None:
    def get() -> bytes | None:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            return None

    return host.namespace.inside(get)


def _query(host: Host, expression: str) -> list[dict[str, str]]:
    query = urllib.parse.urlencode({"query": expression})
    answer = _get(host, f"http://{PROMETHEUS}/api/v1/query?{query}")
    results = json.loads(answer)["data"]["result"] if answer else []
    return [result["metric"] | {"value": result["value"][1]} for result in results]


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus here")
@pytest.mark.usefixtures("prometheus")
def test_prometheus_scrapes_the_interface_and_its_child(host: Host, cli: Cli, until: Until) -> None:
    assert cli(host, "child", "add", "ib0", "0x8001").returncode == 0
    mtus = until(lambda: len(found := _query(host, "ipoibu_mtu_bytes")) == 2 and found)
    assert {(it["interface"], it["device"], it["value"]) for it in mtus} == {
        ("ib0", "soft:eth0", "2044"),
        ("ib0.8001", "soft:eth0", "2044"),
    }
    # While the machine is busy, a scrape may be late, which leaves no values until the next one.
    until(
        lambda: {it.get("parent") for it in _query(host, "ipoibu_interface_info")} == {None, "ib0"},
    )
    until(lambda: len(_query(host, "ipoibu_fabric_packets_transmitted_total")) == 1)
    until(lambda: _query(host, "ipoibu_commands_total{interface='ib0'} > 0"))
    assert cli(host, "child", "del", "ib0", "0x8001").returncode == 0


def test_the_command_prints_what_a_scrape_returns(host: Host, cli: Cli) -> None:
    scraped = _get(host, f"http://{METRICS}/metrics")
    assert scraped is not None
    printed = cli(host, "metrics", "ib0").stdout
    kinds = [line for line in printed.splitlines() if line.startswith("# TYPE ipoibu_")]
    assert len(kinds) > 50
    assert set(kinds) <= set(scraped.decode().splitlines())


def test_a_taken_address_ends_the_start_with_one_line(host: Host, cli: Cli) -> None:
    done = cli(host, "up", "ib9", "--device", "soft:eth0", "--metrics", METRICS)
    assert done.returncode == 1
    assert done.stderr == (
        f"ipoibu: --metrics {METRICS}: cannot listen there: Address already in use\n"
    )
