# SPDX-License-Identifier: BSD-2-Clause
from dataclasses import dataclass

from pyverbs.pyverbs_error import PyverbsError


class GID:
    def __init__(self, val: str) -> None:
        if [len(group) for group in val.split(":")] != [4] * 8:  # pyverbs takes no short form
            raise PyverbsError(f"Invalid GID value ({val})")
        self.val = val


@dataclass
class GlobalRoute:
    dgid: GID
    flow_label: int
    sgid_index: int
    hop_limit: int
    traffic_class: int


@dataclass
class AHAttr:
    gr: GlobalRoute
    is_global: int
    dlid: int
    sl: int
    static_rate: int
    port_num: int
