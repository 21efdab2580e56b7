# SPDX-License-Identifier: BSD-2-Clause
"""The result of a run: medians, ratios to the yardsticks and VXLAN of the same round, targets, tables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from ipoibu.bench.html_report import Part, Section, Table
from ipoibu.bench.picture import bars, curves
from ipoibu.bench.statistic import Figures, ratio, spread

BASE: Final = "vxlan"
YARDSTICK: Final = "tunnel"  # the contender that the targets refer to
CONTROL: Final = "tunnel-again"  # the same once more: what is within its spread proves nothing
# The contenders that do what each one's protocol demands, and nothing else
CEILINGS: Final = {
    "datagram": "ceiling-datagram",
    "connected": "ceiling-connected",
    "run": "ceiling-datagram",
    "run-connected": "ceiling-connected",
}
CPU: Final = "tcp_ns_per_byte"
# By which contenders are judged, CPU time first: load of the machine moves it least
JUDGED: Final = (
    CPU,
    "tcp_gbit_s",
    "super_ns_per_byte",
    "super_gbit_s",
    "packets_s",
    "ping_p50_us",
)
# Figure -> its column's heading and number of decimals.
COLUMNS: Final = {
    "tcp_gbit_s": ("TCP Gb/s", 2),
    "udp_gbit_s": ("UDP Gb/s", 2),
    "super_gbit_s": ("UDP 64K Gb/s", 2),
    "packets_s": ("packets/s", 0),
    "rr_p50_us": ("UDP RR p50 us", 0),
    "ping_p50_us": ("ping p50 us", 0),
    "ping_p90_us": ("p90", 0),
    "ping_p99_us": ("p99", 0),
    "quiet_ping_p50_us": ("quiet p50", 0),
    "tcp_ns_per_byte": ("CPU ns/byte", 3),
    "super_ns_per_byte": ("64K ns/byte", 3),
    "ns_per_packet": ("ns/packet", 0),
    "rss_mib": ("RSS MiB", 1),
    "setup_s": ("set-up s", 2),
}
RATIOS: Final = (
    "tcp_gbit_s",
    "udp_gbit_s",
    "super_gbit_s",
    "packets_s",
    "rr_p50_us",
    "ping_p50_us",
    "quiet_ping_p50_us",
)
# The figures that have a picture
PICTURES: Final = (
    "tcp_gbit_s",
    "super_gbit_s",
    "packets_s",
    "rr_p50_us",
    "ping_p50_us",
    "tcp_ns_per_byte",
)

Report = Mapping[str, Any]
_Value = Callable[[Report], float | None]


def figures(report: Report, name: str, figure: str) -> Figures:
    """Return one figure for each round, or none for a contender that did not run."""
    return [sample.get(figure) for sample in report["runs"].get(name, [])]


def summary(report: Report) -> dict[str, Any]:
    """Return the medians, ratios and targets of a run."""
    medians: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for name in report["runs"]:
        medians[name] = {}
        for figure in dict.fromkeys(key for sample in report["runs"][name] for key in sample):
            middle = spread(figures(report, name, figure))
            if middle is not None:
                medians[name][figure] = middle.median
        ratios[name] = _ratios_to(report, name, BASE, RATIOS)
    ours = [name for name in report["runs"] if name != YARDSTICK]
    to_tunnel = {name: _ratios_to(report, name, YARDSTICK, JUDGED) for name in ours}
    to_ceiling = {
        name: _ratios_to(report, name, ceiling, JUDGED) for name, ceiling in CEILINGS.items()
    }
    return {
        "median": medians,
        "ratio_to_vxlan": ratios,
        "ratio_to_tunnel": {name: it for name, it in to_tunnel.items() if it},
        "ratio_to_ceiling": {name: it for name, it in to_ceiling.items() if it},
        "targets": [target.judge(report) for target in TARGETS],
    }


def _ratios_to(
    report: Report, name: str, other: str, chosen: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the ratios of one contender to another that were measured."""
    found = {it: ratio(figures(report, name, it), figures(report, other, it)) for it in chosen}
    return {figure: it.as_dict() for figure, it in found.items() if it is not None}


def _to(name: str, other: str, figure: str) -> _Value:
    """Return the median ratio of a figure of two contenders."""

    def value(report: Report) -> float | None:
        ratios = ratio(figures(report, name, figure), figures(report, other, figure))
        return None if ratios is None else ratios.median

    return value


def _to_ceiling(name: str, figure: str) -> _Value:
    return _to(name, CEILINGS[name], figure)


