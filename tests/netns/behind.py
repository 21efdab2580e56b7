# SPDX-License-Identifier: BSD-2-Clause
"""A pod behind a host of a lab, by a veth pair.

On the link are 10.77.0.0/24 and fd77::/64. The pod has addresses of a network of its own (FAR), and of the
link's networks (BEHIND), so that the hosts of the link expect those there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ipoibu.lab.host import Host
from ipoibu.lab.namespace import LabNamespace

Sh = Callable[[Host, str], str]
BEHIND, BEHIND6 = "10.77.0.200", "fd77::c8"
FAR, FAR6 = "192.0.2.9", "fd77:2::9"


def inside(pod: LabNamespace, *commands: str) -> None:
    for command in commands:
        done = pod.run(command.split())
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def reaches(host: Host | LabNamespace, target: str) -> bool:
    return host.run(["ping", "-c1", "-W1", target]).returncode == 0


def forward(sh: Sh, router: Host, delay: int = 0) -> None:
    """Have the host forward; a proxy answers at once with a delay of 0."""
    sh(
        router,
        "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"
        f" net.ipv4.neigh.ib0.proxy_delay={delay} net.ipv6.neigh.ib0.proxy_delay={delay}",
    )


@contextmanager
def wired(sh: Sh, router: Host, pod: LabNamespace) -> Iterator[None]:
    """A veth pair v0 (host) and v1 (pod), with FAR and FAR6 behind."""
    sh(router, f"ip link add v0 type veth peer name v1 netns {pod.name}")
    try:
        sh(
            router,
            "sysctl -qw net.ipv6.conf.v0.accept_dad=0; ip link set v0 up;"
            " ip address add 192.0.2.1/24 dev v0; ip address add fd77:2::1/64 dev v0 nodad",
        )
        inside(
            pod,
            "sysctl -qw net.ipv6.conf.v1.accept_dad=0",
            "ip link set v1 up",
            f"ip address add {FAR}/24 dev v1",
            f"ip address add {FAR6}/64 dev v1 nodad",
            "ip route add default via 192.0.2.1",
            "ip -6 route add default via fd77:2::1",
        )
        yield
    finally:
        router.run(["ip", "link", "del", "v0"])


def put_behind(sh: Sh, router: Host, pod: LabNamespace) -> None:
    """Give the pod addresses of the link's networks, and the host routes to them."""
    inside(pod, f"ip address add {BEHIND}/32 dev v1", f"ip address add {BEHIND6}/128 dev v1 nodad")
    sh(router, f"ip route add {BEHIND}/32 dev v0; ip -6 route add {BEHIND6}/128 dev v0")
