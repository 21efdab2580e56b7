# SPDX-License-Identifier: BSD-2-Clause
"""Partitions where no subnet manager is: from OpenSM's partitions.conf.

Where to look:

- `conf`: the file, read as OpenSM reads it
- `model`: its partitions
- `provision`: the parameters of a link from them

It imports: `base`, `proto`, `wire`.

Part of the core, but for `conf`, `model`.

Not here:

- A tolerance that OpenSM does not have: the same file must mean the same.
"""
