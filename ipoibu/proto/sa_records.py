# SPDX-License-Identifier: BSD-2-Clause
"""Make the link's parameters, and paths to groups and ports, from the subnet administrator's records."""

from __future__ import annotations

from ipoibu.addr import MULTICAST_QPN, PKey, Qpn
from ipoibu.ib import Destination, PartitionParams
from ipoibu.limits import ENCAP_LEN
from ipoibu.proto.sa_path import SaPath
from ipoibu.wire.mcmember import McMemberRecord
from ipoibu.wire.pathrecord import PathRecord


def link_params(record: McMemberRecord) -> PartitionParams:
    """Return the link's parameters from the broadcast group's record (B1)."""
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
    """Return the path to a group (E5), with the largest datagram on it."""
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
    """Return the path to the queue pair of a port (B6), with the largest datagram on it."""
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
