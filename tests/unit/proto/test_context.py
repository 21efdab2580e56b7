# SPDX-License-Identifier: BSD-2-Clause
"""The destinations of datagrams: with the link's parameters, or with a group's own."""

from __future__ import annotations

import random

from ipoibu.base.addr import Gid, HwAddr, PKey, Qpn
from ipoibu.base.ib import Destination, GroupParams, PartitionParams
from ipoibu.proto.context import EngineContext, LinkConfig

OWN = Gid.parse("ff12:401b:8001::1:2")
OTHER = Gid.parse("ff12:401b:8001::1:3")


def test_a_group_with_parameters_of_its_own_is_sent_to_with_them() -> None:
    params = PartitionParams(
        PKey(0x8001), 0x0B1B, 2048, sl=1, rate=3, groups=(GroupParams(OWN, 4, 8, 3),)
    )
    hwaddr = HwAddr(Qpn(5), Gid.parse("fe80::1"))
    context = EngineContext(LinkConfig(params, hwaddr), random.Random(1))
    everybody = Qpn(0xFFFFFF)
    assert context.group(OWN) == Destination(
        OWN, everybody, sl=4, static_rate=3, traffic_class=8, flow_label=3
    )
    assert context.group(OTHER) == Destination(OTHER, everybody, sl=1, static_rate=3)
