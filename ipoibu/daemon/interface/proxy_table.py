# SPDX-License-Identifier: BSD-2-Clause
"""Holds what an interface answers for as a proxy: the option `proxy`, and changes while it runs.

The actions of the control socket are `proxy-add`, `proxy-del` and `proxies`, which lists the kernel's own
proxy entries (`ip neigh add proxy`), too. What came by a command ends with the process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ipoibu.base.addr import IpAddress, IpNetwork
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import PROXY_NETWORKS_MAX
from ipoibu.daemon.config.parsers import Proxied, parse_proxy
from ipoibu.daemon.interface.changes import difference
from ipoibu.host.proxy_network_sync import WantedProxies

_TEXT_MAX: Final = 64

Wish = IpNetwork | Proxied


class ProxyTable:
    """The networks of one interface; `on_change` hears of every change. It belongs to the event loop's
    thread."""

    def __init__(
        self,
        given: Iterable[Wish],
        on_change: Callable[[], None],
        kernels: Callable[[], Iterable[IpAddress]],
    ) -> None:
        self._given = tuple(dict.fromkeys(given))
        self._added: dict[Wish, None] = {}
        self._on_change = on_change
        self._kernels = kernels
        self.actions: Final[dict[str, Callable[[Mapping[str, Any]], Awaitable[object]]]] = {
            "proxy-add": self._add,
            "proxy-del": self._delete,
            "proxies": self._list,
        }

    @property
    def networks(self) -> Sequence[IpNetwork]:
        """The networks, first those of the option."""
        return tuple(it for it in self._all() if not isinstance(it, Proxied))

    @property
    def by_routes(self) -> bool:
        """Return whether the kernel's routes say what to answer for."""
        return Proxied.ROUTES in self._all()

    def wanted(self) -> WantedProxies:
        return WantedProxies(self.networks, self.by_routes)

    def replace(self, given: Iterable[Wish]) -> str:
        """Take another value of the option, and keep what commands have added; return how the values differ.
        `UsageError` if it is too long."""
        fresh = tuple(dict.fromkeys(given))
        _check_room(len(fresh) + len(self._added))
        before, self._given = self._given, fresh
        self._on_change()
        return difference(*([getattr(it, "value", it) for it in each] for each in (before, fresh)))

    def _all(self) -> dict[Wish, None]:
        return dict.fromkeys((*self._given, *self._added))

    async def _add(self, request: Mapping[str, Any]) -> object:
        wish = _wish(request)
        if wish in self._all():
            raise UsageError(f"{_text(wish)} is a proxy entry already")
        _check_room(len(self._all()) + 1)
        self._added[wish] = None
        self._on_change()
        return {}

    async def _delete(self, request: Mapping[str, Any]) -> object:
        wish = _wish(request)
        if wish not in self._all():
            raise UsageError(f"{_text(wish)} is no proxy entry")
        self._added.pop(wish, None)
        self._given = tuple(it for it in self._given if it != wish)
        self._on_change()
        return {}

    async def _list(self, request: Mapping[str, Any]) -> object:
        rows = [{"proxy": _text(it), "origin": "option"} for it in self._given]
        rows += [{"proxy": _text(it), "origin": "command"} for it in self._added]
        kernels = sorted(self._kernels(), key=lambda ip: (ip.version, int(ip)))
        return rows + [{"proxy": str(ip), "origin": "kernel"} for ip in kernels]


def _check_room(count: int) -> None:
    if count > PROXY_NETWORKS_MAX:
        raise UsageError(f"more than {PROXY_NETWORKS_MAX} proxy entries: name larger networks")


def _wish(request: Mapping[str, Any]) -> Wish:
    text = request.get("proxy")
    if not isinstance(text, str):
        raise UsageError('"proxy" is a text')
    return parse_proxy(text[:_TEXT_MAX])


def _text(wish: Wish) -> str:
    """A single address without its prefix length, as `ip neigh` shows it."""
    if isinstance(wish, Proxied):
        return wish.value
    return str(wish.network_address if wish.num_addresses == 1 else wish)
