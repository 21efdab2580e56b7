# SPDX-License-Identifier: BSD-2-Clause
"""Network and RDMA devices of a machine, for scenarios in Python: the functions of links.sh."""

import os
import subprocess


def link_local(index: int) -> str:
    """Return the link-local address of vec0 of machine `index`; the first machine is 1."""
    return f"fe80::ff:fe00:{index:x}"


def link_up(netdev: str, mtu: int = 9000, *cidrs: str) -> None:
    """Set `netdev` up with an EUI-64 link-local address, usable at once, and with `cidrs`."""
    _bash("link_up", netdev, str(mtu), *cidrs)


def veth_pair(netdev: str, peer: str, mtu: int = 9000) -> None:
    """Make two joined devices in this namespace, both up."""
    _bash("veth_pair", netdev, peer, str(mtu))


def rdma_up(device: str, kind: str, netdev: str) -> None:
    """Make `device`, of kind `rxe` or `siw`, on `netdev`; its port is active on return."""
    _bash("rdma_up", device, kind, netdev)


def _bash(*arguments: str) -> None:
    """Run one function of links.sh; raise CalledProcessError when it fails."""
    script = '. "$LAB_INSIDE/links.sh"; "$@"'
    subprocess.run(["bash", "-c", script, "lab", *arguments], check=True, env=os.environ)
