# SPDX-License-Identifier: BSD-2-Clause
from pyverbs.device import Context
from pyverbs.machine import begin


class PD:
    def __init__(self, context: Context) -> None:
        begin("pd")
        self.context = context

    def close(self) -> None:
        begin("close pd")
