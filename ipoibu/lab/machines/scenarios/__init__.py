# SPDX-License-Identifier: BSD-2-Clause
"""The scenarios in the guests of `ipoibu lab --guests` and `ipoibu bench --lab`."""
