# SPDX-License-Identifier: BSD-2-Clause
"""Leases outside of the engine.

Where to look:

- `shell`: files, listeners and the end of leases
- `lease_file`: one lease on disk

It imports: `base`, `endpoint.config`, `endpoint.dhcp_config`, `proto`, `wire`.

Not here:

- A lease file read without doubt: another user, or the future, may have written it.
"""
