#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# timestamps.sh: who asks for software timestamps of what it sends gets none on ib0, and one on lo.
#
# Debian: python3
# Run: ipoibu lab --guests 2 --share examples/lab --run 'b=./broken/timestamps.sh'
# Expect: b: lo: a timestamp
# Expect: b: ib0: no timestamp
set -euo pipefail
python3 -c 'import select, socket
TX_SOFTWARE, SOFTWARE, TSONLY = 1 << 1, 1 << 4, 1 << 11
for device, peer in (("lo", "127.0.0.1"), ("ib0", "10.9.0.1")):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 37, TX_SOFTWARE | SOFTWARE | TSONLY)  # SO_TIMESTAMPING
    s.sendto(b"x", (peer, 9))
    poll = select.poll()
    poll.register(s, 0)  # POLLERR: a message in the error queue
    found = False
    if poll.poll(3000):
        found = any(kind == 37 for _, kind, _ in s.recvmsg(100, 1000, socket.MSG_ERRQUEUE)[1])
    print(f"{device}:", "a timestamp" if found else "no timestamp")'
