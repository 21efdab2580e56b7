# SPDX-License-Identifier: BSD-2-Clause
"""Restarts without loss.

Where to look:

- `keeper`: descriptors in the service manager's store
- `succession`: what an interface leaves, and takes over

It imports: `base`, `daemon.config`, `daemon.process`, `endpoint`, `fabric`, `host`, `wire`.

Not here:

- A file that another user may have written taken over without a check of its owner.
"""
