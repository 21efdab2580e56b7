# SPDX-License-Identifier: BSD-2-Clause
"""Confinement of this process: user, capabilities, no_new_privs, Landlock and seccomp.

Where to look:

- `stages`: the stages, in order
- `user`: the user after root
- `capabilities`: what a thread may
- `landlock`: files and ports
- `seccomp`: system calls
- `libc`: calls that Python lacks
- `errors`: a stage that this machine lacks

It imports: `base`.

Not here:

- A stage that is skipped in silence: a missing one is an error or a line in the log.
"""
