#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# dhcpcd.sh: dhcpcd opens no packet filter on an IPoIB interface, and so sends nothing.
#
# Debian: dhcpcd-base
# Run: ipoibu lab --guests 1 --share examples/lab --run 'a=./broken/dhcpcd.sh'
# Expect: a: ps_bpf_start_bpf: bpf_open: Invalid argument
set -euo pipefail
ip -4 address flush dev ib0
dhcpcd --ipv4only --waitip --noarp --timeout 30 ib0 || true # 10.1 ends with 0, too
