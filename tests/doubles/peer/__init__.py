# SPDX-License-Identifier: BSD-2-Clause
"""A small IPoIB host in memory with a clock of its own, which `ipoibu conform` grades in its tests.

It has one deviation from the RFCs at a time, or none: `deviations` lists them. Its parts share no code with
the tester but the mapping of groups.
"""
