# SPDX-License-Identifier: BSD-2-Clause
"""Finding the kernel's IPoIB interfaces on a port, in a sysfs made by hand."""

from __future__ import annotations

from pathlib import Path

from ipoibu.base.addr import PKey
from ipoibu.fabric.sa.kernel_ipoib import kernel_partitions


def interface(net: Path, name: str, kind: int = 32, device: str = "mlx5_0", **files: str) -> None:
    here = net / name
    (here / "device" / "infiniband" / device).mkdir(parents=True)
    (here / "type").write_text(f"{kind}\n")
    for file, text in files.items():
        (here / file).write_text(text + "\n")


def test_m4_the_kernels_interfaces_are_found_by_device_and_port(tmp_path: Path) -> None:
    """M4."""
    interface(tmp_path, "ib0", pkey="0xffff", dev_port="0")
    interface(tmp_path, "ib0.8001", pkey="0x8001", dev_port="0")
    interface(tmp_path, "ib0.0002", pkey="0x0002", dev_port="0")  # limited: the same partition
    interface(tmp_path, "ib1", pkey="0x8003", dev_port="1")
    interface(tmp_path, "ib2", device="mlx5_1", pkey="0x8004", dev_port="0")
    interface(tmp_path, "eth0", kind=1, pkey="0x8005", dev_port="0")
    assert kernel_partitions("mlx5_0", 1, tmp_path) == {0xFFFF, 0x8001, 0x8002}
    assert kernel_partitions("mlx5_0", 2, tmp_path) == {PKey(0x8003)}
    assert kernel_partitions("mlx5_1", 1, tmp_path) == {PKey(0x8004)}


def test_interfaces_that_go_away_or_have_no_pkey_are_passed_over(tmp_path: Path) -> None:
    interface(tmp_path, "ib0", dev_port="0")
    interface(tmp_path, "ib1", pkey="0xffff")
    interface(tmp_path, "ib2", pkey="nonsense", dev_port="0")
    (tmp_path / "bonding_masters").write_text("")
    assert kernel_partitions("mlx5_0", 1, tmp_path) == frozenset()


def test_a_machine_without_sysfs_has_none(tmp_path: Path) -> None:
    assert kernel_partitions("mlx5_0", 1, tmp_path / "absent") == frozenset()
