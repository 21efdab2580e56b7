# SPDX-License-Identifier: BSD-2-Clause
"""The enum module, under the name that the test gives it. Values: <infiniband/verbs.h>."""

IBV_QPT_UD = 4
IBV_PORT_ACTIVE = 4
IBV_LINK_LAYER_INFINIBAND = 1
IBV_GID_TYPE_ROCE_V2 = 2
IBV_TRANSPORT_IWARP = 1
