# SPDX-License-Identifier: BSD-2-Clause
"""The scenarios in the machines of `ipoibu lab --guests` and `ipoibu bench --lab`.

Where to look:

- `embedded`: two applications with an endpoint
- `verbs_machine`: prepares a machine with rxe0

It imports: `lab.machines.inside`.

Not here:

- A scenario that only tests use: it stands in tests/lab/scenarios.
"""
