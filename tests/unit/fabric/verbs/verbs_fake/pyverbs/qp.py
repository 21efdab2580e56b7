# SPDX-License-Identifier: BSD-2-Clause
import errno
from dataclasses import dataclass

from pyverbs.cq import CQ
from pyverbs.machine import begin, machine
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.srq import SRQ


@dataclass
class QPCap:
    max_send_wr: int
    max_recv_wr: int
    max_send_sge: int
    max_recv_sge: int
    max_inline_data: int


@dataclass
class QPInitAttr:
    qp_type: int
    scq: CQ
    rcq: CQ
    cap: QPCap
    sq_sig_all: int
    srq: SRQ | None = None


class QPAttr:
    def __init__(self, port_num: int = 1) -> None:
        self.port_num = port_num


class QP:
    qp_num = 0x11

    def __init__(self, pd: PD, attr: QPInitAttr) -> None:
        begin("qp")
        if attr.cap.max_inline_data > machine.max_inline:
            raise PyverbsRDMAError("Failed to create QP", errno.EINVAL)
        assert attr.scq.channel is attr.rcq.channel
        self.pd = pd
        self.attr = attr

        self.asked: list[tuple[int, dict[str, object]]] = []

    def modify(self, attr: QPAttr, mask: int) -> None:
        begin(f"modify {attr.__dict__['qp_state']}")
        self.asked.append((mask, dict(attr.__dict__)))

    def close(self) -> None:
        begin("close qp")
