# SPDX-License-Identifier: BSD-2-Clause
"""The process: its service manager, its terminal, its descriptors.

Where to look:

- `notify`: notices to the service manager
- `watchdog`: signs of life for it
- `terminal`: SIGHUP: the end, or a reload
- `descriptors`: how many files may be open
- `log_level`: the least level that is logged
- `plain_asyncio`: asyncio without TLS
- `client_places`: who makes room when a server is full

It imports: `base`.

Not here:

- A path to a socket that a test cannot replace: all come from the environment.
"""
