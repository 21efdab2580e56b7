# SPDX-License-Identifier: BSD-2-Clause
"""The code that runs inside a machine: process 1, and the functions of scenarios.

Where to look:

- `call`: calls one Python function
- `links`: network and RDMA devices
- `meeting`: machines wait for each other

It imports: nothing.

Not here:

- An import of a room that needs a package which the machine's root lacks.
"""