def _run_to_rootless(figure: str, best: Callable[[Sequence[float]], float]) -> _Value:
    """Return the median ratio of `ipoibu run` to the better of the others without privilege in its round."""

    def value(report: Report) -> float | None:
        others = [each for name in _ROOTLESS if (each := figures(report, name, figure))]
        known = [[it for it in each if it is not None] for each in zip(*others, strict=False)]
        bests = [best(each) if each else None for each in known]
        ratios = ratio(figures(report, "run", figure), bests)
        return None if ratios is None else ratios.median

    return value


def _growth(report: Report) -> float | None:
    """Return the cost of a packet with the largest table, divided by that with one neighbour."""
    rows = report["neighbours"]
    if len(rows) < 2 or rows[0]["neighbours"] != 1:
        return None
    return float(rows[-1]["ns_per_packet"] / rows[0]["ns_per_packet"])


class _Target(NamedTuple):
    text: str
    sign: Literal[">=", "<="]
    limit: float
    value: Callable[[Report], float | None]

    def judge(self, report: Report) -> dict[str, Any]:
        got = self.value(report)
        met = None if got is None else _COMPARE[self.sign](got, self.limit)
        return {"target": f"{self.text} {self.sign} {self.limit:g}", "value": got, "met": met}


_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
}
_WIREGUARD: Final = "wireguard-go"
_ROOTLESS: Final = ("pasta", "slirp4netns")

# fmt: off
# Each target compares figures of one run: load of the machine changes ratios less than figures.
# Those to the tunnel are the next step. No IPoIB is as cheap as the tunnel: the ceiling says what is left.
TARGETS: Final[tuple[_Target, ...]] = (
    _Target("datagram CPU a byte, to the tunnel", "<=", 2.1, _to("datagram", YARDSTICK, CPU)),
    _Target("connected CPU a byte, to the tunnel", "<=", 1.5, _to("connected", YARDSTICK, CPU)),
    _Target("datagram TCP, to the tunnel", ">=", 0.6, _to("datagram", YARDSTICK, "tcp_gbit_s")),
    _Target("connected TCP, to the tunnel", ">=", 0.75, _to("connected", YARDSTICK, "tcp_gbit_s")),
    _Target("datagram UDP in 64 KB, to the tunnel", ">=", 0.5, _to("datagram", YARDSTICK, "super_gbit_s")),
    _Target("connected UDP in 64 KB, to the tunnel", ">=", 0.58, _to("connected", YARDSTICK, "super_gbit_s")),
    _Target("aim: datagram CPU a byte, to its ceiling", "<=", 1.27, _to_ceiling("datagram", CPU)),
    _Target("aim: connected CPU a byte, to its ceiling", "<=", 1.2, _to_ceiling("connected", CPU)),
    _Target("aim: datagram TCP, to its ceiling", ">=", 0.92, _to_ceiling("datagram", "tcp_gbit_s")),
    _Target("aim: connected TCP, to its ceiling", ">=", 0.92, _to_ceiling("connected", "tcp_gbit_s")),
    _Target("datagram 64-byte packets, to the tunnel", ">=", 1.0, _to("datagram", YARDSTICK, "packets_s")),
    _Target("datagram ping p50, to the tunnel", "<=", 1.3, _to("datagram", YARDSTICK, "ping_p50_us")),
    _Target("datagram TCP, to wireguard-go", ">=", 6, _to("datagram", _WIREGUARD, "tcp_gbit_s")),
    _Target("connected TCP, to wireguard-go", ">=", 6, _to("connected", _WIREGUARD, "tcp_gbit_s")),
    _Target("run TCP, to pasta or slirp4netns", ">=", 1.0, _run_to_rootless("tcp_gbit_s", max)),
    # A request crosses both sandboxes everywhere; their ping ends in front of the second one.
    _Target("run rr p50, to pasta or slirp4netns", "<=", 1.0, _run_to_rootless("rr_p50_us", min)),
    _Target("run ping p50, to pasta or slirp4netns", "<=", 1.0, _run_to_rootless("ping_p50_us", min)),
    _Target("100 000 neighbours' packet, to 1 neighbour's", "<=", 1.2, _growth),
)
# fmt: on


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out columns: the first one aligned to the left, the others to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def table(report: Report) -> str:
    """Return the whole report as text; `-` means not measured."""
    parts = [_environment(report)]
    judged = _judged(report)
    parts += [it if isinstance(it, str) else grid(*it) for it in judged]
    if report["runs"]:
        parts += [grid(*it) for it in (_medians(report), _ratios(report)) if it[1]]
    for kind in ("absent", "failed"):
        parts += [f"{name}: {kind}: {reason}" for name, reason in report[kind].items()]
    parts += [grid(*_scale(report[title])) for title in ("neighbours", "hosts") if report[title]]
    parts.append(grid(*_targets(report)))
    return "\n\n".join(parts)


