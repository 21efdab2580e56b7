# SPDX-License-Identifier: BSD-2-Clause
"""The control socket: one JSON object per line.

Where to look:

- `server`: requests and answers
- `client`: the other side, with its patience
- `event_streams`: transitions for `ipoibu monitor`
- `socket_paths`: where the sockets are
- `pcap`: frames as a pcap file

It imports: `_core`, `base`, `daemon.metrics`, `daemon.process`, `endpoint`, `host`, `proto`, `sandbox`.

Not here:

- A wait without an end: each client and each answer has a deadline.
"""
