# SPDX-License-Identifier: BSD-2-Clause
"""The kernel's side: TUN, addresses, routes, groups and proxies, by netlink.

Where to look:

- `tun`: creates and attaches the device
- `persistent_tun`: a device that the administrator configures
- `tap`: a device for guests
- `kernel_interface`: MTU, addresses and routes of ours
- `netlink`: links, addresses and routes
- `link_message`: links, in its messages
- `netsocket`: the socket, with dumps and errors
- `monitor`: notices of changes
- `link_changes`: which notices of other interfaces matter
- `route_sync`: routes into an endpoint
- `route_table`: all routes over one interface
- `route_order`: which of a prefix counts
- `route_message`: their messages, decoded quickly
- `route_rules`: policy rules
- `route_query`: the kernel's answer for one flow
- `group_sync`: groups into an endpoint
- `address_message`: their messages
- `arp_sync`: the host's other addresses into an endpoint
- `arp_query`: whether the kernel would answer
- `proxy_entry_sync`: proxy entries into an endpoint
- `proxy_network_sync`: proxied networks into an endpoint
- `proxy_query`: whether a host is behind us
- `namespace`: sockets and files of a namespace
- `namespace_helper`: a process that opens them elsewhere
- `netns`: a namespace by its words
- `sysctl`: sysctls of an interface
- `cpu_latency`: a bound on sleeping processors
- `receive_buffer`: a socket's buffer

It imports: `base`, `endpoint`, `proto`, `sandbox`.

Not here:

- A work per route, neighbour or group at each notice: a stranger can make 100 000 of them.
- A path opened twice: a namespace may have moved, so keep the descriptor.
"""
