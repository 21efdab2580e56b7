# SPDX-License-Identifier: BSD-2-Clause
"""Imports texts, and reads the results as `ipoibu up` does."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ipoibu.daemon.config.interface_config import InterfaceConfig, faults
from ipoibu.importer.assembly import assemble
from ipoibu.importer.document import document
from ipoibu.importer.sources import read_files

DEVICES: dict[str, str] = {"": "mlx5_0", "ib0": "mlx5_0", "ib1": "mlx5_1/2"}


def imported(
    directory: Path, texts: Mapping[str, str], devices: Mapping[str, str] = DEVICES
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Write the files, import them, and return the content of the result by interface, without the devices
    that `devices` names for all, and the lines about what is left out."""
    paths = []
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        paths.append(path)
    reading = read_files(paths)
    names = {"", *(draft.name for draft in reading.drafts)}
    names |= {port for draft in reading.drafts for port in draft.ports}
    known = {name: device for name, device in devices.items() if name in names}
    made = assemble(reading, known)
    results = {}
    for each in made:
        written = directory / f"{each.name}.toml"
        written.write_text(document(each))
        assert [str(fault) for fault in faults(written)] == []
        InterfaceConfig.build(each.name, {}, written)
        content = tomllib.loads(written.read_text())
        if isinstance(content["device"], str):
            del content["device"]
        results[each.name] = content
    notes = [*reading.notes, *(note for each in made for note in each.notes)]
    return results, [str(note).removeprefix(f"{directory}/") for note in notes]
