# SPDX-License-Identifier: BSD-2-Clause
"""IP over InfiniBand in user space."""
