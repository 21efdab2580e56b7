# SPDX-License-Identifier: BSD-2-Clause
"""As much of pyverbs as ipoibu uses, over a machine that the test describes."""
