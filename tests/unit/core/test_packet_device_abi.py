# SPDX-License-Identifier: BSD-2-Clause
"""<ipoibu/packet_device.h>, version 1: what programs were compiled with stays as it is."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import ipoibu

ROOT: Final = Path(__file__).parents[3]
INCLUDE: Final = Path(ipoibu.get_include())

# struct: its size, and its members with their offsets, on 64-bit machines. Never change these.
LAYOUT: Final = {
    "ipoibu_frames_v1": (
        48,
        {
            "first": 0,
            "stride_bytes": 8,
            "count": 12,
            "packet_bytes": 16,
            "mtu_bytes": 20,
            "memory": 24,
            "hold": 32,
            "drop": 40,
        },
    ),
    "ipoibu_packet_device_v1": (
        112,
        {
            "self": 0,
            "offload": 8,
            "lent_bytes": 12,
            "start": 16,
            "stop": 24,
            "read": 32,
            "give": 40,
            "ended": 48,
            "write": 56,
            "keep": 64,
            "back": 72,
            "flush": 80,
            "fd": 88,
            "arm": 96,
            "deadline_ns": 104,
        },
    ),
    "ipoibu_packet_v1": (24, {"data": 0, "bytes": 8, "frame": 12, "memory": 16}),
    "ipoibu_packet_queue_v1": (
        72,
        {
            "self": 0,
            "send_fd": 8,
            "receive_fd": 12,
            "reserve": 16,
            "send": 24,
            "cancel": 32,
            "await_frames": 40,
            "receive": 48,
            "release": 56,
            "await_packets": 64,
        },
    ),
}
VALUES: Final = {
    "IPOIBU_VNET_BYTES": 16,
    "IPOIBU_NO_FRAME": 0xFFFFFFFF,
    "IPOIBU_OFFLOAD_TCP": 1,
    "IPOIBU_OFFLOAD_UDP": 2,
}
NAMES: Final = {
    "IPOIBU_PACKET_DEVICE_V1": "ipoibu.packet_device.v1",
    "IPOIBU_PACKET_QUEUE_V1": "ipoibu.packet_queue.v1",
}


def _program() -> str:
    lines = [
        f'_Static_assert(sizeof(struct {name}) == {size}, "{name}");'
        for name, (size, _) in LAYOUT.items()
    ]
    lines += [
        f'_Static_assert(offsetof(struct {name}, {member}) == {at}, "{name}.{member}");'
        for name, (_, members) in LAYOUT.items()
        for member, at in members.items()
    ]
    lines += [f'_Static_assert({name} == {value}u, "{name}");' for name, value in VALUES.items()]
    return "\n".join(["#include <stddef.h>", "#include <ipoibu/packet_device.h>", *lines, ""])


def test_version_1_has_its_layout() -> None:
    """The header stands alone, too: nothing of ipoibu is included before it."""
    compiler = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c"]
    program = [*compiler, f"-I{INCLUDE}", "-"]
    done = subprocess.run(program, input=_program(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_member_has_its_place_here() -> None:
    text = (INCLUDE / "ipoibu/packet_device.h").read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    structs = re.findall(r"^struct (\w+) \{\n(.*?)^\};", code, re.MULTILINE | re.DOTALL)
    assert [name for name, _ in structs] == list(LAYOUT)
    for name, body in structs:
        members = re.findall(r"\(\*(\w+)\)\(|(\w+)(?=[;,])(?![^(]*\))", body)
        assert [first or second for first, second in members] == list(LAYOUT[name][1])
    assert dict(re.findall(r'^#define (\w+)\s+"(.*)"$', code, re.MULTILINE)) == NAMES


def test_pkg_config_has_the_version_of_the_package() -> None:
    text = (INCLUDE / "ipoibu.pc").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"\nVersion: {project['version']}\n" in text
    assert "\nCflags: -I${pcfiledir}\n" in text
