# SPDX-License-Identifier: BSD-2-Clause
"""Procedures of RFC 2544 and RFC 6349 between two hosts, with the contenders of `ipoibu bench`.

The traffic generator is a program in Python on each host. A control, a veth pair without any forwarder,
runs in each round, so that nobody takes the generator's limit for a contender's.

Where to look:

- `control`: a veth pair that takes packets of any size
- `delay`: latency and its variation, of stamped frames
- `generator`: sends numbered and stamped datagrams, or counts them
- `report`: the result as text and as a page, with what limits it
- `rfc2544`: throughput, latency, back-to-back frames and frame loss
- `rfc6349`: TCP's transfer time ratio, efficiency and buffer delay
- `run`: one whole procedure
- `search`: the binary search for what still passes
- `tester`: runs trials by a sender and a receiver on two hosts
- `times`: how long the procedures measure
- `transfer`: a TCP transfer and what the kernel says about it

It imports: `base`, `bench.contender`, `bench.environment`, `bench.html_report`, `bench.picture`,
`bench.report`, `bench.run`, `bench.statistic`, `bench.stream`, `bench.traffic`, `host`, `lab`.

Not here:

- A verdict about a figure: `ipoibu bench compare` compares results.
"""
