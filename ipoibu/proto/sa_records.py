# SPDX-License-Identifier: BSD-2-Clause
"""What the subnet administrator's records mean to a link: its parameters, and paths to groups and ports."""

from __future__ import annotations

from ipoibu.addr import MULTICAST_QPN, PKey, Qpn
from ipoibu.ib import Destination, PartitionParams
from ipoibu.limits import ENCAP_LEN
from ipoibu.proto.sa_path import SaPath
from ipoibu.wire.mcmember import McMemberRecord
from ipoibu.wire.pathrecord import PathRecord


def link_params(record: McMemberRecord) -> PartitionParams:
    """The link's parameters, as the broadcast group's record tells them (B1)."""
    assert record.mtu_bytes is not None, "an answer has every field"
    return PartitionParams(
        pkey=PKey(record.pkey or 0),
        qkey=record.qkey or 0,
        mtu_bytes=record.mtu_bytes,
        scope=record.scope or 0,
        sl=record.sl or 0,
        hop_limit=record.hop_limit or 0,
        traffic_class=record.traffic_class or 0,
        flow_label=record.flow_label or 0,
        rate=record.rate or 0,
    )


def path_to_group(record: McMemberRecord) -> SaPath:
    """Where datagrams for the group go (E5), and how long they may be."""
    assert record.mgid is not None, "an answer has every field"
    assert record.mtu_bytes is not None, "an answer has every field"
    destination = Destination(
        record.mgid,
        Qpn(MULTICAST_QPN),
        dlid=record.mlid or 0,
        sl=record.sl or 0,
        static_rate=record.rate or 0,
        hop_limit=record.hop_limit or 0,
        traffic_class=record.traffic_class or 0,
        flow_label=record.flow_label or 0,
    )
    return SaPath(destination, record.mtu_bytes - ENCAP_LEN)


def path_from_record(path: PathRecord, qpn: Qpn) -> SaPath:
    """Where datagrams for the queue pair behind a path go (B6), and how long they may be."""
    destination = Destination(
        path.dgid,
        qpn,
        dlid=path.dlid,
        sl=path.sl,
        static_rate=path.rate,
        hop_limit=path.hop_limit,
        traffic_class=path.traffic_class,
        flow_label=path.flow_label,
    )
    return SaPath(destination, path.mtu_bytes - ENCAP_LEN)
