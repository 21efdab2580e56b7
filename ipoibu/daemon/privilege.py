# SPDX-License-Identifier: BSD-2-Clause
"""The rights that `ipoibu up` needs after its start; it gives up all others (docs/use/sandbox.md).

The list covers the whole life of the interface: children open TUN devices, queue pairs and control
sockets at any time, so the interface needs nearly the same rights later as at its start.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import ipoibu
from ipoibu.base.device_name import DeviceKind
from ipoibu.base.privilege import CAP_IPC_LOCK, CAP_NET_ADMIN, CAP_NET_RAW
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.lease_dir import default_lease_dir, make_lease_dir
from ipoibu.daemon.control.socket_paths import make_namespace_dir, runtime_dir
from ipoibu.daemon.outside_threads import OutsideThreads
from ipoibu.fabric.base import MeshOptions
from ipoibu.host.namespace_helper import NamespaceHelper
from ipoibu.host.netns import OpenNamespace
from ipoibu.host.tun import TUN_PATH
from ipoibu.sandbox.landlock import DEVICE, FILES, READ, SOCKETS, WRITE, PathRule, TcpPorts
from ipoibu.sandbox.stages import Needs, Stage, confine
from ipoibu.sandbox.user import keep_permitted

# Libraries that are loaded late, the time zone, the names of hosts
_READ: Final = (
    "/usr",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/dev/urandom",
    "/etc/ld.so.cache",
    "/etc/libibverbs.d",
    "/etc/localtime",
)
_WRITE: Final = (
    "/dev/null",
    "/proc/sys/net",  # IPv6 off, where the link's MTU is too small
    "/proc/self/task",  # the names of threads
)
_RDMA_DEVICES: Final = "/dev/infiniband"


def confine_daemon(config: InterfaceConfig, outside: OutsideThreads | None = None) -> None:
    """Carry out the stages that `config` asks for; call it while the process has one thread, and those of
    `outside`. Each stage binds a thread and those that it starts, but the user is the process's.

    Before, it reads the key of `--peer-key-file`; `UsageError`."""
    mesh = config.endpoint.mesh
    if mesh is not None and mesh.key is not None:
        mesh.key.keep()
    for directory in _lease_dirs(config):
        make_lease_dir(directory, config.user)
    if config.sandbox == Stage.OFF:
        return
    make_namespace_dir(config.user)
    needs, threads = needs_of(config), 1
    if outside is not None:
        threads += outside.threads
        if needs.user is not None:
            outside.on_each(keep_permitted)
    confine(config.name, needs, config.sandbox, threads=threads)
    if outside is not None:
        others = replace(needs, user=None)
        outside.on_each(lambda: confine(config.name, others, config.sandbox, threads=threads))


@contextlib.contextmanager
def namespace_helper(
    config: InterfaceConfig, namespace: OpenNamespace | None = None
) -> Iterator[NamespaceHelper | None]:
    """The process that lets the daemon follow an interface to other namespaces; None where it could not.
    The interface begins in `namespace`, or in that of the caller.

    Call it while the process has one thread, and before it imports what the helper does not need.
    """
    if not NamespaceHelper.is_possible():
        yield None
        return
    with NamespaceHelper(config.name, config.user, config.sandbox, namespace) as helper:
        yield helper


def needs_of(config: InterfaceConfig) -> Needs:
    """The user, capabilities, files and ports of the daemon of this interface."""
    is_rdma = any(DeviceKind.of(it) is DeviceKind.RDMA for it, _ in config.endpoint.places)
    return Needs(
        user=config.user,
        # An RDMA device pins its frames, and the kernel wants CAP_NET_RAW for a controlled Q_Key.
        capabilities={CAP_NET_ADMIN} | ({CAP_NET_RAW, CAP_IPC_LOCK} if is_rdma else set()),
        paths=tuple(_paths(config)),
        tcp=_tcp_ports(config.endpoint.mesh),
        abstract_sockets=os.environ.get("NOTIFY_SOCKET", "").startswith("@"),
    )


def _tcp_ports(mesh: MeshOptions | None) -> TcpPorts:
    """Peers may listen at any port, and introduce others; long answers of a name server come by TCP."""
    return TcpPorts() if mesh is None else TcpPorts(connects=None, binds=(mesh.listen_port,))


def _paths(config: InterfaceConfig) -> Iterator[PathRule]:
    for path in (*_READ, *_python()):
        yield PathRule(Path(path), READ)
    for path in _WRITE:
        yield PathRule(Path(path), WRITE)
    for path in (TUN_PATH, _RDMA_DEVICES):
        yield PathRule(Path(path), DEVICE)
    yield PathRule(runtime_dir(), SOCKETS | FILES)  # FILES: NAME.resolv.conf
    for directory in _lease_dirs(config) or {default_lease_dir()}:  # a child may get a lease later
        yield PathRule(directory, FILES)
    endpoint = config.endpoint
    mesh_file = endpoint.mesh.file if endpoint.mesh is not None else None
    for file in (endpoint.partitions, mesh_file, config.file):  # they are read again
        if file is not None:  # an editor replaces the file by another one in its directory
            for directory in {file.parent, file.resolve().parent}:  # the file may be a link
                yield PathRule(directory, READ)
    if endpoint.mesh is not None:  # names of peers: programs replace /etc/resolv.conf
        yield PathRule(Path("/etc"), READ)
        yield PathRule(Path("/run/systemd/resolve"), READ)


def _lease_dirs(config: InterfaceConfig) -> set[Path]:
    """The directories that keep the leases of the interface and its children."""
    endpoints = [each.endpoint for each in (config, *config.children)]
    clients = [client for each in endpoints for client in (each.dhcp, each.dhcp6)]
    return {dhcp.lease_dir for dhcp in clients if dhcp is not None and dhcp.lease_dir is not None}


def _python() -> Iterator[str]:
    """Yield the directories of Python's modules, without the working directory of the user."""
    yield from (sys.prefix, sys.base_prefix, str(Path(ipoibu.__file__).parent))
    for entry in sys.path:
        if entry and Path(entry) not in (Path.cwd(), Path("/")):
            yield entry
