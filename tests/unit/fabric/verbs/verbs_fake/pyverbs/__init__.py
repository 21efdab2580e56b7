# SPDX-License-Identifier: BSD-2-Clause
"""The part of pyverbs that ipoibu uses, over a machine that the test describes."""
