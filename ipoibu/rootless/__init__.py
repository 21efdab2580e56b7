# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu run`: an interface in a user and network namespace of its own, without root (docs/rootless.md)."""
