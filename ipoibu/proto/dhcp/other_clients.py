# SPDX-License-Identifier: BSD-2-Clause
"""Makes the messages of other programs' DHCP clients those of an IPoIB host (RFC 4390), and back.

A TUN has no hardware address, so that a client such as udhcpc asks in the name of address zero on
Ethernet: a server would give all hosts the same lease, and its answer to one of them goes nowhere. The
requests of such a client leave with hardware type 32, no hardware address, and a client identifier of
RFC 4361, made from port GUID and P_Key, so that each interface has one of its own. A client that has
an identifier of its own keeps it. While the client has no address, its requests ask for replies by
broadcast; so they leave with a transaction that only this client has (`form.transaction_of`).

Clients drop replies that name another hardware address than their own, so the replies get back what the
client wrote.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from ipoibu.base.errors import BadFrame
from ipoibu.base.limits import DHCP_REQUESTS_MAX
from ipoibu.proto.context import EngineContext
from ipoibu.proto.dhcp.form import (
    ZERO_ADDRESS,
    for_link,
    identifier_of,
    is_clients_request,
    message_untrusted,
    repacked,
    with_own_identifier,
)
from ipoibu.proto.effects import WatchDhcp
from ipoibu.wire import client_id, dhcp


@dataclass(frozen=True, slots=True)
class _Asked:
    """The client's own values, and the client identifier in their place."""

    xid: int
    htype: int
    hlen: int
    client_id: bytes | None
    sent_client_id: bytes


class DhcpClients:
    """The transactions of the local clients whose requests we changed, the latest ones only."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._asked: OrderedDict[int, _Asked] = OrderedDict()  # by the link's transaction
        self._is_watching = False

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def is_watching(self) -> bool:
        """Return whether replies have to pass through `received`."""
        return self._is_watching

    def client_id(self) -> bytes:
        """Return the interface's client identifier: type, IAID (the P_Key), DUID-LL of the port GUID."""
        guid = self._context.hwaddr.gid.interface_id
        iaid = int(self._context.config.params.pkey).to_bytes(4, "big")
        return client_id.of_duid(iaid, client_id.duid_of_guid(guid))

    def sent(self, packet: bytes) -> bytes:
        """Return the packet that leaves in place of a packet of the local stack."""
        try:
            header, datagram, message = message_untrusted(packet)
        except BadFrame:
            self._context.count("dhcp_unread")
            return packet
        if not is_clients_request(message):
            return packet
        if message.chaddr != ZERO_ADDRESS:
            return packet  # of a client behind us, on another medium
        changed = self._changed(message)
        if changed == message:
            return packet
        rewritten = repacked(header, datagram, changed)
        if len(rewritten) > self._context.config.mtu_bytes:
            self._context.count("dhcp_unread")
            return packet
        self._context.count("dhcp_rewritten")
        if not self._is_watching:
            self._is_watching = True
            self._context.emit(WatchDhcp())
        return rewritten

    def _changed(self, message: dhcp.Message) -> dhcp.Message:
        former = message.option(dhcp.Code.CLIENT_ID)
        identifier = identifier_of(message, self.client_id())
        changed = for_link(message, identifier)
        if replace(changed, xid=message.xid) == message:
            return message  # a client that knows RFC 4390
        self._asked.pop(changed.xid, None)
        self._asked[changed.xid] = _Asked(
            message.xid, message.htype, message.hlen, former, identifier
        )
        if len(self._asked) > DHCP_REQUESTS_MAX:
            self._asked.popitem(last=False)
            self._context.count("dhcp_forgotten")
        return changed

    def received(self, packet: bytes) -> bytes:
        """Return the packet that the local stack gets in place of a reply from the link."""
        try:
            header, datagram, message = message_untrusted(packet)
        except BadFrame:
            return packet  # the client judges it itself
        asked = self._asked.get(message.xid)
        if asked is None or message.op != dhcp.Op.REPLY or message.chaddr != ZERO_ADDRESS:
            return packet
        named = message.option(dhcp.Code.CLIENT_ID)  # RFC 6842: the server repeats it
        if named is not None and named != asked.sent_client_id:
            return packet  # to another host, which has chosen the same number
        restored = replace(message, xid=asked.xid, htype=asked.htype, hlen=asked.hlen)
        restored = with_own_identifier(restored, asked.client_id)
        self._context.count("dhcp_restored")
        return repacked(header, datagram, restored)
