# SPDX-License-Identifier: BSD-2-Clause
"""Writes ipoibu/base/c_limits.py: the numbers that C has and Python needs, too; `--check` compares only.

The engine and the codecs load no compiled module, so they cannot ask the core.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

EXT: Final = Path(__file__).resolve().parents[1]
MADE: Final = EXT.parent / "ipoibu" / "base" / "c_limits.py"
HEADERS: Final = {
    "core/frame.h": ("IPU_ENCAP_LEN", "IPU_GRH_LEN"),
    "core/guests.h": ("IPU_GUESTS_MAX", "IPU_HOSTS_MAX", "IPU_GUEST_QPNS_MAX"),
    "core/limits.h": ("IPU_TX_QUEUES_MAX",),
    "soft/objects.h": ("SOFT_MAX_DATAGRAM",),
    "fabric/group_list.h": ("IPU_GROUP_LIST_MAX",),
    "fabric/soft_gsi.h": ("IPU_SOFT_GSI_DEPTH",),
    "unicast/unicast_state.h": ("UNICAST_CASTS",),
    "rails/rails.h": ("IPU_RAILS_MAX",),
    "rails/rails_state.h": ("RAILS_STRANGERS",),
    "pump/tables/admission.h": (
        "IPU_ADMISSION_PER_SENDER",
        "IPU_ADMISSION_STRANGERS",
        "IPU_ADMISSION_OWN_MAX",
        "IPU_ADMISSION_SLOTS",
    ),
    "pump/tables/resolution.h": (
        "IPU_RESOLUTIONS",
        "IPU_RESOLUTIONS_PER_S",
        "IPU_RESOLUTION_BEGUN_SLOTS",
        "IPU_RESOLUTION_KNOWN_SLOTS",
        "IPU_RESOLUTION_REFUSED_SLOTS",
    ),
    "pump/tables/route.h": ("IPU_HOPS_MAX",),
    "pump/tables/write_share.h": ("IPU_WRITE_SHARE_SENDERS",),
    "mesh/mesh_state.h": ("MESH_EVENTS_MAX",),
}
HEAD: Final = '''\
# SPDX-License-Identifier: BSD-2-Clause
# Made by ext/python/c_limits.py.
"""The numbers that C has and Python needs, too; the header before them says what they are for."""

from typing import Final
'''


def value_of(header: str, name: str) -> int:
    text = (EXT / header).read_text(encoding="utf-8")
    found = re.findall(rf"\b{name}(?: = | +)(\d+)u?\b", text)
    if len(found) != 1:
        raise SystemExit(f"{header}: {name} is not one number")
    return int(found[0])


def module() -> str:
    parts = [HEAD]
    for header, names in HEADERS.items():
        parts.append(f"\n# ext/{header}\n")
        parts += (
            f"{name.removeprefix('IPU_')}: Final = {value_of(header, name)}\n" for name in names
        )
    return "".join(parts)


def main() -> int:
    text = module()
    if "--check" not in sys.argv[1:]:
        MADE.write_text(text, encoding="utf-8")
    elif MADE.read_text(encoding="utf-8") != text:
        print(f"out of date, run ext/python/c_limits.py: {MADE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
