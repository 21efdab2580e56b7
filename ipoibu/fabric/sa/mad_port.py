# SPDX-License-Identifier: BSD-2-Clause
"""How a port sends and receives management datagrams: by the kernel (`umad.py`), or by a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.ib import Destination
from ipoibu.wire import mad


@dataclass(frozen=True, slots=True)
class MadPortInfo:
    """A port as the kernel shows it now.

    `sa_lid` is the LID of the SM, 0 before an SM has configured the port; `pkeys` is the whole table with
    its empty entries, because datagrams name a key by its index.
    """

    device: str
    port: int
    is_active: bool
    lid: int
    sa_lid: int
    sa_sl: int
    gid: Gid
    pkeys: tuple[PKey, ...]

    @property
    def guid(self) -> int:
        return int.from_bytes(self.gid.interface_id, "big")

    def has_pkey(self, pkey: PKey) -> bool:
        """Return whether the port is in the partition, as a full or a limited member."""
        return any(known.full == pkey.full for known in self.pkeys)

    @property
    def pkeys_text(self) -> str:
        """The keys of the table as text, for a message."""
        return ", ".join(str(key) for key in self.pkeys if key & 0x7FFF) or "none"

    @property
    def sa_pkey_index(self) -> int:
        """The index of the default partition's key, on which every SA listens; 0 without one."""
        default = [index for index, known in enumerate(self.pkeys) if known.full == 0xFFFF]
        return default[0] if default else 0


@dataclass(frozen=True, slots=True)
class MadTo:
    """The destination of a datagram: the port's queue pair, its service level, and the index of our P_Key.

    Datagrams with a GRH have a `route`: its GID, hop limit, traffic class and flow label.
    """

    lid: int
    qpn: int = mad.GSI_QPN
    sl: int = 0
    pkey_index: int = 0
    route: Destination | None = None


@dataclass(frozen=True, slots=True)
class MadIn:
    """A received datagram: `status` is 0, or an `errno` for a datagram of ours that came back.

    `gid` is that of the sender, from the GRH; None without one. `pkey_index` is the index of the datagram's
    key in the port's table.
    """

    raw: bytes
    lid: int
    qpn: int
    status: int = 0
    gid: Gid | None = None
    sl: int = 0
    pkey_index: int = 0


class MadPort(Protocol):
    """Sends and receives datagrams of one class on one port; one caller at a time."""

    hears_unasked: bool
    """False where another program on this port takes unsolicited datagrams, such as the SA's reports."""

    def look(self) -> MadPortInfo:
        """Return the present state of the port; `LinkError` or `NoSuchDevice` if it went away."""
        ...

    def fileno(self) -> int: ...

    def send(self, raw: bytes, to: MadTo, wait_s: float) -> None:
        """Send, and let an answer come for `wait_s`, if that is above 0.

        `OSError` if the kernel does not take it.
        """
        ...

    def receive(self) -> MadIn | None:
        """Return a datagram that has arrived, or None; does not block."""
        ...

    def close(self) -> None:
        """Give the agent and the descriptor back. Safe to repeat."""
        ...
