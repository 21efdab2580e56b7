# SPDX-License-Identifier: BSD-2-Clause
"""Paths, and requests to the subnet administrator.

Where to look:

- `path`: a path for each port, kept before every effect of the engine
- `requests`: retries, windows and tables of requests
- `transaction`: one request, as a state machine
- `rmpp`: answers of several datagrams
- `records`: records turned into paths and parameters
- `errors`: each refusal, with its remedy
- `partition_line`: the line of partitions.conf that remedies it

It imports: `base`, `proto.effects`, `proto.machine`, `proto.paths`, `wire`.

Not here:

- A send here: `fabric.sa` owns the queue pair and the clock.
"""
