# SPDX-License-Identifier: BSD-2-Clause
"""Measures the data path beside contenders that do the same on the same machine at the same time.

Contenders take turns, round by round, over two labs, so that other load of the machine falls on all of them.
The results to compare are ratios of the same round, first of the forwarding processes' CPU time: to the bare
tunnel, and to the ceiling, which does what the protocol demands and nothing else (bench/ceiling, in C).

Where to look:

- `comparison`: two results compared, figure by figure
- `contender`: contenders
- `echo`: UDP messages, one at a time
- `environment`: the machine and the programs behind a result
- `html_report`: a report as one HTML file that fetches nothing
- `interval`: confidence intervals, and the rounds that a difference needs
- `machines`: ipoibu beside the kernel's own ib_ipoib, on the same software HCA in the same lab machines
- `picture`: bars, curves and intervals as SVG text for a page
- `plot`: draws a report as PNG pictures
- `procedures`: throughput, latency and TCP as RFC 2544 and RFC 6349 measure them
- `process`: CPU time and memory of a process, from /proc
- `relay`: a process that joins a TUN in each of two network namespaces
- `report`: the result of a run
- `run`: one whole benchmark
- `sandboxes`: contenders without privilege
- `scale`: measures how the cost grows with the neighbours in the table, and with the hosts of a link
- `statistic`: medians, percentiles and ratios of a handful of figures, some of which may be missing
- `stream`: UDP in super-frames
- `traffic`: traffic between two network namespaces, by iperf3, ping and our own programs
- `tunnel`: one end of the bare tunnel, or of the ceiling
- `tunnels`: other projects' tunnels that forward in user space, from Debian packages

It imports: `_core`, `base`, `host`, `lab`.

Not here:

- A figure without its contender: machines differ, ratios do not.
- A timed verdict in a test.
"""
