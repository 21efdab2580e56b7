# SPDX-License-Identifier: BSD-2-Clause
"""The wishes that an interface receive every group of the link; allmulticast.py receives them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ipoibu.endpoint.config import EndpointConfig

_log = logging.getLogger(__name__)


class AllGroupsWish:
    """The wishes of the configuration, of a program on the host such as a multicast router, and of a proxy of
    IPv6. `follow` hears of each change, and returns False if the interface has no subnet."""

    def __init__(self, config: EndpointConfig, follow: Callable[[], bool]) -> None:
        self.is_wanted = config.allmulticast
        self._config = config
        self._follow = follow
        self._is_host_wishing = False
        self._is_proxy_wishing = False

    def note_host(self, is_wanted: bool) -> None:
        """A program on the host wants all groups, or no longer."""
        self._is_host_wishing = is_wanted
        is_possible = self._note()
        if is_wanted and not is_possible:
            _log.warning(
                "%s: a program wants all multicast groups, and only a subnet administrator knows them: "
                "the interface receives the groups that this host joins",
                self._config.name,
            )

    def note_proxy(self, is_wanted: bool) -> None:
        """A proxy of IPv6 needs all groups, where they are known, or no longer."""
        self._is_proxy_wishing = is_wanted
        self._note()

    def _note(self) -> bool:
        """Return False if there is a change that the interface cannot follow."""
        before = self.is_wanted
        self.is_wanted = (
            self._config.allmulticast or self._is_host_wishing or self._is_proxy_wishing
        )
        return self.is_wanted == before or self._follow()
