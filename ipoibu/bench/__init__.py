# SPDX-License-Identifier: BSD-2-Clause
"""What the data path costs, beside others that do the same on the same machine at the same time.

Contenders take turns, round by round, so that what else the machine does falls on all of them; what
counts is the ratio to kernel VXLAN of the same round, and the CPU time of the forwarding process.
"""
