# SPDX-License-Identifier: BSD-2-Clause
"""Reads openib.conf of Mellanox's and NVIDIA's drivers, whose settings are those of all interfaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ipoibu.importer import draft
from ipoibu.importer.draft import Draft, Note, Place, Reading, switch
from ipoibu.importer.shell_variables import read_variables

NAMES: Final = ("openib.conf", "rdma.conf")
BEGINNING: Final = re.compile(r"^\s*(IPOIB_(LOAD|MTU)|SET_IPOIB_CM)=", re.MULTILINE)

# Modules and tuning of the kernel, which no interface of ours has
_WITHOUT_EFFECT: Final = re.compile(
    r"(?!LOAD_EIPOIB).*_LOAD|ONBOOT|UCM?_.*|NODE_DESC.*|RENICE_IB_MAD|RUN_(SYSCTL|AFFINITY_TUNER)"
    r"|FIXUP_MTRR|FORCE_MODE|.*SRIOV.*|SET_IPOIB_CHANNELS|IPOIB_ENHANCED|NODE_DESC|MLX\d_.*|FORCE|ALLOW_STOP|(PRE|POST)_(START|STOP).*"
)


def read_openib(path: Path) -> Reading:
    """Read one file; `UsageError` if it is not readable."""
    notes: list[Note] = []
    made = Draft(Place(path))
    variables = {each.name: each for each in read_variables(path, notes)}
    made.notes += [note for note in notes if not _WITHOUT_EFFECT.fullmatch(note.place.key)]
    mode = variables["SET_IPOIB_CM"].value if "SET_IPOIB_CM" in variables else ""
    for name, variable in variables.items():
        value, place = variable.value, variable.place
        if name == "SET_IPOIB_CM":
            if switch(value) is None:
                made.leave(place, f"{value}: the driver chooses the mode; `mode` is datagram here")
            else:
                made.take_mode("connected" if switch(value) else "datagram", place)
        elif name == "IPOIB_MTU":
            if switch(mode):
                made.take_mtu(value, place)
            else:
                made.leave(place, "the MTU of connected mode, which SET_IPOIB_CM does not ask for")
        elif name == "IPOIB_LOAD":
            if switch(value) is False:
                made.leave(place, draft.START)
        elif name == "LOAD_EIPOIB":
            if switch(value):
                made.leave(
                    place, "guests with Ethernet addresses: see `ethernet` (docs/use/ethernet.md)"
                )
        elif not _WITHOUT_EFFECT.fullmatch(name):
            made.leave(place, draft.UNKNOWN)
    return Reading(notes=made.notes, defaults=made.settings)
