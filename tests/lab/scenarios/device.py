# SPDX-License-Identifier: BSD-2-Clause
"""Asks pyverbs about an RDMA device in the machine."""

import json

from pyverbs.device import Context


def describe(name: str) -> None:
    """Print port 1 of device `name` as one line of JSON."""
    with Context(name=name) as context:
        port = context.query_port(1)
        print(
            json.dumps(
                {
                    "name": context.name,
                    "state": port.state,
                    "active_mtu": port.active_mtu,
                    "gid": str(context.query_gid(1, 0)),
                    "gids": port.gid_tbl_len,
                }
            )
        )
