# SPDX-License-Identifier: BSD-2-Clause
"""Machines whose process 1 is systemd: its services as on a host, NetworkManager and networkd on ib0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ipoibu.lab import Lab
from ipoibu.lab.machines.mounts import ROOT
from ipoibu.lab.machines.runner import INFINIBAND, Result, shell
from tests.lab.bare import run

pytestmark = [pytest.mark.lab, pytest.mark.nightly]

# Two partitions, so that ib0 can have a child.
PARTITIONED = (*INFINIBAND, "rdma_rxe.pkeys=0xffff,0x8001")
IB0 = """
    link_up vec0
    rdma_up rxe0 rxe vec0
    until_true 10 ib0 test -e /sys/class/net/ib0
    peer=$((3 - LAB_INDEX))
"""
PING = """
    meet configured 120
    until_true 30 "the peer on ib0" reach 10.9.0.$peer
    meet done
"""


def boot(
    kernel: Path, script: str, directory: Path, count: int = 1, *, timeout_s: float = 150
) -> list[Result]:
    """Run `script` in machines with systemd."""
    return run(
        kernel,
        [shell(script)] * count,
        kernel_arguments=[PARTITIONED] * count,
        directory=directory,
        timeout_s=timeout_s,
        init="systemd",
    )


def test_the_command_runs_when_the_system_is_up(full_kernel: Path, tmp_path: Path) -> None:
    probe = Path("/etc/written-by-a-machine")
    script = f"""
        [[ $(</proc/1/comm) == systemd && $(stat -f -c %T /sys/fs/cgroup) == cgroup2fs ]]
        echo "$LAB_NAME $PWD"; echo error >&2
        systemctl is-active basic.target dbus.socket systemd-udevd.service
        busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus GetId
        [[ $(ulimit -l) == unlimited && $(hostnamectl hostname) == $LAB_NAME ]]
        echo machine >{probe}; useradd somebody; id somebody
        unit() {{ systemd-run --wait --collect --quiet "$@"; }}
        echo 'echo from a unit >/run/lab/unit' >/usr/local/bin/lab-unit; chmod +x /usr/local/bin/lab-unit
        unit bash /usr/local/bin/lab-unit
        ! unit -p MemoryMax=16M python3 -c 'bytes(b"x" * (64 << 20))'
        ! unit -p IPAddressDeny=any ping -q -c 1 -W 1 127.0.0.1 # by BPF of its control group
        unit -p DynamicUser=yes -p ProtectSystem=strict -p SystemCallFilter=@system-service true
        modprobe -q ib_ipoib
        systemctl list-units --failed --no-legend --plain >/run/lab/failures
        exit 7
    """
    (result,) = boot(full_kernel, script, tmp_path)
    assert (result.status, result.failure) == (7, None), result.output
    assert result.output.startswith(f"a {ROOT}\nerror\nactive\nactive\nactive\n")
    assert "uid=" in result.output
    assert (tmp_path / "failures").read_text() == ""
    assert (tmp_path / "unit").read_text() == "from a unit\n"
    assert "The command of machine a" in (tmp_path / "a" / "journal").read_text()
    assert not probe.exists()


def test_a_power_off_ends_the_machine(full_kernel: Path, tmp_path: Path) -> None:
    (result,) = boot(full_kernel, "systemctl poweroff; sleep 60", tmp_path)
    assert not result.succeeded
    assert result.failure is None or "without an exit status" in result.failure, result.failure
    # Linux 6.1 says the former, since no driver cuts the power.
    assert re.search("reboot: (System halted|Power down)", result.kernel_log)


def test_networkmanager_activates_infiniband_connections(full_kernel: Path, tmp_path: Path) -> None:
    script = f"""{IB0}
        systemctl start NetworkManager
        nmcli --wait 60 connection add type infiniband con-name link ifname ib0 transport-mode connected \\
            infiniband.mtu 65520 ipv4.method manual ipv4.addresses 10.9.0.$LAB_INDEX/24 ipv6.method disabled
        nmcli connection add type infiniband con-name child ifname ib0.8001 \\
            infiniband.parent ib0 infiniband.p-key 0x8001 \\
            ipv4.method manual ipv4.addresses 10.8.1.$LAB_INDEX/24 ipv6.method disabled
        nmcli --wait 60 connection up link
        nmcli --wait 60 connection up child
        nmcli --terse --fields device,type,state device | tee /tmp/devices
        grep -Fx ib0:infiniband:connected /tmp/devices
        grep -Fx ib0.8001:infiniband:connected /tmp/devices
        [[ $(</sys/class/net/ib0/mtu) == 65520 && $(</sys/class/net/ib0/mode) == connected ]]
        [[ $(</sys/class/net/ib0.8001/pkey) == 0x8001 ]]
        meet children 120
        until_true 30 "the peer on ib0.8001" reach 10.8.1.$peer
        {PING}
    """
    for result in boot(full_kernel, script, tmp_path, 2):
        result.check()


def test_networkd_configures_ib0(full_kernel: Path, tmp_path: Path) -> None:
    script = f"""{IB0}
        cd /etc/systemd/network
        printf '%s\\n' '[Match]' Name=ib0 '[Network]' Address=10.9.0.$LAB_INDEX/24 IPoIB=ib0.8001 \\
            >20-ib0.network
        printf '%s\\n' '[Match]' Name=ib0.8001 '[Network]' Address=10.8.1.$LAB_INDEX/24 >20-child.network
        # Otherwise networkd invents a hardware address, whose GID no port has.
        printf '%s\\n' '[NetDev]' Name=ib0.8001 Kind=ipoib MACAddress=none '[IPoIB]' PartitionKey=0x8001 \\
            >20-child.netdev
        systemctl start systemd-networkd
        systemctl start systemd-networkd-wait-online@ib0 systemd-networkd-wait-online@ib0.8001
        networkctl list --no-pager --no-legend
        meet children 120
        until_true 30 "the peer on ib0.8001" reach 10.8.1.$peer
        {PING}
    """
    for result in boot(full_kernel, script, tmp_path, 2):
        result.check()
        assert re.search(r"ib0 +infiniband +routable +configured", result.output), result.output


def test_a_lab_runs_commands_under_systemd(full_kernel: Path) -> None:
    with Lab(2, kernel=full_kernel, init="systemd") as lab:
        said = lab.a.succeed("cat /proc/1/comm; systemctl show -p ActiveState --value lab.service")
        assert said == "systemd\nactive\n"
        lab.a.succeed(f"ping -c 1 -W 5 {lab.b.ipv4}")
