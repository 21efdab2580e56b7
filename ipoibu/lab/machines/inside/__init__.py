# SPDX-License-Identifier: BSD-2-Clause
"""The code that runs inside a guest: process 1, and the functions of scenarios."""
