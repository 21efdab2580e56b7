# SPDX-License-Identifier: BSD-2-Clause
from pyverbs.device import Context
from pyverbs.machine import begin


class CompChannel:
    def __init__(self, context: Context) -> None:
        begin("channel")

    def close(self) -> None:
        begin("close channel")


class CQ:
    def __init__(
        self, context: Context, cqe: int, cq_context: object, channel: CompChannel, vector: int
    ) -> None:
        begin(f"cq {cqe}")
        self.channel = channel

    def close(self) -> None:
        begin("close cq")