def sections(report: Report) -> list[Section]:
    """Return the whole report as the sections of a page."""
    parts: list[Part] = [_environment(report)]
    parts += [it if isinstance(it, str) else Table(*it) for it in _judged(report)]
    if report["runs"]:
        parts.append(Table(*_medians(report), "Medians of the rounds"))
        if report["runs"].get(BASE):
            parts.append(Table(*_ratios(report), "Median ratio in one round, and the range"))
    for kind in ("absent", "failed"):
        parts += [f"{name}: {kind}: {reason}" for name, reason in report[kind].items()]
    drawn = []
    for figure in PICTURES:
        values = {name: m[figure] for name, m in report["median"].items() if figure in m}
        if values:
            drawn.append(bars(COLUMNS[figure][0], "median", values))
    made = [
        Section("Result", parts),
        Section("Targets", [Table(*_targets(report))]),
        Section("Pictures", drawn),
    ]
    if rows := report["neighbours"]:
        line = [(row["neighbours"], row["ns_per_packet"]) for row in rows]
        drawing = curves("Cost of a packet", "neighbours", "ns", {"both pumps": line})
        made.append(Section("Neighbours", [Table(*_scale(rows)), drawing]))
    if rows := report["hosts"]:
        made.append(Section("Hosts", [Table(*_scale(rows))]))
    return made


def number(value: float | None, decimals: int) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def _environment(report: Report) -> str:
    machine = report["environment"]
    loads = [machine[key][0] for key in ("load_average", "load_average_after")]
    streams = "one stream" if report["streams"] == 1 else f"{report['streams']} streams"
    return (
        f"{machine['command']}\n{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']},"
        f" load average {loads[0]:g} before and {loads[1]:g} after;"
        f" medians of {report['rounds']} rounds of {report['seconds']} s{_labs(report)}"
        f", {streams} of TCP by {machine['tcp_congestion_control']}"
    )


def _labs(report: Report) -> str:
    labs, took_s = report.get("labs"), report.get("took_s")
    taken = f" that took {took_s:.0f} s" if took_s is not None else ""
    return (f" in {labs} labs" if labs else "") + taken


_Grid = tuple[Sequence[str], Sequence[Sequence[str]]]


def _medians(report: Report) -> _Grid:
    rows = [
        [name, *(number(medians.get(key), decimals) for key, (_, decimals) in COLUMNS.items())]
        for name, medians in report["median"].items()
    ]
    return ["", *(heading for heading, _ in COLUMNS.values())], rows


def _judged(report: Report) -> list[str | _Grid]:
    """The ratios to the yardsticks, and what the control says of them."""
    parts: list[str | _Grid] = []
    titles = {"ratio_to_tunnel": "to the tunnel", "ratio_to_ceiling": "to the ceiling"}
    for key, title in titles.items():
        rows = [
            [name, *(_one_ratio(ratios.get(figure)) for figure in JUDGED)]
            for name, ratios in report[key].items()
        ]
        if rows:
            parts.append(([title, *(COLUMNS[figure][0] for figure in JUDGED)], rows))
    if control := report["ratio_to_tunnel"].get(CONTROL):
        shares = [
            f"{COLUMNS[figure][0]} {spread['low']:.2f} to {spread['high']:.2f}"
            for figure, spread in control.items()
        ]
        parts.append(
            "the tunnel against itself, round by round: "
            + ", ".join(shares)
            + "; a ratio of one round within that proves nothing"
        )
    return parts


def _ratios(report: Report) -> _Grid:
    rows = [
        [name, *(_one_ratio(ratios.get(key)) for key in RATIOS)]
        for name, ratios in report["ratio_to_vxlan"].items()
        if ratios
    ]
    return ["to VXLAN", *(COLUMNS[key][0] for key in RATIOS)], rows


def _scale(rows: Sequence[Mapping[str, Any]]) -> _Grid:
    head = list(rows[0])
    cells = [[row[key] for key in head] for row in rows]
    return head, [
        [f"{it:.4g}" if isinstance(it, float) else str(it) for it in row] for row in cells
    ]


def _targets(report: Report) -> _Grid:
    verdicts = {True: "met", False: "not met", None: "not measured"}
    rows = [
        [entry["target"], number(entry["value"], 2), verdicts[entry["met"]]]
        for entry in report["targets"]
    ]
    return ["target", "measured", ""], rows


def _one_ratio(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "-"
    return f"{spread['median']:.2f} ({spread['low']:.2f}-{spread['high']:.2f})"
