# SPDX-License-Identifier: BSD-2-Clause
"""The spec file under Debian's rpmbuild and rpmlint, as far as they go without Fedora's packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1200)]

ROOT: Final = Path(__file__).parents[2]
SPEC: Final = ROOT / "packaging/rpm/ipoibu.spec"
MACROS: Final = {  # of systemd-rpm-macros, which Debian does not have
    "_unitdir": "/usr/lib/systemd/system",
    "_sysusersdir": "/usr/lib/sysusers.d",
    "_tmpfilesdir": "/usr/lib/tmpfiles.d",
    "systemd_post()": "true",
    "systemd_preun()": "true",
    "systemd_postun_with_restart()": "true",
}
CONTENT: Final = {
    "/etc/ipoibu",
    "/usr/bin/ipoibu",
    "/usr/lib/systemd/system/ipoibu@.service",
    "/usr/lib/sysusers.d/ipoibu.conf",
    "/usr/lib/tmpfiles.d/ipoibu.conf",
    "/usr/share/bash-completion/completions/ipoibu",
    "/usr/share/fish/vendor_completions.d/ipoibu.fish",
    "/usr/share/zsh/site-functions/_ipoibu",
}


def output(*command: object, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def test_rpmlint_has_no_error_about_the_spec_file() -> None:
    assert " 0 errors" in output("rpmlint", SPEC)


def test_the_rpm_is_built_of_the_source_distribution(tmp_path: Path) -> None:
    clone, top = tmp_path / "clone", tmp_path / "rpm"
    (top / "SOURCES").mkdir(parents=True)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "sdist", "-d", str(top / "SOURCES")],
        cwd=clone,
        check=True,
    )
    defined = [
        word
        for name, value in {"_topdir": str(top), **MACROS}.items()
        for word in ("--define", f"{name} {value}")
    ]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    output("rpmbuild", "-ba", "--nodeps", *defined, SPEC, PATH=path)
    (package,) = (top / "RPMS").rglob("ipoibu-0*.rpm")
    listed = output("rpm", "-qlp", package).split()
    assert set(listed) >= CONTENT
    pages = [name for name in listed if re.fullmatch(r"/usr/share/man/man\d/ipoibu\S*", name)]
    assert len(pages) == 3
    assert any(name.endswith("site-packages/ipoibu/cli/main.py") for name in listed)
    required = output("rpm", "-qRp", package)
    assert "python3-seccomp" in required
    assert "dist(pyseccomp)" not in required
