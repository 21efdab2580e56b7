# SPDX-License-Identifier: BSD-2-Clause
"""Doubles for tests of this package and of whatever embeds it: shipped, seeded, in virtual time."""
