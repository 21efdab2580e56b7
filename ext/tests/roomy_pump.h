/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_TESTS_ROOMY_PUMP_H
#define IPU_TESTS_ROOMY_PUMP_H

/* The tables and rings of an `ipu_pump_config` whose test fills none of them. */
#define ROOMY_PUMP                                                                                 \
    .neigh_max = 64, .route_max = 64, .ah_max = 64, .command_bytes = 1 << 17,                      \
    .event_bytes = 1 << 17, .capture_bytes = 1 << 14

#endif
