# SPDX-License-Identifier: BSD-2-Clause
"""`python -m ipoibu.cli`: the command line without an installed script."""

import sys

from ipoibu.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
