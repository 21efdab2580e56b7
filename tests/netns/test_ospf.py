# SPDX-License-Identifier: BSD-2-Clause
"""bird speaks OSPF on the link, once it knows that a TUN is no point-to-point link."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.host import Host
from tests.netns.bird import ask, bird
from tests.netns.conftest import Until


def _config(host: Host) -> str:
    return f"""
router id {host.ipv4.ip};
protocol device {{ }}
protocol kernel {{ ipv4 {{ export all; }}; }}
protocol direct {{ ipv4; interface "stub0"; }}
protocol ospf v2 {{
  ipv4 {{ import all; export where source = RTS_DEVICE; }};
  area 0 {{
    interface "ib0" {{ type broadcast; hello 1; dead count 4; wait 4; }};
  }};
}}
"""


@pytest.mark.timeout(120)
def test_three_routers_become_neighbours_and_routes_carry_packets(until: Until) -> None:
    with Lab(3) as lab, ExitStack() as stack:
        for host in lab.hosts:
            stub = f"10.{90 + host.number}.0.1/24"
            for command in (
                "ip link add stub0 type veth peer name stub1",
                "ip link set stub1 up",
                f"ip address add {stub} dev stub0",
                "ip link set stub0 up",
            ):
                assert host.run(command.split()).returncode == 0
        controls = {host.name: stack.enter_context(bird(host, _config(host))) for host in lab.hosts}

        def full(host: Host) -> int:
            return ask(host, controls[host.name], "show", "ospf", "neighbors").count("Full/")

        # One of three is the designated router, and one its backup: everybody is full with both.
        until(lambda: [full(host) for host in lab.hosts] == [2, 2, 2], timeout_s=40)
        first = lab.hosts[0]
        for other in lab.hosts[1:]:
            target = f"10.{90 + other.number}.0.1"
            until(
                lambda target=target: first.run(["ping", "-c1", "-W1", target]).returncode == 0,
                timeout_s=20,
            )
