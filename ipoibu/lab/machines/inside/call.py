# SPDX-License-Identifier: BSD-2-Clause
"""Call one Python function in a machine: `python -m ipoibu.lab.machines.inside.call MODULE:NAME [ARG]...`."""

import importlib
import sys


def main(target: str, *args: str) -> None:
    """Import the function `target` and call it with `args`; its exceptions end the machine."""
    module, _, name = target.partition(":")
    getattr(importlib.import_module(module), name)(*args)


if __name__ == "__main__":
    main(*sys.argv[1:])
