# SPDX-License-Identifier: BSD-2-Clause
"""Scripts that load kernel modules: a machine has all of them built in, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.lab.machines import mounts
from ipoibu.lab.machines.runner import shell
from tests.lab.bare import run

pytestmark = pytest.mark.lab


def test_a_machine_answers_for_modules_as_a_kernel_that_has_them_built_in(
    lab_kernel: Path, tmp_path: Path
) -> None:
    script = """
        fails() { ! "$@" >/run/lab/said 2>&1; }
        modprobe rdma_rxe; modprobe ib-ipoib debug_level=1; modprobe -qa ib_uverbs siw
        modprobe rdma-link-rxe # an alias
        fails modprobe ib_none
        grep -F "FATAL: Module ib_none not found in directory /lib/modules/$(uname -r)" /run/lab/said
        fails modprobe -q ib_none && [[ ! -s /run/lab/said ]]
        fails modprobe -a rdma_rxe ib_none
        fails modprobe -r rdma_rxe && grep -F 'Module rdma_rxe is builtin' /run/lab/said
        [[ $(modprobe -R rdma-link-siw) == siw && $(modprobe -D siw) == 'builtin siw' ]]
        lsmod | grep -w rdma_rxe
        ! lsmod | grep -w ib_none
        [[ $(modinfo -F filename ib_ipoib) == '(builtin)' && $(modinfo -F license siw) == *BSD* ]]
        modinfo rdma_rxe | grep '^license: .*GPL'
        fails modinfo ib_none
        fails rmmod siw && grep -F 'Module siw is builtin' /run/lab/said
        fails insmod ./rdma_rxe.ko # it may be another than the kernel's
        depmod -a
        set -- /run/lab/a/commands/*
        [[ $# == 6 && $(readlink -f "$@" | sort -u) == "$LAB_INSIDE/kmod" ]]
    """
    run(lab_kernel, [shell(script)], directory=tmp_path, timeout_s=30)[0].check()


def test_the_roots_own_kmod_gives_way_and_busybox_stays(tmp_path: Path) -> None:
    for name, target in (("modprobe", "kmod"), ("lsmod", "kmod"), ("rmmod", "busybox")):
        (tmp_path / target).touch()
        (tmp_path / name).symlink_to(target)
    assert mounts.module_programs((tmp_path,)) == [tmp_path / "kmod"]
