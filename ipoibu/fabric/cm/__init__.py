# SPDX-License-Identifier: BSD-2-Clause
"""Communication managers: our own over queue pair 1, and the kernel's rdma_cm.

Where to look:

- `service`: one manager for each port
- `gsi`: queue pair 1
- `gsi_cm`: our own manager on it
- `librdmacm`: the library
- `rdma_cm`: the kernel's manager, RoCE
- `rdma_cm_ib`: the kernel's manager, InfiniBand

It imports: `_core`, `base`, `fabric.effect_loop`, `fabric.sa`, `fabric.worker`, `proto`, `wire`.

Not here:

- A policy here: `proto.rc` says who is connected, these carry it out.
"""
