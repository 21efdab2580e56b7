# SPDX-License-Identifier: BSD-2-Clause
"""Userlands of lab machines: the programs and libraries of a machine, for hosts that lack them.

A userland is a directory made of Debian packages, which a machine has as its root; its artefact is one
file, a tar archive. `init`, a shell script, is the first program of a machine that has one for its root.

Where to look:

- `build`: makes a userland from Debian packages, without privileges
- `image`: finds, unpacks, lists and checks userlands

It imports: `lab.artefacts`, `lab.errors`.

Not here:

- A userland that a machine changes: each machine has its own copy of /etc and /var, in its memory.
"""
