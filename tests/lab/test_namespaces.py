# SPDX-License-Identifier: BSD-2-Clause
"""Two hosts with rxe in one machine, each in a network namespace: a matter of the kernel's release."""

import re
from pathlib import Path

import pytest

from ipoibu.lab.machines.runner import INFINIBAND, SCENARIOS, shell, source
from tests.lab.bare import run

pytestmark = pytest.mark.lab

# `ip netns exec` mounts the /sys of the namespace.
HOSTS = """
    inside() { # NAMESPACE SCRIPT
        ip netns exec "$1" bash -euo pipefail -c '. "$LAB_INSIDE/meeting.sh"'"; $2"
    }
    ip netns add left; ip netns add right
    ip link add va address 02:00:00:00:01:01 netns left type veth \
        peer name vb address 02:00:00:00:01:02 netns right
    ip -n right link set vb up
    inside left 'link_up va; rdma_up rxe0 rxe va'
    inside right 'link_up vb; rdma_up rxe1 rxe vb'
"""

# The kernel makes ib0 of rxe0 and ib1 of rxe1, both in the initial namespace.
KERNEL = """
    inside left 'ip addr add 10.9.0.1/24 dev ib0; ip link set ib0 up'
"""
TWO_KERNELS = f"""
    ip link set ib0 netns left; ip link set ib1 netns right
    {KERNEL}
    inside right 'ip addr add 10.9.0.2/24 dev ib1; ip link set ib1 up; ping -c 9 -W 3 10.9.0.1' || true
"""
KERNEL_AND_IPOIBU = f"""
    ip link set ib0 netns left
    {KERNEL}
    inside right '{source(SCENARIOS / "verbs_host.sh").strip()}
        LAB_INDEX=2; ib_up rxe1; ping -c 9 -W 3 10.9.0.1 || true; ib_down'
"""


def is_old(release: str) -> bool:
    return release in ("6.1", "6.12")


def test_rxe_receives_in_every_network_namespace_after_linux_6_12(
    lab_kernel: Path, lab_release: str, tmp_path: Path
) -> None:
    script = f"""{HOSTS}
        inside left 'ibv_rc_pingpong -e -d rxe0 -g 0 -n 100 >/tmp/server & listening 18515; wait $!' &
        inside left 'ip addr add 10.0.0.1/24 dev va; listening 18515'
        inside right 'ip addr add 10.0.0.2/24 dev vb
            timeout 10 ibv_rc_pingpong -e -d rxe1 -g 0 -n 100 10.0.0.1' || echo none
    """
    [result] = run(lab_kernel, [shell(script)], directory=tmp_path)
    assert ("100 iters in" in result.check().output) is not is_old(lab_release)


@pytest.mark.parametrize("hosts", [TWO_KERNELS, KERNEL_AND_IPOIBU], ids=["kernels", "ipoibu"])
def test_two_infiniband_hosts_live_in_one_machine_after_linux_6_12(
    lab_kernel: Path, lab_release: str, tmp_path: Path, hosts: str
) -> None:
    [result] = run(
        lab_kernel, [shell(HOSTS + hosts)], kernel_arguments=[INFINIBAND], directory=tmp_path
    )
    if not is_old(lab_release):
        result.check()
    answers = re.search(r"9 packets transmitted, (\d) received", result.output)
    assert (answers is not None and answers[1] != "0") is not is_old(lab_release)
