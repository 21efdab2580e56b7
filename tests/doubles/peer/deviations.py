# SPDX-License-Identifier: BSD-2-Clause
"""Every deviation that the host can have, with the one clause that it breaks."""

from __future__ import annotations

from typing import Final

from tests.doubles.peer import addresses, cm_deviations, groups, ipv4, ipv6, nd_deviations

LINK: Final = {
    "ARP of hardware type 1": "R1",
    "ARP with an unknown flag": "A2",
    "ARP with another queue pair": "A1",
    "DHCP of an Ethernet": "D1",
    "DHCP wants its answer by unicast": "D2",
    "DHCP with the end of its hardware address": "D1",
    "DHCP without a client identifier": "D1",
    "GID of another prefix": "A3",
    "announces an address once": "K5",
    "answers any hardware length": "R1",
    "answers any hardware type": "R1",
    "answers any operation": "RFC826-request",
    "answers any protocol length": "R1",
    "answers any protocol": "R1",
    "answers for an address that it probes for": "K1",
    "answers for every address of its network": "RFC826-target",
    "answers no ARP by unicast": "R1",
    "answers no probe": "K7",
    "answers reverse ARP as ARP": "E3",
    "asks by unicast": "E5",
    "asks for each packet": "RFC1122-2.3.2.1",
    "asks with another GID": "A1",
    "believes that a host has a group's address": "RFC1812-3.3.2",
    "counts the header into the MTU": "T1",
    "defends no address": "K6",
    "defends without a limit": "K6",
    "drops ARP with unknown flags": "A2",
    "drops a frame whose reserved bits are set": "E2",
    "fills a short ARP message up": "R1",
    "identifier of another GUID": "I1",
    "identifier without the universal bit": "I2",
    "ignores another host's probe": "K4",
    "ignores the owner while it probes": "K4",
    "keeps only the first packet while it asks": "RFC1122-2.3.2.2",
    "keeps the first address of a host": "R2",
    "learns from any request": "R2",
    "learns nothing from a request": "R2",
    "learns only from what it is asked": "R2",
    "maps 23 bits of an IPv4 group": "G3",
    "maps 32 bits of an IPv6 group": "G3",
    "probes by the new address": "K2",
    "probes twice": "K2",
    "probes without a pause": "K3",
    "replies to everybody": "R1",
    "replies where a ping came from": "A4",
    "replies without the asker's address": "RFC826-swap",
    "sends reserved bits": "E2",
    "sends to no address with unknown flags": "A6",
    "stops for a while at a frame of 3 bytes": "E2",
    "takes IPv4 of type IPv6": "E3",
    "takes a wrong Q_Key": "E6",
    "takes an unknown type for IPv4": "E3",
    "takes another partition": "E7",
    "takes no announcement by a reply": "A5",
    "takes no announcement": "A5",
    "the group's scope in its GID": "G5",
    "wants no target address in a request": "R3",
}
"""Frames, hardware addresses, groups, ARP, conflicts and DHCP: RFC 4391, 826, 5227 and 4390."""

DEVIATIONS: Final = {
    **LINK,
    **addresses.DEVIATIONS,
    **groups.DEVIATIONS,
    **ipv4.DEVIATIONS,
    **ipv6.DEVIATIONS,
    **nd_deviations.DEVIATIONS,
    **cm_deviations.DEVIATIONS,
}
