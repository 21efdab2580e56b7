# SPDX-License-Identifier: BSD-2-Clause
"""Run scenarios by hand: `python -m ipoibu.lab.machines [OPTION]... SCRIPT...`, one machine a script."""

import argparse
import sys
from pathlib import Path

from ipoibu.lab.errors import LabError
from ipoibu.lab.machines.runner import INFINIBAND, INITS, find_kernel, run, shell


def main() -> int:
    """Boot one machine for each script, print their output, return 0 if all succeeded."""
    parser = argparse.ArgumentParser(
        prog="python -m ipoibu.lab.machines",
        description="Boot one machine for each SCRIPT (bash, with the functions of inside/*.sh; "
        "@FILE reads it from a file) and print its output.",
    )
    parser.add_argument("scripts", metavar="SCRIPT", nargs="+")
    parser.add_argument("-k", "--kernel-log", action="store_true", help="print the kernel log too")
    parser.add_argument("-d", "--directory", type=Path, help="keep output and logs here")
    parser.add_argument("-t", "--timeout", type=float, default=60, metavar="SECONDS")
    parser.add_argument("-m", "--memory", type=int, default=512, metavar="MIB")
    parser.add_argument(
        "-i", "--infiniband", action="store_true", help="rxe devices look like InfiniBand ports"
    )
    parser.add_argument("--init", choices=INITS, default="lab", help="process 1")
    options = parser.parse_args()
    try:
        scripts = [
            Path(script[1:]).read_text() if script.startswith("@") else script
            for script in options.scripts
        ]
        results = run(
            find_kernel(),
            [shell(script) for script in scripts],
            timeout_s=options.timeout,
            mem_mib=options.memory,
            kernel_arguments=[INFINIBAND] * len(options.scripts) if options.infiniband else (),
            directory=options.directory,
            init=options.init,
        )
    except (LabError, OSError, ValueError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    for result in results:
        verdict = result.failure or f"exit status {result.status}"
        print(f"--- machine {result.name}: {verdict}, {result.duration_s:.1f} s")
        print(result.output, end="")
        if options.kernel_log:
            print(f"--- machine {result.name}: kernel log\n{result.kernel_log}", end="")
    return 0 if all(result.status == 0 and not result.failure for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
