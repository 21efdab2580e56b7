# SPDX-License-Identifier: BSD-2-Clause
# Made by ext/python/c_limits.py.
"""The numbers that C has and Python needs, too; the header before them says what they are for."""

from typing import Final

# ext/core/frame.h
ENCAP_LEN: Final = 4
GRH_LEN: Final = 40

# ext/core/guests.h
GUESTS_MAX: Final = 16384
HOSTS_MAX: Final = 16384
GUEST_QPNS_MAX: Final = 1024

# ext/core/limits.h
TX_QUEUES_MAX: Final = 16

# ext/soft/objects.h
SOFT_MAX_DATAGRAM: Final = 9144

# ext/fabric/group_list.h
GROUP_LIST_MAX: Final = 1024

# ext/fabric/soft_gsi.h
SOFT_GSI_DEPTH: Final = 256

# ext/unicast/unicast_state.h
UNICAST_CASTS: Final = 256

# ext/rails/rails.h
RAILS_MAX: Final = 8

# ext/rails/rails_state.h
RAILS_STRANGERS: Final = 16

# ext/pump/tables/admission.h
ADMISSION_PER_SENDER: Final = 256
ADMISSION_STRANGERS: Final = 500
ADMISSION_OWN_MAX: Final = 3074
ADMISSION_SLOTS: Final = 1024

# ext/pump/tables/resolution.h
RESOLUTIONS: Final = 1024
RESOLUTIONS_PER_S: Final = 240
RESOLUTION_BEGUN_SLOTS: Final = 8192
RESOLUTION_KNOWN_SLOTS: Final = 16384
RESOLUTION_REFUSED_SLOTS: Final = 65536

# ext/pump/tables/route.h
HOPS_MAX: Final = 64

# ext/pump/tables/write_share.h
WRITE_SHARE_SENDERS: Final = 64

# ext/mesh/mesh_state.h
MESH_EVENTS_MAX: Final = 1024
