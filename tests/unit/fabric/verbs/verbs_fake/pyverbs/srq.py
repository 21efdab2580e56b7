# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import dataclass

from pyverbs.machine import begin
from pyverbs.pd import PD


@dataclass
class SrqAttr:
    max_wr: int
    max_sge: int


@dataclass
class SrqInitAttr:
    attr: SrqAttr


class SRQ:
    def __init__(self, pd: PD, init: SrqInitAttr) -> None:
        begin(f"srq {init.attr.max_wr}")

    def close(self) -> None:
        begin("close srq")
