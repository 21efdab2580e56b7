# SPDX-License-Identifier: BSD-2-Clause
"""Hosts for demonstrations, tests and benchmarks: in network namespaces, or in virtual machines.

`Lab` has virtual machines, with kernels of their own, `NamespaceLab` hosts in network namespaces. Names
load when first used: a machine imports parts of this package, and has no time for the rest.

Where to look:

- `artefacts`: fetches kernels and userlands, each with its SHA-256
- `check`: checks that the hosts of a lab reach each other
- `directory`: temporary directories that outlive no lab for long
- `errors`: the error that all kinds of labs raise
- `host`: one host of a lab
- `ibsim`: an InfiniBand fabric without hardware
- `ibsim_host`: python -m ipoibu.lab.ibsim_host NETNS ARGUMENT ...
- `namespace`: named network namespaces, as ip netns makes them
- `namespace_lab`: hosts in network namespaces on one wire, for demonstrations, tests and benchmarks
- `pytest_plugin`: the fixture `lab` of pytest
- `subnet`: the subnet of a lab of InfiniBand hosts
- `underlay`: routed underlays of a lab
- `user_namespace`: labs of ordinary users
- `userland`: Userlands of lab machines: the programs and libraries of a machine, for hosts that lack them
- `machines`: Virtual machines: kernels of User-mode Linux with real RDMA drivers, without RDMA hardware

It imports: `base`, `daemon`, `fabric`, `host`, `lab.machines`, `rootless`, `sandbox`.

Not here:

- A process that outlives its lab: the kernel ends each with its parent.
- A network outside of namespaces and machines that the lab made.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ipoibu.lab.errors import LabError
    from ipoibu.lab.host import INTERFACE, NETDEV, Host
    from ipoibu.lab.machines.lab import Lab
    from ipoibu.lab.machines.machine import CommandFailed, Machine, Running
    from ipoibu.lab.machines.roles import play
    from ipoibu.lab.machines.runner import MachineFailed, Result
    from ipoibu.lab.namespace_lab import HOSTS_MAX, NamespaceLab
    from ipoibu.lab.subnet import LabSubnet
    from ipoibu.lab.user_namespace import enter_user_namespace

__all__ = [
    "HOSTS_MAX",
    "INTERFACE",
    "NETDEV",
    "CommandFailed",
    "Host",
    "Lab",
    "LabError",
    "LabSubnet",
    "Machine",
    "MachineFailed",
    "NamespaceLab",
    "Result",
    "Running",
    "enter_user_namespace",
    "play",
]

_HOMES = {
    "ipoibu.lab.errors": ("LabError",),
    "ipoibu.lab.host": ("INTERFACE", "NETDEV", "Host"),
    "ipoibu.lab.machines.lab": ("Lab",),
    "ipoibu.lab.machines.machine": ("CommandFailed", "Machine", "Running"),
    "ipoibu.lab.machines.roles": ("play",),
    "ipoibu.lab.machines.runner": ("MachineFailed", "Result"),
    "ipoibu.lab.namespace_lab": ("HOSTS_MAX", "NamespaceLab"),
    "ipoibu.lab.subnet": ("LabSubnet",),
    "ipoibu.lab.user_namespace": ("enter_user_namespace",),
}


def __getattr__(name: str) -> Any:  # PEP 562
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
