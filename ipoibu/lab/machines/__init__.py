# SPDX-License-Identifier: BSD-2-Clause
"""Guests of User-mode Linux: kernels with real RDMA drivers, without RDMA hardware."""
