# SPDX-License-Identifier: BSD-2-Clause
"""The result of a procedure as text and as the sections of a page, with what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ipoibu.bench.html_report import Part, Section, Table
from ipoibu.bench.picture import Picture, bars, curves
from ipoibu.bench.procedures.control import NAME as CONTROL
from ipoibu.bench.procedures.delay import TAGGED_LEAST
from ipoibu.bench.procedures.generator import BURST_S
from ipoibu.bench.report import grid, number
from ipoibu.bench.statistic import spread

Report = Mapping[str, Any]

TITLES: Final = {
    "rfc2544": "RFC 2544: throughput, latency, back-to-back frames, frame loss",
    "rfc6349": "RFC 6349: TCP throughput",
}
# Column, figure with the size in place of {}, decimals
FRAMES: Final = (
    ("frames/s", "throughput_{}_frames_s", 0),
    ("latency us", "latency_{}_us", 0),
    ("99.9 % us", "latency_worst_{}_us", 0),
    ("PDV us", "pdv_{}_us", 0),
    ("IPDV us", "ipdv_{}_us", 0),
    ("back-to-back", "back_to_back_{}_frames", 0),
    ("lost at full speed %", "loss_{}_lost_percent", 1),
    ("full speed", "full_speed_{}_frames_s", 0),
)
TRANSFER: Final = (
    ("path MTU", "path_mtu", 0),
    ("base RTT us", "base_rtt_us", 0),
    ("UDP Gb/s", "bandwidth_gbit_s", 2),
    ("BDP bytes", "bdp_bytes", 0),
    ("TCP Gb/s", "tcp_gbit_s", 2),
    ("ideal Gb/s", "ideal_gbit_s", 2),
    ("transfer time ratio", "transfer_time_ratio", 2),
    ("efficiency %", "tcp_efficiency_percent", 3),
    ("RTT during us", "rtt_during_us", 0),
    ("buffer delay %", "buffer_delay_percent", 0),
)


def median(report: Report, name: str, figure: str) -> float | None:
    found = spread(sample.get(figure) for sample in report["runs"].get(name, []))
    return None if found is None else found.median


def table(report: Report) -> str:
    """Return the whole report as text."""
    machine = report["environment"]
    loads = [machine[key][0] for key in ("load_average", "load_average_after")]
    head = (
        f"{machine['command']}\n{machine['cpu']}, {machine['cpus']} CPUs, Linux {machine['kernel']},"
        f" load average {loads[0]:g} before and {loads[1]:g} after; medians of {report['rounds']} rounds"
    )
    grids = [f"{each.caption}\n{grid(each.head, each.rows)}" for each in _tables(report)]
    return "\n\n".join([head, *grids, *_missing(report), *caveats(report)])


def sections(report: Report) -> list[Section]:
    """Return the whole report as the sections of a page."""
    parts: list[Part] = [*_tables(report), *_missing(report)]
    return [
        Section(TITLES[report["procedure"]], parts),
        Section("Pictures", _pictures(report)),
        Section("What limits these figures", caveats(report)),
    ]


def _missing(report: Report) -> list[str]:
    return [
        f"{name}: {kind}: {reason}"
        for kind in ("absent", "failed")
        for name, reason in report[kind].items()
    ]


def _tables(report: Report) -> list[Table]:
    if report["procedure"] == "rfc2544":
        return [_frames(report, name) for name in report["runs"]]
    rows = [
        [name, *(number(median(report, name, figure), places) for _, figure, places in TRANSFER)]
        for name in report["runs"]
    ]
    head = ["", *(heading for heading, _, _ in TRANSFER)]
    return [Table(head, rows, f"TCP, {report['streams']} streams")]


def _frames(report: Report, name: str) -> Table:
    """One contender's table, with a row for each size."""
    rows = []
    last = report["details"][name][-1]["sizes"]
    for size, details in last.items():
        values = [
            (median(report, name, figure.format(size)), places) for _, figure, places in FRAMES
        ]
        speed = values[0][0]
        whole = median(report, CONTROL, FRAMES[0][1].format(size))
        share = f"{speed / whole:.2f}" if speed is not None and whole else "-"
        gbit_s = number(None if speed is None else speed * int(size) * 8 / 1e9, 3)
        held_s = details["back_to_back"]["buffer_s"]
        buffer_ms = number(None if held_s is None else held_s * 1000, 1)
        cells = [number(value, places) for value, places in values]
        if details["back_to_back"]["is_least"]:
            cells[5] = f">={cells[5]}"
        rows.append(
            [size, cells[0], gbit_s, share, details["limit"], *cells[1:6], buffer_ms, *cells[6:]]
        )
    names = [heading for heading, _, _ in FRAMES]
    head = ["bytes", names[0], "Gb/s", "of control", "limit", *names[1:6], "buffer ms", *names[6:]]
    return Table(head, rows, name)


