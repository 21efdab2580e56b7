# SPDX-License-Identifier: BSD-2-Clause
"""Runs a command whose only network is an IPoIB interface: three processes.

1. The parent, `run`: it is outside, starts the others, passes signals on and waits.
2. The command (`command.py`) makes the namespaces, and executes the user's program once the interface is up.
3. The data path (`data_path.py`): its devices are outside, its TUN is in the command's namespace.

When one of them ends, however it dies, the others end.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NoReturn

from ipoibu.base.errors import NoSuchDevice, UsageError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.control.socket_paths import link_outside, outside_links, remove_namespace_dir
from ipoibu.rootless import namespaces
from ipoibu.rootless.command import Command, execute
from ipoibu.rootless.data_path_process import PATIENCE_S, DataPathProcess
from ipoibu.rootless.process import kill_orphans
from ipoibu.sandbox.libc import PR_SET_CHILD_SUBREAPER, prctl

_PASSED_ON: Final = frozenset(
    (
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGUSR1,
        signal.SIGUSR2,
    )
)
_WAITED_FOR: Final = _PASSED_ON | {signal.SIGCHLD}


def run(config: InterfaceConfig, words: Sequence[str]) -> int:
    """Run the command `words` with the interface of `config`; return its status as a shell does.

    Raises the interface's error if it does not come up, or ends before the command.
    """
    if config.user is not None:
        raise UsageError("--user is for `ipoibu up`: `ipoibu run` keeps your user")
    if config.tun == "attach":
        raise UsageError("--tun attach is for `ipoibu up`: `ipoibu run` makes a TUN of its own")
    if config.netns is not None:
        raise UsageError("--netns is for `ipoibu up`: `ipoibu run` makes a namespace of its own")
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    command = Command(words)
    with open(f"/proc/{command.pid}/ns/net") as namespace:
        data_path = DataPathProcess(config, command.pid)
        try:
            data_path.wait_until_up()
            namespace_of = f"/proc/{data_path.pid}/ns/net"
            with link_outside(config.name, data_path.pid, namespace_of), _signals_held():
                command.go()
                return _wait(command, data_path)
        finally:
            command.end(0)
            kill_orphans(data_path.pid)
            data_path.end(PATIENCE_S)
            remove_namespace_dir(f"/proc/self/fd/{namespace.fileno()}", with_sockets=True)
            remove_namespace_dir()


def join(name: str, words: Sequence[str]) -> NoReturn:
    """Become the command `words`, in the namespaces of a running `ipoibu run` whose interface is `name`,
    or NAME@PID; `NoSuchDevice` if there is none, `UsageError` if there are several."""
    links = outside_links(name)
    if not links:
        raise NoSuchDevice(f"no `ipoibu run` with an interface {name!r}; `ipoibu show` lists them")
    if len(links) > 1:
        raise UsageError(
            f"several interfaces are called {name!r}: choose one of {', '.join(links)}"
        )
    pid = int(links[0].rpartition("@")[2])
    namespaces.join_user(pid)
    namespaces.join_network(pid)
    namespaces.keep_network_capabilities()
    execute(words)


def default_device(table: Path = Path("/proc/net")) -> str | None:
    """Return `soft:NETDEV` for the net device of the default route, IPv4's first; None without a route."""
    with contextlib.suppress(OSError):
        for line in (table / "route").read_text().splitlines()[1:]:
            name, destination, _, _, _, _, _, mask, *_ = line.split()
            if destination == mask == "00000000":
                return f"soft:{name}"
    with contextlib.suppress(OSError):
        for line in (table / "ipv6_route").read_text().splitlines():
            destination, length, *_, name = line.split()
            if int(destination, 16) == int(length, 16) == 0 and name != "lo":
                return f"soft:{name}"
    return None


@contextlib.contextmanager
def _signals_held() -> Iterator[None]:
    """Block signals, which `_wait` takes; the children, forked before, do not inherit that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait(command: Command, data_path: DataPathProcess) -> int:
    while True:
        # Before we sleep: one of them may have ended before its signal was held.
        status = command.poll()
        if status is not None:
            return status
        if data_path.poll() is not None:
            raise data_path.failure()
        received = signal.sigwaitinfo(_WAITED_FOR)
        # The terminal sends its signals to the command as well (si_code SI_KERNEL).
        if received.si_signo in _PASSED_ON and received.si_code <= 0:
            command.signal(received.si_signo)
