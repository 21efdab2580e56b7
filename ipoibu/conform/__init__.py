# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conform`: grades a host on the link by what it answers, and by what it must not answer.

Where to look:

- `link`: what the tester needs of a link
- `layout`: a header as a table of fields
- `packet`: packets as stacks of layers
- `headers`: the headers of the RFCs, as tables

It imports: nothing.

Not here:

- A codec of `wire`: a mistake there would pass itself. `protocols` has the layouts anew, from the RFCs.
- Knowledge of our engine: a test holds for any host.
"""
