# SPDX-License-Identifier: BSD-2-Clause
"""Measures the data path beside contenders that do the same on the same machine at the same time.

Contenders take turns, round by round, so that other load of the machine falls on all of them. The
results to compare are ratios to kernel VXLAN of the same round, and the forwarding process's CPU time.
"""
