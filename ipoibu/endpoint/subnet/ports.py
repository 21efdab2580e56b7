# SPDX-License-Identifier: BSD-2-Clause
"""The ports by which an interface reaches its link. Here it is one; `endpoint/rails` has several.

`Life` chooses when it opens them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, Any

from ipoibu.base.ib import PartitionParams
from ipoibu.endpoint.config import EndpointConfig
from ipoibu.endpoint.subnet.link import params_of
from ipoibu.fabric.shared_port import SharedPort

if TYPE_CHECKING:
    from ipoibu.fabric.rails import RailsFabric


class Ports(ABC):
    """One port carries the traffic."""

    @property
    @abstractmethod
    def port(self) -> SharedPort:
        """The port that carries the traffic."""

    @property
    @abstractmethod
    def is_gone(self) -> bool:
        """True if the device of that port has gone, and no other port is up."""

    @abstractmethod
    def why(self) -> str:
        """Return why the port is gone."""

    @abstractmethod
    def first_link(self) -> PartitionParams:
        """Return the parameters of the link of the port that carries the traffic. Blocks."""

    @abstractmethod
    def open_joined(
        self, config: EndpointConfig, port: SharedPort, params: PartitionParams
    ) -> RailsFabric | None:
        """Open queue pairs on all ports, where that is possible; None if `port` gets the only one."""

    @abstractmethod
    def sa_counters(self) -> Counter[str]:
        """Return the sum of the counters of all ports' SA clients."""

    @abstractmethod
    def snapshot(self, now: float) -> list[dict[str, Any]] | None:
        """Return each rail's device, port, state ("active", "backup", "sharing", "joining", "down", "suspect"
        or "absent") and the seconds since it came up or went down; None for a single port."""

    @abstractmethod
    def close(self) -> None:
        """Close every port, after the interface has closed its data path."""


class SinglePort(Ports):
    """One port, of which nothing can take the place."""

    def __init__(self, config: EndpointConfig, port: SharedPort) -> None:
        """Take over `port`."""
        self._config = config
        self._port = port

    @property
    def port(self) -> SharedPort:
        return self._port

    @property
    def is_gone(self) -> bool:
        return False

    def why(self) -> str:
        return ""

    def first_link(self) -> PartitionParams:
        return params_of(self._port, self._config)

    def open_joined(
        self, config: EndpointConfig, port: SharedPort, params: PartitionParams
    ) -> RailsFabric | None:
        return None

    def sa_counters(self) -> Counter[str]:
        return sa_counters(self._port)

    def snapshot(self, now: float) -> list[dict[str, Any]] | None:
        return None

    def close(self) -> None:
        self._port.close()


def sa_counters(port: SharedPort | None) -> Counter[str]:
    """Return the counters of a port's SA client, if it has one."""
    return Counter(port.sa.counters()) if port is not None and port.sa is not None else Counter()
