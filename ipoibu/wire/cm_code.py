# SPDX-License-Identifier: BSD-2-Clause
"""The numbers of communication management: InfiniBand volume 1, §12.6 and §12.7 (Linux: ib_cm.h)."""

from __future__ import annotations

import enum
from typing import Final

CLASS: Final = 0x07
CLASS_VERSION: Final = 2
SEND: Final = 0x03  # the one method of the class, §13.4.5
REQ_PRIVATE_LEN: Final = 92
MRA_PRIVATE_LEN: Final = 222
REJ_PRIVATE_LEN: Final = 148
REP_PRIVATE_LEN: Final = 196
PAIR_PRIVATE_LEN: Final = 224  # RTU and DREP
DREQ_PRIVATE_LEN: Final = 220
INFO_LEN: Final = 72  # additional reject information
LID_PERMISSIVE: Final = 0xFFFF  # Linux's LIDs in a REQ for a path with a hop limit above 1


class Attribute(enum.IntEnum):
    """The messages of this program; any other attribute stays a plain number, in `Other`."""

    REQ = 0x0010
    MRA = 0x0011
    REJ = 0x0012
    REP = 0x0013
    RTU = 0x0014
    DREQ = 0x0015
    DREP = 0x0016


class Transport(enum.IntEnum):
    """REQ:Transport Service Type; 2 bits."""

    RC = 0
    UC = 1
    RD = 2
    EXTENDED = 3


class About(enum.IntEnum):
    """The message that an MRA or a REJ answers. The fourth value of the 2 bits stays a plain number."""

    REQ = 0
    REP = 1
    OTHER = 2


class Reason(enum.IntEnum):
    """REJ:Reason; other reasons stay plain numbers."""

    NO_QP = 1
    NO_EEC = 2
    NO_RESOURCES = 3
    TIMEOUT = 4  # additional information: the CA GUID of the sender
    UNSUPPORTED = 5
    INVALID_COMM_ID = 6
    INVALID_COMM_INSTANCE = 7
    INVALID_SERVICE_ID = 8
    INVALID_TRANSPORT = 9
    STALE_CONNECTION = 10
    RDC_NOT_EXIST = 11
    INVALID_GID = 12  # additional information: a GID that is valid
    INVALID_LID = 13
    INVALID_SL = 14
    INVALID_TRAFFIC_CLASS = 15
    INVALID_HOP_LIMIT = 16
    INVALID_RATE = 17
    INVALID_ALTERNATE_GID = 18
    INVALID_ALTERNATE_LID = 19
    INVALID_ALTERNATE_SL = 20
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21
    INVALID_ALTERNATE_HOP_LIMIT = 22
    INVALID_ALTERNATE_RATE = 23
    PORT_CM_REDIRECT = 24
    PORT_REDIRECT = 25
    INVALID_MTU = 26  # additional information: the code of the largest valid MTU
    INSUFFICIENT_RESPONDER_RESOURCES = 27
    CONSUMER = 28
    INVALID_RNR_RETRY = 29
    DUPLICATE_COMM_ID = 30
    INVALID_CLASS_VERSION = 31
    INVALID_FLOW_LABEL = 32
    INVALID_ALTERNATE_FLOW_LABEL = 33
    VENDOR_OPTION = 35


def seconds(code: int) -> float:
    """Return the time of a 5-bit code: 4.096 µs times 2 to the power of the code (31: 2.4 hours)."""
    return 4.096e-6 * (1 << code)
