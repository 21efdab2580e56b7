# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu conform`: grades a host on the link by what it answers, and by what it must not answer.

Where to look:

- `link`: what the tester needs of a link
- `layout`: a header as a table of fields
- `packet`: packets as stacks of layers, to send and to expect
- `headers`: the headers that the tests know
- `mgid`: the GID of an IP group
- `symbols`: what a test can name before the run
- `test`: a test as data
- `connection`: steps that tests of connected mode share
- `tables`: the tests, a file for each RFC
- `catalogue`: all tests
- `clauses`: the clauses of the RFCs, and why some have no test
- `port_link`: the link of a real port
- `discovery`: finds the peer on the link, and free addresses
- `peer`: the host that is graded
- `tester`: sends and hears for a test
- `suite`: runs tests, and judges
- `verdict`: what came of a test
- `report`: the verdicts as text, JSON, JUnit and Markdown
- `helper`: acts on the peer by a shell

It imports: `base`, `conform.headers`, `fabric`.

Not here:

- A codec of `wire`: a mistake there would pass itself. `headers` has the layouts anew, from the RFCs.
- Knowledge of our engine: a test holds for any host.
"""
