# SPDX-License-Identifier: BSD-2-Clause
"""The places where hosts of a mesh may listen, with a cap.

A *stranger* is a contact that only peers named and where no host has ever answered. A peer can name any
place, so strangers go first where the table is full.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ipoibu.base.addr import HwAddr
from ipoibu.base.limits import MESH_BACKOFF_MAX_S, MESH_BACKOFF_MIN_S
from ipoibu.proto.machine.backoff import Backoff
from ipoibu.wire.mesh import Locator


@dataclass(slots=True)
class Contact:
    """A place where a host may listen.

    `hwaddr` is the host that answered there last, `handle` the connection that we dial now.
    """

    locator: Locator
    is_seed: bool
    handle: int | None = None
    hwaddr: HwAddr | None = None
    backoff: Backoff = field(
        default_factory=lambda: Backoff(MESH_BACKOFF_MIN_S, MESH_BACKOFF_MAX_S)
    )

    @property
    def is_stranger(self) -> bool:
        return not self.is_seed and self.hwaddr is None


class Contacts:
    """The contacts of one mesh by their place; the caller calls `sort` when one has changed."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all: dict[Locator, Contact] = {}
        self._strangers: dict[Locator, None] = {}  # the oldest first

    def __iter__(self) -> Iterator[Contact]:
        """Yield the contacts of now; the caller may change the table meanwhile."""
        return iter(list(self._all.values()))

    @property
    def is_full(self) -> bool:
        return len(self._all) >= self._most

    def get(self, locator: Locator) -> Contact | None:
        return self._all.get(locator)

    def enter(self, contact: Contact) -> bool:
        """Enter a new contact, in place of the oldest stranger where the table is full; False without a
        place."""
        if self.is_full:
            oldest = next(iter(self._strangers), None)
            if oldest is None:
                return False
            self.remove(oldest)
        self._all[contact.locator] = contact
        self.sort(contact)
        return True

    def sort(self, contact: Contact) -> None:
        if contact.is_stranger:
            self._strangers.setdefault(contact.locator)
        else:
            self._strangers.pop(contact.locator, None)

    def remove(self, locator: Locator) -> None:
        del self._all[locator]
        self._strangers.pop(locator, None)
