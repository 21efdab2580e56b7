/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_C_DEVICE_H
#define IPU_C_DEVICE_H

#include <ipoibu/packet_device.h>

#include "device/device.h"
#include "device/loan.h"

/*
 * A packet device of an application in C, as the pump wants it. The application's struct keeps its
 * layout for ever; this one follows the pump.
 */
struct ipu_c_device {
    const struct ipoibu_packet_device_v1 *v1;
    struct ipu_loan *loan;  /* of the data path that has started; NULL: none has */
    const uint8_t *tx_base; /* of its transmit frames */
    struct ipu_device_ops ops;
    struct ipu_device device;
};

/* `v1` stays as it is while the device lives. 0; -EINVAL: a function is missing, or an offload is
 * not known. */
int ipu_c_device_init(struct ipu_c_device *device, const struct ipoibu_packet_device_v1 *v1);

#endif
