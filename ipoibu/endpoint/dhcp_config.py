# SPDX-License-Identifier: BSD-2-Clause
"""The configuration of an endpoint's clients for DHCP and DHCPv6."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ipoibu.base.addr import PKey
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import HOST_NAME_MAX
from ipoibu.proto.context import Dhcp6Identity, DhcpIdentity
from ipoibu.wire import client_id

DUID: Final = "duid"
GUID: Final = "guid"

_LABEL: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")  # RFC 1123 §2.1


@dataclass(frozen=True, slots=True)
class DhcpConfig:
    """Says how an endpoint gets an address by DHCP or DHCPv6; `UsageError` for values that cannot be."""

    # The identity that the client gives (D1): "duid", RFC 4361, from P_Key and port GUID; "guid", as
    # NetworkManager has it, 20:GUID; or bytes in hexadecimal with colons. The client of DHCPv6 takes
    # IAID and DUID of it if it is of RFC 4361, and else those of "duid"
    client_id: str = DUID

    # The name that the client tells the server; empty: none
    host_name: str = ""

    # The directory that keeps the lease over restarts; None: nothing keeps it
    lease_dir: Path | None = None

    # Give the address back when the endpoint closes
    is_released: bool = False

    def __post_init__(self) -> None:
        read_client_id(self.client_id)
        read_host_name(self.host_name)

    def identity(self, guid: bytes, pkey: PKey) -> DhcpIdentity:
        """Return the identity of the interface in this partition of a port."""
        if self.client_id == DUID:
            iaid = int(pkey).to_bytes(4, "big")
            value = client_id.of_duid(iaid, client_id.duid_of_guid(guid))
        elif self.client_id == GUID:
            value = client_id.of_guid(guid)
        else:
            value = bytes.fromhex(self.client_id.replace(":", ""))
        return DhcpIdentity(value, self.host_name)

    def identity6(self, guid: bytes, pkey: PKey) -> Dhcp6Identity:
        """Return the identity of DHCPv6: the same DUID and IAID, as RFC 4361 §6.1 asks."""
        parts = client_id.parts_of(self.identity(guid, pkey).client_id)
        iaid, duid = parts or (int(pkey).to_bytes(4, "big"), client_id.duid_of_guid(guid))
        return Dhcp6Identity(duid, iaid, self.host_name)


def read_client_id(text: str) -> str:
    """Check a client identifier's form."""
    if text in (DUID, GUID):
        return text
    try:
        value = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        value = b""
    if not client_id.MIN_BYTES <= len(value) <= client_id.MAX_BYTES:
        raise UsageError(
            f"{text!r} is no client identifier (expected {DUID}, {GUID}, or 2 to 255 bytes such as"
            " 20:00:02:c9:03:00:00:10:a5)"
        )
    return text


def read_host_name(text: str) -> str:
    """Check a host's name, without its domain."""
    if text and (len(text) > HOST_NAME_MAX or not _LABEL.fullmatch(text)):
        raise UsageError(
            f"{text[:80]!r} is no host name (expected up to {HOST_NAME_MAX} letters, digits and"
            " hyphens, such as node7)"
        )
    return text
