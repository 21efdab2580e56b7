# SPDX-License-Identifier: BSD-2-Clause
"""The namespace helper: a process that opens sockets in the network namespace to which a TUN has moved.

Entering a namespace needs CAP_SYS_ADMIN, which the daemon gives up. So the daemon starts this process
before, and asks it. The helper opens nothing but what `_OPENERS` lists, and only in the namespace where
the given TUN is: who can move a TUN there has all rights over it. It ends with the daemon.

No socket of ours but those for one request is in that namespace, so that the kernel can end it together
with the TUN. Notices come through a socket of the daemon's namespace that listens to all namespaces which
have a number there (NETLINK_LISTEN_ALL_NSID).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gc
import json
import logging
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ipoibu.base.closing import Closing
from ipoibu.base.errors import IpoibuError, NoSuchDevice
from ipoibu.base.privilege import CAP_NET_ADMIN
from ipoibu.host.monitor import NETLINK_LISTEN_ALL_NSID
from ipoibu.host.namespace import HERE, Namespace
from ipoibu.host.netns import OpenNamespace
from ipoibu.host.netsocket import NLM_F_ACK, SOL_NETLINK, NetlinkSocket, attributes
from ipoibu.sandbox import capabilities, seccomp
from ipoibu.sandbox.landlock import WRITE, PathRule
from ipoibu.sandbox.libc import CLONE_NEWNET, setns
from ipoibu.sandbox.stages import Needs, Stage, confine
from ipoibu.sandbox.user import User

TUNGETDEVNETNS: Final = 0x54E3  # linux/if_tun.h
_TUNGETDEVNETNS_SINCE: Final = (5, 2)

# linux/rtnetlink.h, linux/net_namespace.h
_RTM_NEWNSID: Final = 88
_RTM_GETNSID: Final = 90
_NETNSA_NSID: Final = 1
_NETNSA_FD: Final = 3
_UNASSIGNED: Final = -1

_PATHS: Final = ("/proc/sys/net/", "/proc/thread-self/net/")
_CAPABILITIES: Final = frozenset(
    (CAP_NET_ADMIN, capabilities.CAP_SYS_ADMIN, capabilities.CAP_NET_BROADCAST)
)
_ANSWER_S: Final = 20.0  # the kernel may hold the helper up while it ends other namespaces
_MESSAGE_BYTES: Final = 4096
_GONE: Final = (errno.ESTALE, errno.EBADFD, errno.ENODEV)
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class NamespaceHelper(Closing):
    """Starts the process, which gives up what it does not need; the caller has one thread.

    The process enters `namespace` first, if that is given. Any thread may call the methods.
    """

    def __init__(
        self, name: str, user: User | None, last: Stage, namespace: OpenNamespace | None = None
    ) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._lock = threading.Lock()
        self._requests = 0
        if last >= Stage.SECCOMP:
            seccomp.load()
        self._pid = os.fork()
        if self._pid == 0:
            _run(name, user, last, namespace, theirs)
        theirs.close()
        self._channel.settimeout(_ANSWER_S)

    @staticmethod
    def is_possible() -> bool:
        """Return whether the kernel tells where a TUN is, and this process may enter other namespaces and
        get notices of their changes."""
        held = capabilities.permitted()
        is_allowed = all(held >> capability & 1 for capability in _CAPABILITIES)
        return is_allowed and _kernel() >= _TUNGETDEVNETNS_SINCE

    def locate(self, tun: int) -> Namespace:
        """Return the namespace of the TUN; `NoSuchDevice` if the TUN's interface is gone."""
        answer, _ = self._request({"open": "nothing"}, tun)
        inode, number = answer["inode"], answer["number"]
        return HERE if number is None else MovedNamespace(self, tun, inode, number)

    def open(self, tun: int | None, what: str, **arguments: object) -> int:
        """Return a new descriptor; the errors of `locate`, and the kernel's `OSError`."""
        _, [fd] = self._request({"open": what, **arguments}, tun)
        return fd

    def close(self) -> None:
        """End the process. Safe to repeat."""
        self._channel.close()
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _request(
        self, request: Mapping[str, object], tun: int | None
    ) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            self._requests += 1
            request = {**request, "request": self._requests}
            try:
                fds = [] if tun is None else [tun]
                socket.send_fds(self._channel, [json.dumps(request).encode()], fds)
                answer, fds = self._receive()
            except OSError as error:
                raise IpoibuError("the namespace helper does not answer") from error
        for fd in fds:
            os.set_inheritable(fd, False)
        code = answer.get("errno")
        if code in _GONE:
            raise NoSuchDevice("the interface is gone: another program removed it")
        if code is not None:
            raise OSError(code, os.strerror(code))
        return answer, fds

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        """Return the answer to the last request; earlier answers may come late."""
        while True:
            data, fds, _, _ = socket.recv_fds(self._channel, _MESSAGE_BYTES, 1)
            if not data:
                raise IpoibuError("the namespace helper has ended")
            answer = json.loads(data)
            if answer["request"] == self._requests:
                return answer, fds
            for fd in fds:
                os.close(fd)


class MovedNamespace(Namespace):
    """The namespace to which the TUN has moved; once the TUN leaves it, every method fails."""

    is_here = False

    def __init__(self, helper: NamespaceHelper, tun: int, inode: int, number: int) -> None:
        self._helper = helper
        self._tun = tun
        self._inode = inode
        self._number = number

    def netlink_socket(self) -> socket.socket:
        return socket.socket(fileno=self._open("netlink"))

    def notice_socket(self) -> tuple[socket.socket, int | None]:
        return socket.socket(fileno=self._helper.open(None, "notices")), self._number

    def inet_socket(self) -> socket.socket:
        return socket.socket(fileno=self._open("inet"))

    def open(self, path: str, flags: int) -> int:
        return self._open("file", path=path, flags=flags)

    def inode(self) -> int:
        return self._inode

    def _open(self, what: str, **arguments: object) -> int:
        return self._helper.open(self._tun, what, inode=self._inode, **arguments)


