# SPDX-License-Identifier: BSD-2-Clause
"""Runs interfaces as a process: options, control socket, metrics, service.

Where to look:

- `daemon`: one interface and its children, from start to clean end
- `netns`: the interface in another network namespace
- `outside_threads`: threads that stay with the devices then
- `privilege`: which rights are kept
- `tables`: the register of tables that strangers can fill
- `config`: options and files
- `interface`: one running interface
- `control`: the control socket
- `metrics`: counters and Prometheus
- `process`: the process and its service manager
- `handover`: restarts without loss

It imports: `_core`, `base`, `daemon.config`, `daemon.control`, `daemon.handover`, `daemon.interface`,
`daemon.metrics`, `daemon.process`, `endpoint`, `fabric`, `host`, `sandbox`.

Not here:

- A table, queue or list without a row in `tables`.
- A setting that passes through a method which only forwards.
"""
