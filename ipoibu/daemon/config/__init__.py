# SPDX-License-Identifier: BSD-2-Clause
"""The configuration of an interface: from options, from a file, or both.

Where to look:

- `options`: every option, in one table
- `change`: what a change at run time calls
- `parsers`: readers of their texts
- `interface_config`: the configuration, checked
- `config_file`: a file, with every fault and its line
- `lease_dir`: where leases are kept

It imports: `base`, `daemon.metrics`, `endpoint`, `fabric`, `host`, `proto`, `sandbox`.

Not here:

- A check in `up` alone: `config check`, `up` and reload ask one function.
"""
