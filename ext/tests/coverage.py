#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Lists the line coverage of the packet paths, over every program that counted it.

    python3 coverage.py BUILD_DIRECTORY...

The directories hold what `make COVERAGE=1` built and ran. A line counts when any program ran it. The
exit status is 1 when a file of the packet paths has less than FLOOR_PERCENT.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

EXT = Path(__file__).resolve().parents[1]
FLOOR_PERCENT = 95.0
PACKET_PATHS = [
    *(f"pump/packets/{name}.c" for name in ("classify", "flow_key", "segment", "coalesce")),
    *(f"pump/tables/{name}.c" for name in ("admission", "write_share")),
    *(f"pump/receive/{name}.c" for name in ("receive", "connection")),
    *(f"pump/transmit/{name}.c" for name in ("transmit", "next_hop")),
    *(f"pump/{name}.c" for name in ("ends/batch", "host/handoff")),
    *(f"soft/{name}.c" for name in ("udp", "progress", "roce", "icrc", "ud")),
    *(f"soft/{name}.c" for name in ("rc_receive", "rc_send", "rc_share", "rc_base")),
]

Lines = dict[str, dict[int, int]]


def count(directory: Path, lines: Lines) -> None:
    """Add what gcov reports about the objects of a directory."""
    for data in sorted(directory.rglob("*.gcda")):
        words = ["gcov", "--json-format", "--stdout", str(data)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        for text in done.stdout.splitlines():
            report = json.loads(text)
            for source in report["files"]:
                path = Path(report["current_working_directory"], source["file"]).resolve()
                if not path.is_relative_to(EXT):
                    continue
                runs = lines[str(path.relative_to(EXT))]
                for line in source["lines"]:
                    number = line["line_number"]
                    runs[number] = runs.get(number, 0) + line["count"]


def ranges(numbers: list[int]) -> str:
    """7, 9-12: the lines that no program ran."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def main(directories: list[str]) -> int:
    lines: Lines = defaultdict(dict)
    for directory in directories:
        count(Path(directory), lines)
    total = ran = 0
    low = []
    print("| file | lines | run | not run |\n|---|---|---|---|")
    for name in PACKET_PATHS:
        runs = lines[name]
        missed = sorted(number for number, times in runs.items() if times == 0)
        total, ran = total + len(runs), ran + len(runs) - len(missed)
        percent = 100 * (len(runs) - len(missed)) / max(len(runs), 1)
        if percent < FLOOR_PERCENT:
            low.append(f"ext/{name}")
        print(f"| `ext/{name}` | {len(runs)} | {percent:.1f} % | {ranges(missed)} |")
    percent = 100 * ran / max(total, 1)
    print(f"| together | {total} | {percent:.1f} % | |")
    if low:
        print(f"coverage.py: below {FLOOR_PERCENT} %: {', '.join(low)}", file=sys.stderr)
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
