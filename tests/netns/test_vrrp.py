# SPDX-License-Identifier: BSD-2-Clause
"""keepalived moves an address between two hosts, as on an Ethernet interface."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from ipoibu.base.processes import children_of
from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Until
from tests.netns.vrrp import keepalived

VIRTUAL = "10.77.0.100"
VIRTUAL6 = "fd77::100"


def _config(priority: int, peer: Host) -> str:
    return f"""
global_defs {{
  vrrp_garp_master_delay 1
}}
vrrp_instance one {{
  interface ib0
  state BACKUP
  virtual_router_id 51
  priority {priority}
  advert_int 0.2
  unicast_peer {{ {peer.ipv4.ip} }}
  virtual_ipaddress {{ {VIRTUAL}/24 dev ib0 }}
  virtual_ipaddress_excluded {{ {VIRTUAL6}/64 dev ib0 }}
}}
"""


def _has(host: Host, address: str) -> bool:
    return f" {address}/" in host.run(["ip", "address", "show", "dev", "ib0"]).stdout


def _reaches(host: Host, address: str) -> bool:
    return host.run(["ping", "-c1", "-W1", address]).returncode == 0


@pytest.fixture(scope="module")
def three() -> Iterator[NamespaceLab]:
    with NamespaceLab(3) as lab:
        yield lab


def test_a_virtual_address_moves_with_its_master(three: NamespaceLab, until: Until) -> None:
    master, backup, client = three.hosts
    with keepalived(backup, _config(50, master)):
        until(lambda: _has(backup, VIRTUAL))
        with keepalived(master, _config(100, backup)) as preferred:
            until(lambda: _has(master, VIRTUAL) and not _has(backup, VIRTUAL))
            for address in (VIRTUAL, VIRTUAL6):
                until(lambda address=address: _reaches(client, address))
            # A frozen keepalived keeps its addresses; the backup takes them over all the same.
            preferred.send_signal(signal.SIGSTOP)
            processes = children_of(preferred.pid)
            for pid in processes:
                _send(pid, signal.SIGSTOP)
            until(lambda: _has(backup, VIRTUAL) and _has(backup, VIRTUAL6))
            for address in (VIRTUAL, VIRTUAL6):
                until(lambda address=address: _reaches(client, address))
            assert _has(master, VIRTUAL)
            assert _has(backup, VIRTUAL), "the backup keeps what it took over"
            until(lambda: _neighbour(client) == backup.ask("show")["hwaddr"])
            for pid in processes:
                _send(pid, signal.SIGCONT)
            preferred.send_signal(signal.SIGCONT)
            until(lambda: _has(master, VIRTUAL) and not _has(backup, VIRTUAL))
            until(lambda: _neighbour(client) == master.ask("show")["hwaddr"])
        until(lambda: _has(backup, VIRTUAL))
        until(lambda: _neighbour(client) == backup.ask("show")["hwaddr"])
        until(lambda: _reaches(client, VIRTUAL))
    for host in (master, backup):
        assert "removed" not in host.log()


def _send(pid: int, number: signal.Signals) -> None:
    os.kill(pid, number)


def _neighbour(host: Host) -> str:
    entries = {entry["ip"]: entry["hwaddr"] for entry in host.ask("neigh")}
    return str(entries.get(VIRTUAL))


def test_keepalived_enters_fault_while_the_port_is_down(three: NamespaceLab, until: Until) -> None:
    master, backup, _ = three.hosts
    with keepalived(master, _config(100, backup)):
        until(lambda: _has(master, VIRTUAL))
        gid = master.ask("show")["gid"]
        assert master.run(["ip", "link", "set", "eth0", "down"]).returncode == 0
        until(lambda: not _has(master, VIRTUAL))
        assert master.run(["ip", "link", "set", "eth0", "up"]).returncode == 0
        master.run(["ip", "-6", "address", "add", f"{gid}/64", "dev", "eth0", "nodad"])
        until(lambda: _has(master, VIRTUAL))
