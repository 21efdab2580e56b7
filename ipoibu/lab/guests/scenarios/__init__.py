# SPDX-License-Identifier: BSD-2-Clause
"""What the guests of `ipoibu lab --guests` and `ipoibu bench --lab` do."""
