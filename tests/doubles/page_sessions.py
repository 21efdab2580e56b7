# SPDX-License-Identifier: BSD-2-Clause
"""The test that runs the commands of a block: tests/netns/test_pages.py as they stand on the page, or
another test, such as one with devices and services of its own.

The key is the page and the beginning of the block's first line.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Session(NamedTuple):
    """Commands that run in the first of two hosts; `before` prepares what the page takes for granted."""

    before: str = ""
    limit_s: int = 0  # interrupt the first command, which does not end by itself, after this time
    start: bool = True  # do the hosts have their interfaces?


FAULTY: Final = """\
cat >/etc/ipoibu/ib0.toml <<END
device = "soft:eth0"
address = ["10.0.0.1/24"]

mtu = 5



[child.0x8001]
mode = "fast"
END
"""

RELOADED: Final = """\
cat >/etc/ipoibu/ib0.toml <<END
device = "soft:eth0"
address = ["10.0.0.1/24"]
END
ipoibu up ib0 --config /etc/ipoibu/ib0.toml &
up=$!
trap 'kill $up; wait $up' EXIT
until ipoibu show ib0 2>/dev/null | grep -q "10.0.0.1 preferred"; do command sleep 0.1; done
cat >/etc/ipoibu/ib0.toml <<END
device = "soft:eth0"
address = ["10.0.0.9/24"]
log-level = "info"
queues = 2
[child.0x8002]
END
"""

SESSIONS: Final = {
    "CONTRIBUTING.md: # ipoibu capture": Session(),
    "docs/understand/design.md: ipoibu neigh add": Session(),
    "docs/use/equivalents.md: ipoibu child add": Session(),
    "docs/reference/metrics.md: ipoibu metrics": Session(),
    "docs/use/proxy.md: ipoibu neigh add": Session(),
    "docs/use/proxy.md: # ipoibu doctor": Session("ipoibu neigh add proxy 10.1.0.0/16 dev ib0"),
    "docs/use/routers.md: sysctl": Session(),
    "docs/use/partitions.md: ipoibu child add": Session(),
    "docs/use/service.md: # ipoibu config check": Session(FAULTY),
    "docs/use/service.md: # ipoibu reload ib0": Session(RELOADED, start=False),
    "docs/use/watching.md: # ipoibu monitor ib0": Session(
        "(sleep 2; ipoibu neigh flush dev ib0; ping -c 1 10.77.0.2 >/dev/null) &", limit_s=4
    ),
    "docs/use/watching.md: # ipoibu path": Session("ping -c 1 10.77.0.2; ping -c 1 fd77::2"),
    "docs/use/watching.md: # ipoibu ping": Session(),
    "docs/use/watching.md: # ipoibu set ib0 busy-poll": Session(
        "ipoibu set ib0 busy-poll auto; ipoibu log ib0 warning"
    ),
}

# A file, and what it has of these commands
ELSEWHERE: Final = {
    "CONTRIBUTING.md: make check": (".ci/run", "make test"),
    "README.md: make lab": (".ci/run", "make test"),
    "README.md: .venv/bin/ipoibu up": ("tests/netns/test_cli.py", '"up", "ib0", "--device"'),
    "README.md: .venv/bin/ipoibu run": ("tests/netns/test_rootless.py", '"run", *device'),
    "docs/use/conform.md: # ipoibu conform --device rxe0 --peer 10.0.0.2 --peer": (
        "tests/lab/test_conform.py",
        "conform",
    ),
    "docs/use/conform.md: # ipoibu conform --device rxe0 --peer 10.0.0.2 --only": (
        "tests/lab/test_conform.py",
        "--only",
    ),
    "docs/use/conform.md: # ipoibu conform --device rxe0 --peer 10.0.0.2 --helper": (
        "tests/lab/grading.py",
        "--helper",
    ),
    "docs/use/dhcp.md: ipoibu up": ("tests/netns/test_dhcp.py", "dhcp"),
    "docs/understand/fuzzing.md: make -C ext/tests/fuzz": ("tests/unit/test_fuzz_c.py", "RUNS="),
    "docs/use/import.md: # ipoibu import": ("tests/netns/test_import.py", '"import", "--output"'),
    "docs/use/lab.md: ipoibu lab --guests 3": ("tests/package/lab_on_bare_root", "--guests 3"),
    "docs/use/lab.md: #!/bin/bash": ("tests/lab/test_page.py", "docs/use/lab.md"),
    "docs/use/lab.md: for mode in": ("tests/lab/test_page.py", "--share"),
    "docs/use/lab.md: ipoibu lab userland": ("tests/unit/lab/test_userland.py", '"fetch"'),
    "docs/use/c-device.md: cc -shared": ("tests/doubles/c_example.py", "build.sh"),
    "docs/use/c-device.md: $ mkdir": ("tests/unit/endpoint/test_c_device.py", "traffic.py"),
    "docs/use/packaging.md: apt-get build-dep": (
        "tests/package/test_debian.py",
        "dpkg-buildpackage",
    ),
    "docs/use/packaging.md: python3 setup.py": ("tests/package/test_rpm.py", "sdist"),
    "docs/use/packaging.md: SOURCE_DATE_EPOCH": (
        "tests/package/test_wheel.py",
        "SOURCE_DATE_EPOCH",
    ),
    "docs/use/partitions.md: ipoibu up": ("tests/netns/test_children.py", "partitions.conf"),
    "docs/use/ethernet.md: ipoibu up": ("tests/netns/test_ethernet.py", "set ib0 master br0"),
    "docs/use/ethernet.md: ip tuntap": (
        "tests/netns/virtual/machine.py",
        "ip tuntap add {NETDEV} mode tap vnet_hdr",
    ),
    "docs/use/ethernet.md: ipoibu guests": ("tests/netns/test_ethernet.py", 'ask("guests")'),
    "docs/use/ethernet.md: # ipoibu doctor": ("tests/netns/test_ethernet.py", 'cli(host, "doctor"'),
    "docs/use/ethernet.md: ipoibu child": (
        "tests/lab/test_ethernet.py",
        "ipoibu child add ib0 0x8001",
    ),
    "docs/use/lab-subnet.md: ipoibu lab --guests 3 --sm": ("tests/lab/test_sm.py", "ibnetdiscover"),
    "docs/use/lab-wire.md: ipoibu lab --guests 2 --capture": (
        "tests/lab/test_reports.py",
        '("--capture", str(capture)',
    ),
    "docs/use/lab-wire.md: ipoibu lab --guests 2 --impair": (
        "tests/lab/test_reports.py",
        '("--impair", "delay 1ms"',
    ),
    "docs/use/rails.md: ipoibu up ib0 --device soft:eth0 --device soft:eth1 --address": (
        "tests/netns/test_rails.py",
        '"--device", "soft:eth1"',
    ),
    "docs/use/rails.md: ipoibu up ib0 --device soft:eth0 --device soft:eth1 --rail-mode": (
        "tests/netns/test_rails_spread.py",
        '"--rail-mode", "balance-xor"',
    ),
    "docs/use/rails.md: $ ipoibu show": ("tests/netns/test_rails.py", "    rail soft:eth1 port 1"),
    "docs/use/rootless.md: $ ipoibu run": ("tests/netns/test_rootless.py", '"run", *device'),
    "docs/use/rootless.md: $ ipoibu neigh ib0@": ("tests/netns/test_rootless.py", '"--join"'),
    "docs/use/rootless.md: # ip tuntap": ("tests/netns/test_attach.py", "attach"),
    "docs/use/rootless.md: # ip netns add": ("tests/netns/test_other_namespace.py", "--netns"),
    "docs/use/rootless.md: $ ipoibu lab --check": ("tests/netns/test_user_namespace.py", "--check"),
    "docs/use/places.md: $ podman build": ("tests/package/test_container.py", "http3.py serve"),
    "docs/use/rootless.md: $ podman build": ("tests/package/test_container.py", "Containerfile"),
    "docs/use/rdma-guide.md: apt-get install": ("Makefile", "NIGHTLY_PACKAGES"),
    "docs/use/sa.md: ipoibu lab --fabric ib": ("tests/opensm/test_lab.py", "LabSubnet"),
    "docs/use/service.md: install -m 644": ("tests/netns/test_service.py", "ipoibu@"),
    "docs/use/software.md: # ip link set": ("tests/netns/test_moves.py", "link set ib0 netns"),
    "docs/use/tutorial.md: make lab": (".ci/run", "make test"),
    "ipoibu/lab/machines/README.md: ipoibu lab --guests --device": (
        "tests/lab/test_link.py",
        '"--guests"',
    ),
    "ipoibu/lab/machines/README.md: ipoibu lab kernel build": (
        "tests/unit/cli/test_lab_kernel.py",
        "fetch_kernel",
    ),
    "ipoibu/lab/machines/README.md: ipoibu lab --guests 3 --run": (
        "tests/lab/test_guests.py",
        "--run=",
    ),
}

# The test that runs the programs of a page, or what they show
PROGRAMS: Final = {
    "CONTRIBUTING.md": ("tests/unit/test_examples.py", "CONTRIBUTING.md"),
    "README.md": ("tests/unit/test_examples.py", "README.md"),
    "docs/understand/adding-a-fabric.md": (
        "tests/unit/test_blocks.py",
        "docs/understand/adding-a-fabric.md",
    ),
    "docs/use/aio.md": ("tests/unit/test_examples.py", "aio.md"),
    "docs/use/dhcp.md": ("tests/netns/test_dhcp.py", "docs/use/dhcp.md"),
    "docs/use/embedding.md": ("tests/unit/test_examples.py", "embedding.md"),
    "docs/use/lab-wire.md": ("tests/lab/test_impairment.py", 'lab.impair("loss 20%", "a")'),
    "docs/use/sa.md": ("tests/lab/scenarios/own_sa.py", "async with SaClient.open("),
    "docs/use/verbs.md": ("tests/lab/scenarios/verbs_pair.py", "VerbsPort(context=context, pd=pd)"),
    "ipoibu/lab/machines/README.md": ("tests/lab/test_lab.py", "wait_until_succeeds"),
    "tests/lab/README.md": ("tests/lab/test_rdma.py", "ibv_{kind}_pingpong"),
    "docs/use/conform.md": (
        "tests/unit/conform/test_command.py",
        'blocks("docs/use/conform.md", "python")',
    ),
}
