#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# selftests-rdma.sh: the kernel's own tests of Soft-RoCE, tools/testing/selftests/rdma of Linux 7.3, each on
# devices that it makes in namespaces of one machine.
#
# Debian: iproute2, rdmacm-utils
# Kernels: 7.3
# Before: examples/suites/build_selftests 7.3
# Run: ipoibu lab --guests 1 --flavour full --fabric none --share build/selftests/7.3
#   -- ./selftests-rdma.sh
set -euo pipefail
# shellcheck source=/dev/null
. ./tap.sh
export LIMIT_S=90
cd installed/rdma
for test in *.sh; do
    selftest "${test%.sh}" "./$test"
done