def _pictures(report: Report) -> list[Picture]:
    if report["procedure"] == "rfc6349":
        return _bars(report)
    drawn = []
    for title, unit, figure in (
        ("Throughput", "frames/s", FRAMES[0][1]),
        ("Latency", "us", FRAMES[1][1]),
    ):
        lines: dict[str, Sequence[tuple[float, float]]] = {}
        for name, rounds in report["details"].items():
            points = [
                (float(size), value)
                for size in rounds[-1]["sizes"]
                if (value := median(report, name, figure.format(size))) is not None
            ]
            if points:
                lines[name] = points
        drawn.append(curves(title, "bytes of the IP packet", unit, lines))
    return [*drawn, *(_losses(name, it[-1]) for name, it in report["details"].items())]


def _losses(name: str, details: Mapping[str, Any]) -> Picture:
    """The frame loss of the last round, as RFC 2544 §26.3 wants it drawn."""
    lines = {
        f"{size} bytes": [(it["percent"], it["lost_percent"]) for it in of_size["loss"]]
        for size, of_size in details["sizes"].items()
    }
    return curves(f"Frame loss of {name}", "% of the sender's full speed", "%", lines)


def _bars(report: Report) -> list[Picture]:
    drawn = []
    for heading, figure, _ in TRANSFER:
        if figure in {"tcp_gbit_s", "transfer_time_ratio", "rtt_during_us"}:
            values = {name: median(report, name, figure) for name in report["runs"]}
            drawn.append(
                bars(heading, "median", {k: v for k, v in values.items() if v is not None})
            )
    return drawn


def caveats(report: Report) -> list[str]:
    """Return what a reader has to know before believing the figures."""
    machine = report["environment"]
    texts = []
    if missing := report["shorter_than_the_rfc"]:
        texts.append(
            f"The times are shorter than the RFC's ({', '.join(missing)}); --rfc-times takes the RFC's."
        )
    if machine.get("hypervisor"):
        texts.append(
            "This machine is a virtual one. Its hypervisor takes CPUs away for milliseconds, in which queues"
            " overflow: zero loss is a noisy criterion, delays have a long tail, and only ratios of one run"
            " mean something elsewhere."
        )
    if (load := machine["load_average"][0]) > machine["cpus"] / 2:
        texts.append(
            f"The machine was busy before: a load average of {load:g} on {machine['cpus']} CPUs. The figures"
            " are of what the others left, and the control may have had less than a contender."
        )
    texts.append(
        f"Sender, receiver and forwarders share {machine['cpus']} CPUs, which a device under test of the RFC"
        " has for itself. Each trial is one stream in one direction."
    )
    texts.append(
        f"What is called {CONTROL} is the same test over a veth pair without a forwarder: the limit of the"
        " test itself. Where a contender comes near it, the figure is the test's and not the contender's."
    )
    if report["procedure"] == "rfc6349":
        texts += _caveats_of_tcp(report)
    else:
        texts += _caveats_of_frames(report)
    return texts


def _caveats_of_frames(report: Report) -> list[str]:
    few = [
        f"{name} at {size}"
        for name, rounds in report["details"].items()
        for size, details in rounds[-1]["sizes"].items()
        if any(it["count"] < TAGGED_LEAST for it in details.get("delays", ()))
    ]
    rare = (
        f"Fewer than {TAGGED_LEAST} frames have a delay (RFC 8219 wants as many): {', '.join(few)}."
    )
    return [
        *([rare] if few else []),
        "The sender is Python, with a system call for each frame. Full speed is the rate at which it can"
        " send into that path, and stands in for the RFC's line rate. Limit says who lost frames at the"
        " next higher rate: the path, or the receiving program, which had no time for its socket; the"
        " sender is the limit if its full speed passed.",
        f"Frames go out in groups of what {BURST_S * 1000:g} ms brings at most, not evenly spaced, and a"
        " rate is the one at which they left. A size is that of the IP packet. A rate fails if"
        f" {_trials(report['times']['tries'])} more than {report['accepted_loss_percent']:g} % of the"
        " frames.",
        "Delays are from just before the sender's system call until the other host's kernel stamps the"
        " frame, at the throughput, by one clock. PDV and IPDV are of the stamped frames that the tester"
        " keeps: every one, or some evenly among more than 10 000. IPDV is the median of the amounts.",
        "The buffer is RFC 9004's: the average burst over full speed, less what leaves the buffer"
        " meanwhile. It has no value where the sender is no faster than the path, or where the longest burst"
        " that was tried passed, which the sign >= says.",
    ]


def _trials(tries: int) -> str:
    return "a trial loses" if tries == 1 else f"{tries} trials in a row lose"


def _caveats_of_tcp(report: Report) -> list[str]:
    texts = [
        "The bandwidth is what arrives of UDP in 64 KB super-frames at full speed, as IP packets: a virtual"
        " link has no nominal one. Overload may make it less than what TCP reaches.",
        "The kernel sizes the windows by itself. The base round trip is the least of 200 pings, the round"
        " trip during the transfer TCP's own smoothed one, sampled every 10 ms.",
    ]
    fast = [
        name
        for name in report["runs"]
        if (ratio := median(report, name, "transfer_time_ratio")) is not None and ratio < 1
    ]
    if fast:
        texts.append(
            f"TCP was faster than the ideal of {', '.join(fast)}: there the bandwidth is measured too low."
        )
    return texts
