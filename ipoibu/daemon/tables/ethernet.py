# SPDX-License-Identifier: BSD-2-Clause
"""What guests behind a TAP fill."""

from __future__ import annotations

from typing import Final

from ipoibu.base import limits
from ipoibu.daemon.tables.table import Filler, Table

ETHERNET: Final = (
    Table(
        "MACs of hosts of the link",
        (
            "proto/ethernet/macs.py:Macs._macs",
            "proto/ethernet/macs.py:Macs._strangers",
            "proto/ethernet/macs.py:Macs._used",
        ),
        (Filler.LINK,),
        limits.ETHERNET_NEIGHBOURS_MAX,
        900,
        "of those to which no guest sends, the longest silent goes",
        "ethernet_neighbour_evicted",
    ),
    Table(
        "addresses of guests",
        (
            "proto/ethernet/guests.py:Guests._bindings",
            "proto/ethernet/guests.py:Guests._loose",
            "proto/ethernet/guests.py:Guests._firm",
            "proto/ethernet/guests.py:Guests._of_mac",
            "proto/ethernet/guests.py:Guests._to_announce",
            "proto/ethernet/queue_pairs.py:QueuePairs._qpns",
            "proto/ethernet/queue_pairs.py:QueuePairs._macs",
        ),
        (Filler.GUEST,),
        limits.ETHERNET_GUESTS_MAX,
        1600,
        "addresses that no guest has claimed go first, then those silent for longest",
        "ethernet_guest_evicted",
    ),
    Table(
        "addresses of one guest",
        (
            "proto/ethernet/guests.py:_OfGuest.loose",
            "proto/ethernet/guests.py:_OfGuest.firm",
            "proto/ethernet/guests.py:_OfGuest.others",
        ),
        (Filler.GUEST,),
        limits.ETHERNET_GUEST_ADDRESSES_MAX,
        1600,
        "as above",
        "ethernet_guest_evicted",
    ),
    Table(
        "groups of guests",
        (
            "proto/ethernet/listeners.py:GuestListeners._interest",
            "proto/ethernet/listeners.py:GuestListeners._guests",
        ),
        (Filler.GUEST,),
        limits.ETHERNET_MEMBERSHIPS_MAX,
        2000 + 200 * limits.MEMBERSHIP_SOURCES_MAX,
        "the new group is not joined",
        "ethernet_memberships_full",
        True,
    ),
    Table(
        "addresses that we look for among guests",
        ("proto/ethernet/host.py:EthernetHost._searches",),
        (Filler.LINK,),
        limits.ETHERNET_WAITING_MAX,
        2000,
        "the new packet goes; each question lasts 3 s",
        "ethernet_unknown_guest",
    ),
    Table(
        "packets that wait for guests",
        ("proto/ethernet/host.py:EthernetHost._waiting",),
        (Filler.LINK,),
        limits.ETHERNET_WAITING_TOTAL_BYTES,
        1,
        "the packets that wait longest go; the new one, if its guest has ETHERNET_WAITING_BYTES",
        "ethernet_unknown_guest",
        unit="bytes",
    ),
    Table(
        "requests of guests' DHCP clients",
        ("proto/ethernet/dhcp.py:GuestDhcp._asked",),
        (Filler.GUEST,),
        limits.ETHERNET_DHCP_MAX,
        1200,
        "the oldest goes",
        "dhcp_forgotten",
    ),
    Table(
        "addresses that a guest may not use",
        ("proto/ethernet/refusals.py:Refusals._refused",),
        (Filler.GUEST,),
        limits.ETHERNET_REFUSALS_MAX,
        700,
        "the one used longest ago goes",
        uncounted="it is refused again at the next use, and that is counted",
    ),
)
