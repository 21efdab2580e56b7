# SPDX-License-Identifier: BSD-2-Clause
"""Builds the attacker of `attack.c`, and runs it in the namespace of a host of a lab.

    attacker = Attacker.build(directory)
    with attacker.flood(lab.hosts[0], lab.hosts[1], arp_requests(...), rate=50_000):
        ...

The attacker sits on the wire between the two hosts of a lab and can take any address there.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.base.addr import Gid
from ipoibu.lab.host import NETDEV, Host
from tests.attack.attacks import Flood

HERE: Final = Path(__file__).resolve().parent
SOFT: Final = HERE.parents[1] / "ext" / "soft"
SOURCES: Final = [
    *(HERE / name for name in ("attack.c", "flood.c")),
    *(SOFT / name for name in ("icrc.c", "crc32.c", "crc32_vector.c")),
]
WARNINGS: Final = ["-Wall", "-Wextra", "-Wshadow", "-Wstrict-prototypes", "-Werror"]
LIFETIME_S: Final = 3600  # the attacker ends by itself at last


def mac(number: int) -> str:
    """Return the Ethernet address of a host of a lab."""
    return f"02:00:00:00:00:{number:02x}"


def gid(number: int) -> Gid:
    """Return the GID of a host of a lab."""
    return Gid.parse(f"fe80::ff:fe00:{number:x}")


def multicast_mac(group: Gid) -> str:
    """Return the Ethernet address of a group: RFC 2464 §7."""
    return ":".join(["33", "33", *(f"{byte:02x}" for byte in group.raw[12:])])


@dataclass(slots=True)
class Sent:
    """The number of packets that a finished flood sent."""

    packets: int = 0


@dataclass(frozen=True, slots=True)
class Attacker:
    """The built program."""

    program: Path

    @classmethod
    def build(cls, directory: Path) -> Attacker:
        program = directory / "attack"
        words = ["gcc", "-std=c11", "-O2", *WARNINGS, f"-I{SOFT}", "-o", str(program)]
        subprocess.run([*words, *map(str, SOURCES)], check=True)
        return cls(program)

    @contextlib.contextmanager
    def flood(self, near: Host, target: Host, flood: Flood, rate: int) -> Iterator[Sent]:
        """Send packets of the flood from the wire of `near` to `target`, as long as the block runs."""
        to = flood.multicast or gid(target.number)
        words = ["flood", NETDEV, str(rate), str(LIFETIME_S), mac(near.number)]
        words += [multicast_mac(to) if flood.multicast else mac(target.number)]
        words += [str(flood.source), str(to), *flood.options]
        with self._run(near, words, flood.template.hex()) as sent:
            yield sent

    @contextlib.contextmanager
    def replay(self, near: Host, rate: int) -> Iterator[Sent]:
        """Send the latest packets from `near` to others again, in any order."""
        with self._run(near, ["replay", NETDEV, str(rate), str(LIFETIME_S)], "") as sent:
            yield sent

    @contextlib.contextmanager
    def _run(self, near: Host, words: list[str], template: str) -> Iterator[Sent]:
        sent = Sent()
        process = near.namespace.popen(
            [str(self.program), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdin is not None
        process.stdin.write(template.encode())
        process.stdin.close()
        process.stdin = None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield sent
        finally:
            process.send_signal(signal.SIGTERM)
            output = process.communicate(timeout=30)[0]
            assert process.returncode == 0, f"attack ended with status {process.returncode}"
            sent.packets = int(output)
