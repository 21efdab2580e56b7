# SPDX-License-Identifier: BSD-2-Clause
"""One interface in a program: the data path, the engine's shell and what the subnet asks.

Where to look:

- `config`: the configuration, checked without a port
- `dhcp_config`: the part about DHCP
- `contract`: what the daemon and `host` call
- `interface_contract`: what the parts of an interface call
- `callbacks`: what the owner hears
- `handover`: what an earlier process left
- `api`: `Endpoint`, for every thread
- `interface`: the interface on its own thread
- `datapath`: queue pair, pumps and packet device
- `subnet`: requests to the subnet administrator
- `rails`: several devices
- `dhcp`: leases on disk

It imports: `_core`, `base`, `fabric`, `proto`, `wire`.

Part of the core.

Not here:

- Python on the way of a resolved packet: the pumps carry it.
- A call from another thread into `interface`: `api.life` posts it to the thread that owns everything.
"""
