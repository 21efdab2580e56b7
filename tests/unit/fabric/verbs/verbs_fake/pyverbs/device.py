# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno
import ipaddress
import logging
import socket
from types import SimpleNamespace

from pyverbs.machine import begin, machine
from pyverbs.pyverbs_error import PyverbsRDMAError

logging.basicConfig(level=logging.INFO)  # as pyverbs does


def get_device_list() -> list[SimpleNamespace]:
    begin("list")
    return [
        SimpleNamespace(name=name.encode(), transport_type=transport)
        for name, transport in machine.devices.items()
    ]


class Context:
    cmd_fd = 5

    def __init__(self, name: str) -> None:
        begin("open")
        self.name = name

    def query_port(self, port: int) -> SimpleNamespace:
        begin(f"port {port}")
        return SimpleNamespace(
            state=machine.state,
            active_mtu=machine.active_mtu,
            link_layer=machine.link_layer,
            gid_tbl_len=1 + max((index for index, *_ in machine.gids), default=0),
            pkey_tbl_len=len(machine.pkeys),
            active_width=machine.active_width,
            active_speed=machine.active_speed,
        )

    def query_gid_table(self, count: int) -> list[SimpleNamespace]:
        begin("gids")
        if count < len(machine.gids):
            raise PyverbsRDMAError("gids", errno.EINVAL)
        return [
            SimpleNamespace(
                gid_index=index,
                gid_str=lambda gid=gid: ipaddress.IPv6Address(gid).exploded,
                gid_type=kind,
                ndev_ifindex=ifindex,
                port_num=port,
            )
            for index, gid, kind, ifindex, port in machine.gids
        ]

    def query_gid(self, port: int, index: int) -> str:
        begin("gid")
        for at, gid, _, _, of_port in machine.gids:
            if (at, of_port) == (index, port):
                return ipaddress.IPv6Address(gid).exploded
        return "::"

    def query_pkey(self, port: int, index: int) -> int:
        begin("pkey")
        return socket.htons(machine.pkeys[index])

    def query_device(self) -> SimpleNamespace:
        begin("device")
        return SimpleNamespace(
            max_ah=machine.max_ah,
            max_qp_wr=machine.max_qp_wr,
            max_cqe=machine.max_cqe,
            max_mcast_grp=8192,
            max_srq=machine.max_srq,
            max_srq_wr=1 << 20,
            vendor_id=machine.vendor_id,
            phys_port_cnt=max((port for *_, port in machine.gids), default=1),
        )

    def close(self) -> None:
        begin("close context")
