# SPDX-License-Identifier: BSD-2-Clause
"""DHCP of guests: towards the link the messages of an IPoIB host (RFC 4390, H5), towards the guest its own
(H6).

A MAC means nothing on the link, so a request leaves without it, with a client identifier in its place:
the guest's own one, or hardware type 1 and its MAC (RFC 2132 §9.14). While the guest has no address, it
asks for replies by broadcast. A reply gets the MAC back by its transaction, which differs from the guest's
own by the identifier. Messages of relay
agents and replies of DHCP servers among the guests pass as they are.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from ipoibu.base.addr import MAC_LEN, Mac
from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import ETHERNET_DHCP_MAX
from ipoibu.proto.context import EngineContext
from ipoibu.proto.dhcp.form import (
    ZERO_ADDRESS,
    for_link,
    identifier_of,
    is_clients_request,
    message_untrusted,
    repacked,
    transaction_of,
    with_own_identifier,
)
from ipoibu.proto.effects import WatchDhcp
from ipoibu.wire import dhcp

_HTYPE_ETHERNET: Final = 1


@dataclass(frozen=True, slots=True)
class _Asked:
    mac: Mac
    flags: int
    client_id: bytes | None
    sent_client_id: bytes


class GuestDhcp:
    """The transactions of guests, the latest `ETHERNET_DHCP_MAX` ones."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._asked: OrderedDict[int, _Asked] = OrderedDict()  # by the link's transaction

    def __len__(self) -> int:
        return len(self._asked)

    def watch(self) -> None:
        """Have the pump pass replies up."""
        self._context.emit(WatchDhcp())

    def sent(self, now: float, source: Mac, packet: bytes) -> bytes | None:
        """Return the packet that leaves in place of a guest's request; None: a guest must not send it."""
        try:
            header, datagram, message = message_untrusted(packet)
        except BadFrame:
            self._context.count("dhcp_unread")
            return packet
        if not is_clients_request(message) or (message.htype, message.hlen) != (
            _HTYPE_ETHERNET,
            MAC_LEN,
        ):
            return packet
        if message.chaddr[:MAC_LEN] != source.raw:
            self._context.drop(now, source, "ethernet_spoofed")
            return None
        changed = self._changed(source, message)
        rewritten = repacked(header, datagram, changed)
        if len(rewritten) > self._context.config.mtu_bytes:
            self._context.count("ethernet_too_long")
            return None
        self._context.count("dhcp_rewritten")
        return rewritten

    def received(self, packet: bytes) -> tuple[Mac, bytes] | None:
        """Return the guest that a reply of the link is for and what it gets; None: not ours to change."""
        try:
            header, datagram, message = message_untrusted(packet)
        except BadFrame:
            return None  # the guest judges it itself
        if message.op != dhcp.Op.REPLY or message.chaddr != ZERO_ADDRESS:
            return None
        asked = self._asked.get(message.xid)
        if asked is None:
            return None
        named = message.option(dhcp.Code.CLIENT_ID)  # RFC 6842: the server repeats it
        if named is not None and named != asked.sent_client_id:
            return None
        chaddr = asked.mac.raw + bytes(len(ZERO_ADDRESS) - MAC_LEN)
        restored = replace(
            message,
            xid=transaction_of(message.xid, asked.sent_client_id),
            htype=_HTYPE_ETHERNET,
            hlen=MAC_LEN,
            chaddr=chaddr,
            flags=asked.flags,
        )
        restored = with_own_identifier(restored, asked.client_id)
        self._context.count("dhcp_restored")
        return asked.mac, repacked(header, datagram, restored)

    def _changed(self, source: Mac, message: dhcp.Message) -> dhcp.Message:
        former = message.option(dhcp.Code.CLIENT_ID)
        identifier = identifier_of(message, bytes((_HTYPE_ETHERNET,)) + source.raw)
        changed = for_link(message, identifier)
        self._asked.pop(changed.xid, None)
        self._asked[changed.xid] = _Asked(source, message.flags, former, identifier)
        if len(self._asked) > ETHERNET_DHCP_MAX:
            self._asked.popitem(last=False)
            self._context.count("dhcp_forgotten")
        return changed
