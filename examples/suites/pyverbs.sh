#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# pyverbs.sh: the tests of rdma-core's pyverbs that are not bound to a vendor's device.
#
# Debian: python3-pyverbs
# Kernels: 6.1 6.12 7.3
# Run: ipoibu lab --guests 1 --fabric ib --share examples/suites -- ./pyverbs.sh rxe0
# Run: ipoibu lab --guests 1 --ipoib none --fabric roce --share examples/suites -- ./pyverbs.sh rxe0
# Run: ipoibu lab --guests 1 --ipoib none --fabric iwarp --share examples/suites -- ./pyverbs.sh siw0
set -euo pipefail
echo "# Linux $(uname -r)"
mkdir /tmp/suite
cp -r /usr/share/doc/rdma-core/tests /tmp/suite
cd /tmp/suite/tests
find . -name '*.gz' -exec gunzip {} +
for module in test_*.py; do
    module=${module%.py}
    case $module in *mlx5* | *efa* | *cuda*) continue ;; esac
    status=0
    PYTHONPATH=/tmp/suite:/tmp/suite/tests timeout 120 /usr/bin/python3 /src/unittests.py "$module" \
        --dev "$1" --port 1 --gid 0 2>/tmp/suite/errors || status=$?
    if ((status)); then
        echo "not ok $module # ended with status $status"
        tail -3 /tmp/suite/errors | sed 's/^/# /'
    fi
done
