# SPDX-License-Identifier: BSD-2-Clause
"""Communication management (InfiniBand volume 1, §12.6) and IPoIB's private data (RFC 4755 §6).

A datagram is the MAD header (§13.4.2), a message and its private data; together 256 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ipoibu.conform.layout import Field, Layout, Value, code, number, octets
from ipoibu.conform.packet import COMPLETE, NEXT, Around, Given, Layer

MAD: Final = Layout(
    "mad",
    number("base_version", 8, 1),
    code("class", 8, 7),
    number("class_version", 8, 2),
    code("method", 8, 3),
    code("status", 16),
    code("class_specific", 16),
    code("tid", 64),
    code("attribute", 16),
    code("reserved", 16),
    code("modifier", 32),
)


def _path(name: str, *, is_used: bool) -> tuple[Field, ...]:
    """A path of a REQ, by default one through a router: with permissive LIDs it goes by its GIDs alone."""
    return (
        code(f"{name}_local_lid", 16, 0xFFFF if is_used else 0),
        code(f"{name}_remote_lid", 16, 0xFFFF if is_used else 0),
        octets(f"{name}_local_gid", 16),
        octets(f"{name}_remote_gid", 16),
        code(f"{name}_flow_label", 20),
        number(f"{name}_reserved", 6),
        number(f"{name}_rate", 6, 3 if is_used else 0),  # 10 Gb/s
        code(f"{name}_traffic_class", 8),
        number(f"{name}_hop_limit", 8, 64 if is_used else 0),
        number(f"{name}_sl", 4),
        number(f"{name}_subnet_local", 1),
        number(f"{name}_reserved2", 3),
        number(f"{name}_ack_timeout", 5, 18 if is_used else 0),
        number(f"{name}_reserved3", 3),
    )


REQ: Final = Layout(
    "cm_req",
    code("local_id", 32),
    number("reserved", 32),
    code("service_id", 64),
    code("ca_guid", 64),
    number("reserved2", 32),
    code("local_qkey", 32),
    code("qpn", 24),
    number("responder_resources", 8),
    code("eecn", 24),
    number("initiator_depth", 8),
    code("remote_eecn", 24),
    number("remote_response_timeout", 5, 18),
    number("transport", 2),
    number("flow_control", 1),
    code("psn", 24),
    number("local_response_timeout", 5, 18),
    number("retries", 3, 6),
    code("pkey", 16),
    number("path_mtu", 4, 4),
    number("rdc_exists", 1),
    number("rnr_retries", 3, 6),
    number("cm_retries", 4, 3),
    number("srq", 1),
    number("extended_transport", 3),
    *_path("primary", is_used=True),
    *_path("alternate", is_used=False),
)
MRA: Final = Layout(
    "cm_mra",
    code("local_id", 32),
    code("remote_id", 32),
    number("about", 2),
    number("reserved", 6),
    number("service_timeout", 5),
    number("reserved2", 3),
    octets("private", 222),
)
REJ: Final = Layout(
    "cm_rej",
    code("local_id", 32),
    code("remote_id", 32),
    number("about", 2),
    number("reserved", 6),
    number("info_length", 7),
    number("reserved2", 1),
    number("reason", 16),
    octets("info", 72),
    octets("private", 148),
)
REP: Final = Layout(
    "cm_rep",
    code("local_id", 32),
    code("remote_id", 32),
    code("local_qkey", 32),
    code("qpn", 24),
    number("reserved", 8),
    code("eecn", 24),
    number("reserved2", 8),
    code("psn", 24),
    number("reserved3", 8),
    number("responder_resources", 8),
    number("initiator_depth", 8),
    number("ack_delay", 5),
    number("failover", 2, 1),  # alternate paths are not supported
    number("flow_control", 1),
    number("rnr_retries", 3, 6),
    number("srq", 1),
    number("reserved4", 4),
    code("ca_guid", 64),
)
RTU: Final = Layout("cm_rtu", code("local_id", 32), code("remote_id", 32), octets("private", 224))
DREQ: Final = Layout(
    "cm_dreq",
    code("local_id", 32),
    code("remote_id", 32),
    code("remote_qpn", 24),
    number("reserved", 8),
    octets("private", 220),
)
DREP: Final = Layout("cm_drep", code("local_id", 32), code("remote_id", 32), octets("private", 224))


def _private(length: int) -> Layout:
    return Layout(
        "ipoib_private",
        code("reserved", 8),
        code("qpn", 24),
        number("receive_mtu", 32),
        octets("rest", length - 8),
    )


REQ_PRIVATE: Final = _private(92)
REP_PRIVATE: Final = _private(196)

ABOUT_REQ, ABOUT_REP, ABOUT_OTHER = 0, 1, 2
TIMED_OUT: Final = 4
INVALID_SERVICE_ID: Final = 8
INVALID_TRANSPORT: Final = 9
STALE: Final = 10
CONSUMER: Final = 28

_ATTRIBUTES: Final = {
    REQ: 0x10,
    MRA: 0x11,
    REJ: 0x12,
    REP: 0x13,
    RTU: 0x14,
    DREQ: 0x15,
    DREP: 0x16,
}
_LAYOUTS: Final = {number: layout for layout, number in _ATTRIBUTES.items()}
_PRIVATE: Final = {REQ: REQ_PRIVATE, REP: REP_PRIVATE}


def mad(**values: Given) -> Layer:
    return Layer(MAD, values)


def req(**values: Given) -> Layer:
    return Layer(REQ, values)


def mra(**values: Given) -> Layer:
    return Layer(MRA, values)


def rej(**values: Given) -> Layer:
    return Layer(REJ, values)


def rep(**values: Given) -> Layer:
    return Layer(REP, values)


def rtu(**values: Given) -> Layer:
    return Layer(RTU, values)


def dreq(**values: Given) -> Layer:
    return Layer(DREQ, values)


def drep(**values: Given) -> Layer:
    return Layer(DREP, values)


def req_private(**values: Given) -> Layer:
    """The private data of a REQ: all that follows."""
    return Layer(REQ_PRIVATE, values)


def rep_private(**values: Given) -> Layer:
    """The private data of a REP: all that follows."""
    return Layer(REP_PRIVATE, values)


def _complete(values: dict[str, Value], around: Around) -> None:
    if around.inner:
        values.setdefault("attribute", _ATTRIBUTES.get(around.inner[0].layout, 0))


def _next(layers: Sequence[Layer], rest: bytes) -> tuple[Layout | None, bytes]:
    last = layers[-1]
    if last.layout is not MAD:
        return _PRIVATE.get(last.layout), rest
    is_cm = last.values["class"] == 7 and last.values["class_version"] == 2
    return (_LAYOUTS.get(last.values["attribute"]) if is_cm else None), rest  # type: ignore[arg-type]


COMPLETE[MAD] = _complete
for _layout in (MAD, REQ, REP):
    NEXT[_layout] = _next
