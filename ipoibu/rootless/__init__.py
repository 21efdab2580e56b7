# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu run`: an interface in a user and network namespace of its own, without root (docs/use/rootless.md).

Where to look:

- `run`: the three processes
- `command`: the user's command
- `data_path_process`: the process with the devices
- `process`: a forked process that ends with its parent
- `namespaces`: namespaces of an ordinary user

It imports: `base`, `daemon`, `sandbox`.

Not here:

- A thread before a fork.
"""
