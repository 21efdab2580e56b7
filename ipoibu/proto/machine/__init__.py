# SPDX-License-Identifier: BSD-2-Clause
"""State machines as data, and the small parts that all machines use.

Where to look:

- `table`: (state, input) -> (state, actions), as a literal
- `timers`: the alarms of one engine
- `transition`: changes of state, for observers
- `drops`: refused messages, for observers
- `backoff`: the waits after refusals
- `ratelimit`: token buckets and paces
- `waiting`: packets that wait for an answer, bounded in bytes

It imports: `base`.

Part of the core.

Not here:

- A timer outside of `timers`, a rate outside of `ratelimit`: the bounds of both are here.
"""
