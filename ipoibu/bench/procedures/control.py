# SPDX-License-Identifier: BSD-2-Clause
"""The control: a veth pair between the two hosts that takes packets of any size. What a procedure measures
over it is the limit of the traffic generator and the kernel, and no forwarder's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from ipoibu.bench.contender import Absent, Running, links, sh
from ipoibu.lab import NamespaceLab

NAME: Final = "control"
MTU: Final = 65535


@dataclass(frozen=True)
class Control:
    """A contender that only the procedures have."""

    name: str = NAME
    link: str = "ct0"

    @contextmanager
    def running(self, lab: NamespaceLab) -> Iterator[Running]:
        first, second = lab.hosts[:2]
        there = f"peer name {self.link} netns {second.namespace.name} mtu {MTU}"
        with links(lab, self.link):
            command = f"ip link add {self.link} mtu {MTU} type veth {there}"
            made = first.run(command.split())
            if made.returncode != 0:
                raise Absent(f"the kernel makes no veth pair: {made.stderr.strip()}")
            for host in (first, second):
                sh(host, f"ip address add 10.85.0.{host.number}/24 dev {self.link}")
                sh(host, f"ip link set {self.link} mtu {MTU} up")
            yield Running("10.85.0.2")
