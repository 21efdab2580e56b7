# SPDX-License-Identifier: BSD-2-Clause
"""The link, up once its broadcast group is joined, and all other multicast groups.

Where to look:

- `link`: the state of the link
- `link_params`: its parameters where no subnet administrator gives them
- `groups`: membership to receive, membership to send
- `listeners`: which groups the local stack receives

It imports: `base`, `proto.context`, `proto.effects`, `proto.machine`, `wire`.

Part of the core.

Not here:

- A join beside `groups`: the broadcast group comes first, and a flush leaves all of them.
"""
