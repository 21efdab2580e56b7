# SPDX-License-Identifier: BSD-2-Clause
"""Reads the configuration of the kernel's IPoIB interfaces by other programs, and writes ours."""
