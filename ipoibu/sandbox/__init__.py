# SPDX-License-Identifier: BSD-2-Clause
"""Confinement of this process: user, capabilities, no_new_privs, Landlock and seccomp."""
