# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu lab doctor`: what this host lacks for the lab, each with the command that mends it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ipoibu.base.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from ipoibu.doctor.finding import Finding


def run(options: argparse.Namespace) -> int:
    """Print the findings; return 1 if the host lacks something that the lab cannot do without."""
    from ipoibu.cli.doctor import report

    if options.rest:
        raise UsageError("lab doctor runs no COMMAND")
    return report(list(_findings()), as_json=options.json)


def _findings() -> Iterator[Finding]:
    from ipoibu.doctor import lab as doctor
    from ipoibu.lab.machines.kernels import BY_PTRACE, booted_release, check_kernel
    from ipoibu.lab.machines.kinship import be_filtered, be_traced
    from ipoibu.lab.machines.memory import places
    from ipoibu.lab.machines.mounts import INSIDE, lacking
    from ipoibu.lab.machines.runner import MEMORY_MIB
    from ipoibu.lab.userland.image import cached

    yield from _hosts_in_namespaces()
    yield doctor.processor()
    filtering = doctor.filtering(be_filtered)
    yield filtering
    by_ptrace = booted_release() in BY_PTRACE
    yield doctor.tracing(be_traced, is_needed=by_ptrace or filtering.status != "ok")
    needed_bytes = 2 * MEMORY_MIB << 20
    yield doctor.memory(needed_bytes, [(it.path, it.lack) for it in places(needed_bytes)])
    yield doctor.path(INSIDE, Path(tempfile.gettempdir()))
    yield doctor.kernel(*check_kernel())
    missing = lacking(runs_ipoibu=False)
    userlands = [str(each) for each in cached()]
    yield doctor.userland(missing, userlands)
    if missing and userlands:
        yield from doctor.programs(doctor.STARTERS, {})
    else:
        yield from doctor.programs()
        yield doctor.verbs()
        yield doctor.manager(
            shutil.which("opensm", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        )


def _hosts_in_namespaces() -> Iterator[Finding]:
    """Check what hosts in namespaces need, among it ipoibu's C core: machines do without."""
    from ipoibu.doctor import lab as doctor

    try:
        from ipoibu.doctor.machine import tun
        from ipoibu.lab import ibsim
        from ipoibu.lab.user_namespace import enter_user_namespace
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("ipoibu."):
            raise
        yield doctor.without_core()
        return
    yield doctor.namespaces(enter_user_namespace)
    yield tun()
    yield doctor.simulator(ibsim.PACKAGES, ibsim.missing())
