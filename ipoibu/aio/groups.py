# SPDX-License-Identifier: BSD-2-Clause
"""The multicast groups of a socket, with their source filters: RFC 1112 §7.1, RFC 3678 §4."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ipoibu.aio.address import error
from ipoibu.base.addr import IpAddress
from ipoibu.base.limits import AIO_MEMBERSHIPS_MAX, AIO_SOURCES_MAX


@dataclass(slots=True)
class Membership:
    """The filter of one group: all sources but these, or these alone."""

    is_exclusive: bool = True
    sources: set[IpAddress] = field(default_factory=set)

    def admits(self, source: IpAddress) -> bool:
        return (source in self.sources) != self.is_exclusive


class Groups:
    """The groups of one socket. `join` and `leave` are the endpoint's, which counts them. Errors are those of
    the kernel's socket options."""

    def __init__(
        self, join: Callable[[IpAddress], None], leave: Callable[[IpAddress], None]
    ) -> None:
        self._join, self._leave = join, leave
        self._memberships: dict[IpAddress, Membership] = {}

    def __iter__(self) -> Iterator[IpAddress]:
        return iter(self._memberships)

    def admits(self, group: IpAddress, source: IpAddress) -> bool:
        membership = self._memberships.get(group)
        return membership is not None and membership.admits(source)

    def join(self, group: IpAddress, source: IpAddress | None) -> None:
        """Join a group, or for one more source of it. EADDRINUSE: the socket has joined so already."""
        known = self._memberships.get(group)
        if known is None:
            if len(self._memberships) >= AIO_MEMBERSHIPS_MAX:
                raise error(errno.ENOBUFS, group)
            self._join(group)
            self._memberships[group] = Membership(source is None, {source} if source else set())
        elif source is None:
            raise error(errno.EADDRINUSE, group)
        else:
            self._filter(group, known, source, is_exclusive=False, is_listed=True)

    def leave(self, group: IpAddress, source: IpAddress | None) -> None:
        """Leave a group, or one source of it; with the last source the group, too."""
        known = self._known(group)
        if source is not None:
            self._filter(group, known, source, is_exclusive=False, is_listed=False)
            if known.sources:
                return
        del self._memberships[group]
        self._leave(group)

    def block(self, group: IpAddress, source: IpAddress) -> None:
        """Refuse a source of a group that was joined without sources."""
        self._filter(group, self._known(group), source, is_exclusive=True, is_listed=True)

    def unblock(self, group: IpAddress, source: IpAddress) -> None:
        self._filter(group, self._known(group), source, is_exclusive=True, is_listed=False)

    def leave_all(self) -> None:
        while self._memberships:
            group, _ = self._memberships.popitem()
            self._leave(group)

    def _known(self, group: IpAddress) -> Membership:
        known = self._memberships.get(group)
        if known is None:
            raise error(errno.EADDRNOTAVAIL, group)
        return known

    def _filter(
        self,
        group: IpAddress,
        known: Membership,
        source: IpAddress,
        *,
        is_exclusive: bool,
        is_listed: bool,
    ) -> None:
        if known.is_exclusive != is_exclusive:
            raise error(errno.EINVAL, f"{group} has a filter of the other kind")
        if (source in known.sources) == is_listed:
            raise error(errno.EADDRNOTAVAIL, source)
        if is_listed and len(known.sources) >= AIO_SOURCES_MAX:
            raise error(errno.ENOBUFS, group)
        if is_listed:
            known.sources.add(source)
        else:
            known.sources.discard(source)
