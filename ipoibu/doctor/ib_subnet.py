# SPDX-License-Identifier: BSD-2-Clause
"""Checks of an InfiniBand subnet: a link needs a subnet manager and a broadcast group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ipoibu.base.addr import PKey
from ipoibu.base.errors import IpoibuError
from ipoibu.base.limits import ENCAP_LEN
from ipoibu.doctor.finding import Finding
from ipoibu.fabric.sa.client import SaClient
from ipoibu.proto.sa.errors import NoRecords, SaError
from ipoibu.proto.sa.partition_line import partition_line
from ipoibu.wire import mgid


def subnet(device: str, port: int, pkey: PKey) -> list[Finding]:
    """Return every finding about the subnet of a port and the link of `pkey`, without a join of a group."""

    async def collect() -> list[Finding]:
        client = SaClient.open(device, port)
        try:
            return [finding async for finding in _findings(client, pkey)]
        finally:
            client.abort()

    try:
        return asyncio.run(collect())
    except IpoibuError as error:
        return [Finding("subnet_manager", "fail", str(error))]


async def _findings(client: SaClient, pkey: PKey) -> AsyncIterator[Finding]:
    """Yield the findings up to the first failure."""
    info = client.info
    place = f"{info.device}/{info.port}"
    if info.sa_lid == 0:
        detail = f"no subnet manager has configured {place}"
        yield Finding("subnet_manager", "fail", detail, "systemctl start opensm, on one host")
        return
    yield Finding("subnet_manager", "ok", f"{place} has LID {info.lid}, the manager {info.sa_lid}")
    if not info.has_pkey(pkey):
        detail = f"{place} has no P_Key {pkey.full}; it has: {info.pkeys_text}"
        yield Finding(
            "pkey",
            "fail",
            detail,
            f"add to partitions.conf: {partition_line(pkey, guid=info.guid)}",
        )
        return
    yield Finding("pkey", "ok", f"{place} is in the partition {pkey.full}")
    try:
        group = await client.group(mgid.broadcast(pkey.full))
    except NoRecords:
        detail = f"the link of {pkey.full} has no broadcast group: its partition needs `ipoib`"
        yield Finding(
            "broadcast_group", "fail", detail, f"add to partitions.conf: {partition_line(pkey)}"
        )
    except SaError as error:
        yield Finding("broadcast_group", "fail", str(error))
    else:
        mtu_bytes, qkey = (group.mtu_bytes or 0) - ENCAP_LEN, group.qkey or 0
        detail = f"the link of {pkey.full} has an IP MTU of {mtu_bytes}, Q_Key {qkey:#x}"
        yield Finding("broadcast_group", "ok", detail)
