# SPDX-License-Identifier: BSD-2-Clause
"""Prometheus metrics of interfaces: every counter of `ipoibu stats`, and gauges of the state.

`observe` runs in the daemon and needs no library. `Metrics` is a collector of prometheus_client, which
formats the text, for `ipoibu metrics` and for `ipoibu up --metrics`. docs/reference/metrics.md has the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from ipoibu.base.device_name import device_text
from ipoibu.base.errors import IpoibuError
from ipoibu.daemon.metrics.counters import counter, split_queue

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    from ipoibu.endpoint.contract import EndpointContract

Observation = dict[str, Any]

LABELS: Final = ("interface", "device", "port")
_PROPERTIES: Final = ("mode", "pkey", "link_layer", "parent")

# Names of node_exporter's InfiniBand collector for counters of the same meaning
NAMES: Final = {
    "tx_packets": "packets_transmitted",
    "rx_packets": "packets_received",
    "tx_bytes": "data_transmitted_bytes",
    "rx_bytes": "data_received_bytes",
    "tx_multicast_packets": "multicast_packets_transmitted",
}
RAIL_TRAFFIC: Final = ("tx_packets", "tx_bytes", "rx_packets", "rx_bytes")
# The pump counts `fabric_recoveries`.
_EXCEPTIONS: Final = {"fabric.recoveries": "fabric_queue_pair_recoveries"}

# (metric, help, labels) of the gauges that each interface has once
STATES: Final = (
    ("interface_info", "1; the labels describe it", _PROPERTIES),
    ("link_up", "1 while the interface has joined its link and carries traffic, else 0", ()),
    ("mtu_bytes", "IP MTU of the interface", ()),
)

# (key of an observation, metric, help, labels that each row of the observation has)
TALLIES: Final = (
    ("neighbours", "neighbours", "neighbours by state of RFC 4861", ("state", "peer")),
    ("groups", "groups", "multicast groups by kind of membership", ("kind", "state")),
    ("connections", "connections", "connections of connected mode", ("role", "state")),
    ("rails", "rails", "devices of an interface with several, by state", ("rail", "state")),
)


def observe(endpoint: EndpointContract) -> Observation:
    """Return the state of one interface for its metrics, as plain values: counts, not the tables."""
    shown = endpoint.show()
    neighbours = (
        entry | {"peer": "router" if entry["router"] else "host"} for entry in endpoint.neighbours()
    )
    rails = [
        rail | {"rail": device_text(rail["device"], rail["port"])}
        for rail in shown.get("rails") or ()
    ]
    tables = (neighbours, endpoint.groups(), endpoint.connections(), rails)
    tallies = {
        key: _tally(table, labels)
        for (key, _, _, labels), table in zip(TALLIES, tables, strict=True)
    }
    properties = {key: shown[key] for key in ("name", "device", "port", "state", "mtu")}
    properties |= {key: shown.get(key) or "" for key in _PROPERTIES}
    traffic = [
        {"rail": rail["rail"]} | {name: rail[name] for name in RAIL_TRAFFIC}
        for rail in rails
        if rail.get("tx_packets") is not None  # not every rail has a queue pair
    ]
    return properties | tallies | {"stats": endpoint.stats(), "rail_traffic": traffic}


def _tally(table: Iterable[Mapping[str, Any]], labels: Sequence[str]) -> list[dict[str, Any]]:
    counts = Counter(tuple(str(entry[label]) for label in labels) for entry in table)
    return [dict(zip(labels, key, strict=True)) | {"count": n} for key, n in counts.items()]


def metric_name(name: str) -> str:
    """Return the metric, without `_total`, of the counter that `ipoibu stats` prints as `name`."""
    queue, name = split_queue(name)
    prefix, _, base = name.rpartition(".")
    parts = ("ipoibu", "queue" if queue else "", prefix, NAMES.get(base, base))
    return f"ipoibu_{_EXCEPTIONS[name]}" if name in _EXCEPTIONS else "_".join(filter(None, parts))


class Metrics:
    """A collector of prometheus_client that calls `observations` for each exposition."""

    def __init__(self, observations: Callable[[], Iterable[Observation]]) -> None:
        self._observations = observations

    def collect(self) -> Iterator[Metric]:
        observations = list(self._observations())
        if observations:
            yield from _gauges(observations)
            yield from _counters(observations)

    def describe(self) -> Iterable[Metric]:
        """Describe nothing, so that the registration observes nothing."""
        return ()


def registry(observations: Callable[[], Iterable[Observation]]) -> CollectorRegistry:
    """Return a registry with these metrics only; `IpoibuError` if prometheus_client is missing."""
    try:
        from prometheus_client import CollectorRegistry
    except ImportError as error:
        raise IpoibuError(
            "metrics need the library prometheus_client: install python3-prometheus-client (Debian)"
            " or `pip install ipoibu[metrics]`"
        ) from error
    made = CollectorRegistry(auto_describe=False)
    made.register(cast("Collector", Metrics(observations)))
    return made


def _labels(observation: Observation) -> list[str]:
    return [str(observation[key]) for key in ("name", "device", "port")]


def _gauges(observations: Sequence[Observation]) -> Iterator[GaugeMetricFamily]:
    from prometheus_client.core import GaugeMetricFamily

    def gauge(name: str, text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"ipoibu_{name}", text, labels=[*LABELS, *labels])

    info, is_up, mtu = (gauge(*state) for state in STATES)
    for it in observations:
        info.add_metric([*_labels(it), *(str(it[key]) for key in _PROPERTIES)], 1)
        is_up.add_metric(_labels(it), it["state"] == "up")
        mtu.add_metric(_labels(it), it["mtu"])
    yield from (info, is_up, mtu)
    for key, name, text, labels in TALLIES:
        family = gauge(name, text, labels)
        for it in observations:
            for row in it[key]:
                family.add_metric([*_labels(it), *(row[label] for label in labels)], row["count"])
        yield family


def _counters(observations: Sequence[Observation]) -> Iterable[CounterMetricFamily]:
    families: dict[str, CounterMetricFamily] = {}
    for it in observations:
        for name, value in it["stats"].items():
            if it["parent"] and counter(name).is_per_port:
                continue  # the parent, which has opened the port, shows it
            queue, _ = split_queue(name)
            family = families.setdefault(metric_name(name), _family(name))
            family.add_metric([*_labels(it), *([queue] if queue else [])], value)
            if (former := counter(name).former) is not None:
                family = families.setdefault(metric_name(former), _former_family(former, name))
                family.add_metric(_labels(it), value)
    return [*families.values(), *_rail_counters(observations)]


def _rail_counters(observations: Sequence[Observation]) -> Iterator[CounterMetricFamily]:
    """The traffic of each rail."""
    from prometheus_client.core import CounterMetricFamily

    for name in RAIL_TRAFFIC:
        text = f"{name} of one device of several, since its queue pair was made"
        labels = [*LABELS, "rail"]
        family = CounterMetricFamily(f"ipoibu_rail_{NAMES[name]}", text, labels=labels)
        for it in observations:
            for rail in it.get("rail_traffic", ()):  # a daemon of an earlier version has none
                family.add_metric([*_labels(it), rail["rail"]], rail[name])
        if family.samples:
            yield family


def _former_family(former: str, name: str) -> CounterMetricFamily:
    """The metric of a counter that has another name now; the next release no longer has it."""
    from prometheus_client.core import CounterMetricFamily

    text = f"deprecated, and gone in the next release: use {metric_name(name)}_total"
    return CounterMetricFamily(metric_name(former), text, labels=LABELS)


def _family(name: str) -> CounterMetricFamily:
    from prometheus_client.core import CounterMetricFamily

    queue, _ = split_queue(name)
    text = counter(name).meaning or "a counter that this version of ipoibu does not explain"
    labels = [*LABELS, *(["queue"] if queue else [])]
    return CounterMetricFamily(metric_name(name), text, labels=labels)
