# SPDX-License-Identifier: BSD-2-Clause
"""The machines that the words of a lab's options ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.errors import UsageError
from ipoibu.lab.machines.plan import Plan, plan

DEFAULT = "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"


def kinds(plans: list[Plan]) -> list[str]:
    return [it.kind for it in plans]


def test_each_machine_has_a_kind() -> None:
    assert kinds(plan(3, "kernel", "ib", "datagram")) == ["kernel"] * 3
    assert kinds(plan(3, "mixed", "ib", "datagram")) == ["kernel", "ipoibu", "kernel"]
    assert kinds(plan(2, "none,ipoibu", "roce", "datagram")) == ["none", "ipoibu"]


def test_addresses_follow_the_kind_and_the_fabric() -> None:
    first, second = plan(2, "kernel,none", "ib", "datagram")
    assert (first.interface, first.ipv4, first.ipv6) == ("ib0", "10.9.0.1", "fd00:9::1")
    assert (second.interface, second.ipv4, second.ipv6) == ("vec0", "", "fe80::ff:fe00:2%vec0")
    assert plan(1, "none", "roce", "datagram")[0].ipv4 == "10.8.0.1"


def test_without_a_fabric_nothing_runs_first() -> None:
    for machine in plan(2, None, "none", "datagram"):
        assert (machine.kind, machine.setup, machine.kernel_arguments) == ("none", "", ())
        assert (machine.ipv4, machine.ipv6, machine.description) == ("", "", "no RDMA device")
    assert kinds(plan(1, None, "ib", "datagram")) == ["kernel"]


def test_an_own_cm_takes_the_place_of_the_kernels() -> None:
    kernel, ipoibu = plan(2, "mixed", "ib", "connected")
    assert kernel.kernel_arguments == ("rdma_rxe.ib=1",)
    assert ipoibu.kernel_arguments == ("rdma_rxe.ib=1", "initcall_blacklist=ib_cm_init")
    assert plan(1, "ipoibu", "roce", "connected")[0].kernel_arguments == ()


def test_the_built_in_hca_needs_no_device_of_the_kernel(tmp_path: Path) -> None:
    _, soft = plan(2, "kernel,ipoibu:soft", "ib", "datagram")
    assert soft.kernel_arguments == ("initcall_blacklist=rxe_module_init",)
    assert soft.setup.endswith("wire_up soft 9000\nipoibu_up soft --mtu 4092\n")
    assert (soft.interface, soft.ipv4) == ("ib0", "10.9.0.2")
    assert soft.description == "ipoibu on soft:vec0"
    assert soft.runs_ipoibu
    connected = plan(1, "ipoibu:soft", "ib", "connected")[0]
    assert connected.setup.endswith("ipoibu_up soft --mode connected\n")
    assert plan(1, "ipoibu:soft", "roce", "datagram")[0].setup.endswith("ipoibu_up soft\n")
    text = "storage=0x8001, ipoib, mtu=5 : ALL=full;\n"
    first, _ = partitions(tmp_path, text, kind="ipoibu:soft")
    assert first.setup.endswith("--pkey 0x8001 --partitions /run/lab/partitions.conf\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((9, "kernel", "ib", "datagram"), "--guests 9: a lab has 1 to 8 machines"),
        (
            (2, "windows", "ib", "datagram"),
            "--ipoib 'windows': expected kernel, ipoibu, ipoibu:soft, none",
        ),
        ((3, "kernel,none", "ib", "datagram"), "2 words for 3 machines"),
        ((2, "kernel", "roce", "datagram"), "--ipoib kernel needs --fabric ib"),
        ((2, "ipoibu", "ethernet", "datagram"), "--fabric 'ethernet': expected one of ib"),
        (
            (2, "kernel", "none", "datagram"),
            "--ipoib kernel: --fabric none has nothing to run it on",
        ),
        ((2, "kernel", "ib", "fast"), "--mode 'fast': expected one of datagram"),
        ((2, "ipoibu", "iwarp", "connected"), "on iwarp ipoibu has datagram mode only"),
        ((2, "ipoibu:soft", "iwarp", "datagram"), "--ipoib ipoibu:soft needs --fabric ib or roce"),
    ],
)
def test_a_wrong_word_is_refused(words: tuple[int, str, str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        plan(*words)


def partitions(tmp_path: Path, text: str, **words: str) -> list[Plan]:
    file = tmp_path / "partitions.conf"
    file.write_text(text)
    fabric, kind = words.get("fabric", "ib"), words.get("kind", "kernel")
    return plan(2, kind, fabric, "datagram", file)


def test_partitions_fill_the_tables_of_the_ports(tmp_path: Path) -> None:
    text = DEFAULT + (
        "storage=0x8001, ipoib, mtu=5 : 0x000000fffe000001=full, ALL=limited;\n"
        "own=0x8002, ipoib, mtu=5 : 0x000000fffe000002=full;\n"
    )
    text = text.replace(
        "0x000000fffe000001=full, ALL=limited", "ALL=limited, 0x000000fffe000001=full"
    )
    first, second = partitions(tmp_path, text)
    assert "rdma_rxe.pkeys=0xffff,0x8001" in first.kernel_arguments
    assert "rdma_rxe.pkeys=0xffff,0x0001,0x8002" in second.kernel_arguments
    assert "kernel_up datagram 0x8001\n" in first.setup
    assert "kernel_up datagram 0x8002\n" in second.setup


def test_a_partition_without_a_link_stands_behind_those_that_have_one(tmp_path: Path) -> None:
    """OpenSM makes every port a limited member of Default, and makes no group for it."""
    first, _ = partitions(tmp_path, "storage=0x8001, ipoib, mtu=5 : ALL=full;\n")
    assert "rdma_rxe.pkeys=0x8001,0x7fff" in first.kernel_arguments
    assert first.setup.endswith("kernel_up datagram\n")


def test_a_smaller_mtu_of_the_partitions_is_the_ports(tmp_path: Path) -> None:
    first, _ = partitions(
        tmp_path, "Default=0x7fff, ipoib : ALL=full;\n"
    )  # 2048 bytes, as in OpenSM
    assert "wire_up ib 4175\n" in first.setup


def test_ipoibu_gets_the_first_partition_or_the_file(tmp_path: Path) -> None:
    text = "storage=0x8001, ipoib, mtu=5 : ALL=full;\n"
    first, _ = partitions(tmp_path, text, kind="ipoibu")
    assert "ipoibu_up ib --pkey 0x8001\n" in first.setup
    first, _ = partitions(tmp_path, text, kind="ipoibu", fabric="roce")
    assert "ipoibu_up roce --partitions /run/lab/partitions.conf\n" in first.setup


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Default=0x7fff : ALL=full;\n", "machine a .* is in no partition with the flag ipoib"),
        ("Default=0x7fff, ipoib, mtu=5, Q_Key=7 : ALL=full;\n", "Q_Key 0xb1b"),
        ("Default=0x7fff, ipoib, mtu=5, sl=1 : ALL=full;\n", "without sl"),
        (DEFAULT + "x=0x8001, ipoib, mtu=4 : ALL=full;\n", "all partitions must have one mtu"),
        ("Default=0x7fff, ipoib, mtu=2 : ALL=full;\n", "an mtu of 512 bytes"),
        ("x=0x8001, ipoib, mtu=5 : 0x000000fffe000001=full;\n", "machine b .* is in no partition"),
    ],
)
def test_what_a_port_cannot_express_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        partitions(tmp_path, text)


def test_iwarp_has_no_partitions(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--fabric iwarp has no partitions"):
        partitions(tmp_path, DEFAULT, kind="ipoibu", fabric="iwarp")


def test_opensm_configures_the_ports(tmp_path: Path) -> None:
    first, second = plan(2, "kernel", "ib", "datagram", sm=1)
    assert first.kernel_arguments == second.kernel_arguments == ("rdma_rxe.ib=1", "rdma_rxe.sm=1")
    assert "managed_wire_up 9000 1" in first.setup
    file = tmp_path / "partitions.conf"
    file.write_text(DEFAULT + "blue=0x8001, ipoib, mtu=5 : ALL=full;\n")
    managed = plan(1, "kernel", "ib", "datagram", file, sm=1)[0]
    assert not any("pkeys" in it for it in managed.kernel_arguments)
    assert "kernel_up datagram 0x8001" in managed.setup


@pytest.mark.parametrize(
    ("fabric", "ipoib", "sm", "words"),
    [
        ("roce", "none", 1, "--sm needs --fabric ib"),
        ("ib", "kernel", 3, "--sm 3: there are 2 machines"),
        ("ib", "ipoibu:soft", 1, "nothing manages the built-in HCA"),
    ],
)
def test_sm_needs_ports_that_opensm_can_manage(
    fabric: str, ipoib: str, sm: int, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        plan(2, ipoib, fabric, "datagram", sm=sm)


def test_the_first_partition_of_a_managed_port_is_the_default(tmp_path: Path) -> None:
    file = tmp_path / "partitions.conf"
    file.write_text("Default=0x7fff : ALL=full;\nblue=0x8001, ipoib, mtu=5 : ALL=full;\n")
    with pytest.raises(UsageError, match="0x7fff needs the flag ipoib"):
        plan(1, "kernel", "ib", "datagram", file, sm=1)
