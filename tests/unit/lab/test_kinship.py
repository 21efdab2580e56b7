# SPDX-License-Identifier: BSD-2-Clause
"""The lab's part for machines loads nothing that somebody has to compile."""

from __future__ import annotations

import subprocess
import sys

# Refuses the compiled modules of this package, and cffi, as where nobody has built them.
PROGRAM = """
import sys

class Refusal:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("ipoibu._core", "ipoibu._verbs", "ipoibu.sandbox._libc", "cffi", "pyseccomp")):
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Refusal())
from ipoibu.cli.main import main
from ipoibu.lab.machines.kinship import set_subreaper
import ipoibu.lab.machines.lab, ipoibu.lab.machines.check, ipoibu.lab.machines.judge

set_subreaper(True)
set_subreaper(False)
sys.exit(main(sys.argv[1:]))
"""


def ipoibu(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False
    )


def test_the_lab_needs_no_compiled_module() -> None:
    for words, said in (
        (["lab", "--help"], "userland"),
        (["lab", "userland", "list"], ""),
        (["lab", "--guests", "--device", "eth0"], "expected one of rxe0"),
    ):
        done = ipoibu(*words)
        assert "is not built" not in done.stderr
        assert said in done.stdout + done.stderr


def test_what_needs_one_says_so() -> None:
    assert "is not built" in ipoibu("lab").stderr