# ---- the process


def _run(
    name: str,
    user: User | None,
    last: Stage,
    namespace: OpenNamespace | None,
    channel: socket.socket,
) -> None:
    """The body of the process; it does not return."""
    code = 1
    try:
        gc.freeze()  # the collector would copy all pages that the two processes share
        for number in _IGNORED:  # it ends when the daemon has closed the channel
            signal.signal(number, signal.SIG_IGN)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        if namespace is not None:
            namespace.enter()
        kept = channel.fileno()
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        with NetlinkSocket() as netlink:
            logging.disable()  # the daemon logs the stages, which are the same
            if last > Stage.OFF:
                confine(f"{name}: namespace helper", _needs(user), last)
            _Server(channel, home, netlink).serve()
        code = 0
    except IpoibuError:
        pass  # the daemon, which does the same, reports the error
    finally:
        os._exit(code)


def _needs(user: User | None) -> Needs:
    return Needs(
        user=user,
        capabilities=_CAPABILITIES,
        paths=(PathRule(Path("/proc"), WRITE),),
        enters_namespaces=True,
    )


class _Server:
    """Answers the requests of the channel until its other end is closed."""

    def __init__(self, channel: socket.socket, home: int, netlink: NetlinkSocket) -> None:
        self._channel = channel
        self._home = home
        self._home_inode = os.fstat(home).st_ino
        self._netlink = netlink

    def serve(self) -> None:
        while True:
            data, fds, _, _ = socket.recv_fds(self._channel, _MESSAGE_BYTES, 1)
            if not data:
                return
            opened: list[int] = []
            number = None
            try:
                request = json.loads(data)
                number = request["request"]
                answer = self._answer(request, fds, opened)
            except OSError as error:
                answer = {"errno": error.errno}
            except (IpoibuError, ValueError, LookupError, TypeError, AttributeError):
                answer = {"errno": errno.EINVAL}
            answer["request"] = number
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(self._channel, [json.dumps(answer).encode()], opened)
            for fd in (*fds, *opened):
                os.close(fd)

    def _answer(
        self, request: Mapping[str, Any], fds: list[int], opened: list[int]
    ) -> dict[str, int | None]:
        what = request["open"]
        if what == "notices":
            opened.append(_notices())
            return {}
        [tun] = fds
        namespace = _namespace_of(tun)
        try:
            inode = os.fstat(namespace).st_ino
            if request.get("inode", inode) != inode:
                raise OSError(errno.ESTALE, "the TUN has moved on")
            if what == "nothing":
                number = None if inode == self._home_inode else self._number(namespace)
                return {"inode": inode, "number": number}
            with self._inside(namespace):
                opened.append(_OPENERS[what](request))
            return {}
        finally:
            os.close(namespace)

    @contextlib.contextmanager
    def _inside(self, namespace: int) -> Iterator[None]:
        setns(namespace, CLONE_NEWNET)
        try:
            yield
        finally:
            setns(self._home, CLONE_NEWNET)

    def _number(self, namespace: int) -> int:
        """Return the number of the namespace at home, which marks its notices; give it one if need be."""
        number = self._ask_number(namespace)
        if number == _UNASSIGNED:
            body = bytes(4) + _attribute(_NETNSA_FD, namespace)
            body += _attribute(_NETNSA_NSID, _UNASSIGNED)  # the kernel chooses
            list(self._netlink.exchange(_RTM_NEWNSID, NLM_F_ACK, body, "numbering a namespace"))
            number = self._ask_number(namespace)
        return number

    def _ask_number(self, namespace: int) -> int:
        body = bytes(4) + _attribute(_NETNSA_FD, namespace)
        action = "asking for a namespace's number"
        for data, offset in self._netlink.exchange(_RTM_GETNSID, 0, body, action):
            (length,) = struct.unpack_from("=I", data, offset)
            for kind, value in attributes(data, offset + 20, offset + length):
                if kind == _NETNSA_NSID:
                    return int(struct.unpack_from("=i", value)[0])
        return _UNASSIGNED


def _kernel() -> tuple[int, ...]:
    """Version and patchlevel of the running kernel."""
    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def _namespace_of(tun: int) -> int:
    """Open the namespace where the TUN is; ENODEV while the kernel ends it, and the TUN with it."""
    try:
        return fcntl.ioctl(tun, TUNGETDEVNETNS)
    except OSError as error:
        if error.errno == errno.EINVAL:  # net/core/net_namespace.c, get_net_ns
            raise OSError(errno.ENODEV, "the namespace is ending") from error
        raise


def _attribute(kind: int, value: int) -> bytes:
    return struct.pack("=HHi", 8, kind, value)


def _notices() -> int:
    """Open a socket at home that gets the notices of all namespaces which have a number there."""
    opened = HERE.netlink_socket()
    opened.setsockopt(SOL_NETLINK, NETLINK_LISTEN_ALL_NSID, 1)
    return opened.detach()


def _file(request: Mapping[str, Any]) -> int:
    path = str(request["path"])
    if not path.startswith(_PATHS) or ".." in path.split("/"):
        raise OSError(errno.EACCES, "not a file of a network namespace")
    return HERE.open(path, int(request["flags"]) & os.O_ACCMODE)


_OPENERS: Final[dict[str, Callable[[Mapping[str, Any]], int]]] = {
    "netlink": lambda _: HERE.netlink_socket().detach(),
    "inet": lambda _: HERE.inet_socket().detach(),
    "file": _file,
}
