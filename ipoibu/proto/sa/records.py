# SPDX-License-Identifier: BSD-2-Clause
"""Make the link's parameters, and paths to groups and ports, from the subnet administrator's records.

A record that answers another question than ours would give us another link, or lead our packets to
another port. So the client compares each record with its question first.
"""

from __future__ import annotations

from ipoibu.base.addr import MULTICAST_QPN, Gid, PKey, Qpn
from ipoibu.base.errors import BadFrame
from ipoibu.base.ib import Destination, PartitionParams
from ipoibu.base.limits import ENCAP_LEN
from ipoibu.proto.paths import SaPath
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import McMemberRecord
from ipoibu.wire.pathrecord import PathQuery, PathRecord

_LINK_LOCAL = b"\xfe\x80" + bytes(6)  # the prefix of a GID that names a port of any subnet
_NO_GID = Gid(bytes(16))


def check_group(record: McMemberRecord, asked: McMemberRecord) -> None:
    """Raise `BadFrame` if the answer has another MGID, P_Key, scope or port than the question.

    An SA may leave scope and port GID zero. The P_Key's membership bit says nothing about the group.
    """
    if asked.pkey is not None and (record.pkey or PKey(0)).full != asked.pkey.full:
        raise BadFrame("sa_mismatch")
    if asked.mgid is None:
        return
    if record.mgid != asked.mgid or record.scope not in (0, mgid.parse_untrusted(asked.mgid).scope):
        raise BadFrame("sa_mismatch")
    if asked.port_gid is not None and record.port_gid not in (_NO_GID, None):
        _check_port(record.port_gid, asked.port_gid)


def check_path(record: PathRecord, asked: PathQuery) -> None:
    """Raise `BadFrame` if the answer has another DGID, SGID or P_Key than the question."""
    _check_port(record.dgid, asked.dgid)
    _check_port(record.sgid, asked.sgid)
    if record.pkey.full != asked.pkey.full:
        raise BadFrame("sa_mismatch")


def _check_port(answered: Gid | None, asked: Gid) -> None:
    """Accept the GID that we asked for, and the same port under the subnet's own prefix."""
    if answered == asked:
        return
    is_prefixed = asked.raw.startswith(_LINK_LOCAL)
    if answered is None or not is_prefixed or answered.interface_id != asked.interface_id:
        raise BadFrame("sa_mismatch")


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
