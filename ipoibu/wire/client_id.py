# SPDX-License-Identifier: BSD-2-Clause
"""The client identifier of DHCP, which says who asks where hardware addresses do not fit (D1).

RFC 4361 §6.1:

    | type 255 | IAID 4 | DUID |

with the DUID of a link-layer address, RFC 8415 §11.4:

    | type 3, 2 bytes | hardware type 32, 2 bytes | GUID 8 |

The other form, as NetworkManager and older clients on IP over InfiniBand have it:

    | hardware type 32 | GUID 8 |
"""

from __future__ import annotations

from typing import Final

HTYPE_INFINIBAND: Final = 32
DUID_MAX_BYTES: Final = 130  # RFC 8415 §11.1: type and 128 bytes
MIN_BYTES: Final = 2  # RFC 2132 §9.14
MAX_BYTES: Final = 255  # one option

_TYPE_DUID: Final = 255
_DUID_LL: Final = 3
_GUID_BYTES: Final = 8


def of_duid(iaid: bytes, duid: bytes) -> bytes:
    """Return the identifier of the interface `iaid` (4 bytes) of the host `duid`."""
    if len(iaid) != 4:
        raise ValueError(f"an IAID has 4 bytes, not {len(iaid)}")
    return bytes((_TYPE_DUID,)) + iaid + duid


def duid_of_guid(guid: bytes) -> bytes:
    """Return the DUID of a host by the GUID of its port."""
    _check_guid(guid)
    return _DUID_LL.to_bytes(2, "big") + HTYPE_INFINIBAND.to_bytes(2, "big") + guid


def of_guid(guid: bytes) -> bytes:
    """Return the identifier that is a hardware type and the port's GUID."""
    _check_guid(guid)
    return bytes((HTYPE_INFINIBAND,)) + guid


def parts_of(identifier: bytes) -> tuple[bytes, bytes] | None:
    """Return IAID and DUID of an identifier of RFC 4361, None for one of another form."""
    duid = identifier[5:]
    if identifier[:1] != bytes((_TYPE_DUID,)) or not 3 <= len(duid) <= DUID_MAX_BYTES:
        return None
    return identifier[1:5], duid


def _check_guid(guid: bytes) -> None:
    if len(guid) != _GUID_BYTES:
        raise ValueError(f"a GUID has {_GUID_BYTES} bytes, not {len(guid)}")
