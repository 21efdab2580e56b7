#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Writes the seed corpora of the fuzzers: lists of actions around golden packets.

    python3 seeds.py DIRECTORY

The packets come from tests/golden/wire.toml and from scapy. The actions are those of fuzz_soft.c,
fuzz_pump.c and of the other targets.
"""

from __future__ import annotations

import struct
import sys
import tomllib
from pathlib import Path

from link_seeds import mesh_seeds, rails_seeds, unicast_seeds
from pump_seeds import guest_seeds, pump_seeds, segment_seeds, tap_seeds
from soft_seeds import soft_seeds

GOLDEN = Path(__file__).resolve().parents[3] / "tests" / "golden" / "wire.toml"


def golden_packets() -> dict[str, bytes]:
    vectors = tomllib.loads(GOLDEN.read_text())
    packets = {}
    for codec, kinds in vectors.items():
        for kind, vector in kinds.items():
            if isinstance(vector, dict) and isinstance(vector.get("hex"), str):
                packets[f"{codec}.{kind}"] = bytes.fromhex(vector["hex"])
    return packets


def main(directory: str) -> None:
    golden = golden_packets()
    golden.setdefault("mad.header", struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, 1, 0x10, 0, 0))
    corpora = {
        "soft": soft_seeds(golden),
        "pump": pump_seeds(golden) | guest_seeds(),
        "segment": segment_seeds(),
        "tap": tap_seeds(),
        "unicast": unicast_seeds(golden),
        "rails": rails_seeds(golden),
        "mesh": mesh_seeds(golden),
    }
    for target, seeds in corpora.items():
        place = Path(directory, target)
        place.mkdir(parents=True, exist_ok=True)
        for name, seed in seeds.items():
            (place / name).write_bytes(seed)


if __name__ == "__main__":
    main(sys.argv[1])
