#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
#
# rxe-flood.sh: b sends to a by an unreliable connection. What a's Soft-RoCE has received waits in its queue
# pair without a limit, and takes a's memory while the sender is faster than a's task. With the usual 512 MB
# the kernel then ends programs.
#
# Debian: python3, qperf
# Run: ipoibu lab --guests 2 --memory 4096 --share examples/lab --run 'all=./broken/rxe-flood.sh'
# Expect: a: the packets that wait take more than 64 MB
set -euo pipefail
# shellcheck source=/dev/null
. "$LAB_INSIDE/meeting.sh"
listens() { ss -Hlnt | grep -q .; }
if [[ $LAB_NAME == b ]]; then
    meet listening
    qperf -t 8 -i rxe0:1 10.9.0.1 uc_bw
    meet end
    exit
fi
qperf &
until_true 20 "the server" listens
# It has to run beside the interrupts of a flood.
chrt --fifo 50 python3 -c 'import re, time
def taken():  # by what the kernel cannot give back, in MB
    with open("/proc/meminfo") as file:
        return int(re.search(r"SUnreclaim: *(\d+)", file.read())[1]) >> 10
before = peak = taken()
print("ready", flush=True)
end = time.monotonic() + 12
while time.monotonic() < end and peak < before + 64:
    time.sleep(0.01)
    peak = max(peak, taken())
words = "more" if peak >= before + 64 else "not more"
print(f"the packets that wait take {words} than 64 MB")' | {
    read -r _
    meet listening
    cat
}
meet end
kill %1 || true
