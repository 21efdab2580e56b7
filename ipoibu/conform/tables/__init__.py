# SPDX-License-Identifier: BSD-2-Clause
"""The tests as data, a file for each RFC. `catalogue` finds each table `TESTS` here by its file.

Where to look:

- `rfc1191`: path MTU discovery for IPv4
- `rfc3376`: IPv4 groups of the host, by IGMP
- `rfc3810`: IPv6 groups of the host, by MLD
- `rfc4390`: DHCP
- `rfc4391`: frames, hardware addresses, groups and the MTU
- `rfc4443`: ICMPv6
- `rfc4755`: connected mode
- `rfc4861`: neighbour discovery's messages, and the beginnings of its tests
- `rfc4861_neighbours`: the neighbour cache
- `rfc4861_routers`: routers, prefixes and redirects
- `rfc4862`: IPv6 addresses: duplicates, and addresses by prefixes
- `rfc5227`: IPv4 address conflicts
- `rfc791`: IPv4, its fragments, and ICMP
- `rfc8200`: IPv6, its extension headers and fragments
- `rfc8201`: path MTU discovery for IPv6
- `rfc826`: ARP on InfiniBand links
- `iba_cm`: communication management of InfiniBand

It imports: `conform.connection`, `conform.headers`, `conform.link`, `conform.packet`, `conform.symbols`,
`conform.test`.

Not here:

- Code that runs: a step that a table lacks belongs into `conform.test` and `conform.suite`.
"""
