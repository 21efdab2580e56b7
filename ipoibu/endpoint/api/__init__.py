# SPDX-License-Identifier: BSD-2-Clause
"""`Endpoint`: what a program calls, on any thread.

Where to look:

- `endpoint`: the class, put together from the others
- `life`: opens the device, runs the thread, closes both
- `host_inputs`: addresses, routes, groups, settings
- `packets`: packets without a TUN
- `inbox`: waits for them
- `questions`: answers that take a while
- `views`: parameters, tables, counters
- `status`: the same as plain values
- `arguments`: texts and objects that the methods take

It imports: `_core`, `base`, `endpoint.callbacks`, `endpoint.config`, `endpoint.datapath`,
`endpoint.dhcp_config`, `endpoint.handover`, `endpoint.interface`, `endpoint.rails`, `endpoint.subnet`,
`fabric`, `proto`, `wire`.

Part of the core.

Not here:

- State here: an endpoint asks its interface.
"""
