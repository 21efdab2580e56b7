/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <string.h>

#include "core/frame.h"
#include "pump/pump_state.h"

static int set_neigh(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_ah *ah = NULL;
    if (command->forward <= IPU_NEIGH_NOTIFY) {
        int error = ipu_ah_cache_get(&pump->ahs, &command->dest, &ah);
        if (error < 0)
            return error;
    }
    struct ipu_ah *former = NULL;
    int error = ipu_neigh_set(&pump->neigh, &command->key, ah,
                              (enum ipu_neigh_forward)command->forward, command->mtu, &former);
    ipu_ah_cache_put(&pump->ahs, error < 0 ? ah : former);
    return error;
}

static int del_neigh(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_ah *former = NULL;
    int error = ipu_neigh_delete(&pump->neigh, &command->key, &former);
    ipu_ah_cache_put(&pump->ahs, former);
    return error;
}

/* A frame from the engine, to a destination that need not be in the table. */
static int send_frame(struct ipu_pump *pump, const struct ipu_command *command, const void *data)
{
    struct ipu_ah *ah;
    if (command->len > IPU_ENCAP_LEN + pump->mtu || command->len < IPU_ENCAP_LEN)
        return -EMSGSIZE;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    int error = ipu_ah_cache_get(&pump->ahs, &command->dest, &ah);
    if (error < 0) {
        ipu_slab_put(&pump->tx, index);
        return error;
    }
    uint8_t *frame = ipu_slab_at(&pump->tx, index) + IPU_TX_ENCAP;
    memcpy(frame, data, command->len);
    ipu_transmit_enqueue(pump, index, ah, frame, command->len);
    ipu_transmit_flush(pump);
    ipu_ah_cache_put(&pump->ahs, ah);
    return 0;
}

static int send_packet(struct ipu_pump *pump, const struct ipu_command *command, const void *data)
{
    struct ipu_flow flow;
    if (command->len > pump->device_mtu)
        return -EMSGSIZE;
    if (ipu_classify_tx(data, command->len, &flow) == IPU_TX_MALFORMED)
        return -EINVAL;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    uint8_t *frame = ipu_slab_at(&pump->tx, index);
    memset(frame, 0, IPU_VNET_LEN);
    memcpy(frame + IPU_TX_IP, data, command->len);
    if (!ipu_transmit_forward(pump, index, &flow, frame, command->len, NULL, true))
        ipu_slab_put(&pump->tx, index);
    ipu_transmit_flush(pump);
    return 0;
}

static int deliver_packet(struct ipu_pump *pump, const struct ipu_command *command,
                          const void *data)
{
    if (command->len > pump->device_mtu)
        return -EMSGSIZE;
    uint32_t index = ipu_slab_get(&pump->tx);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    uint8_t *frame = ipu_slab_at(&pump->tx, index);
    memcpy(frame + IPU_VNET_LEN, data, command->len);
    ipu_receive_deliver(pump, frame, command->len);
    ipu_receive_flush(pump);
    ipu_slab_put(&pump->tx, index);
    return 0;
}

static int execute(struct ipu_pump *pump, const struct ipu_command *command, const void *data)
{
    switch ((enum ipu_command_type)command->type) {
    case IPU_COMMAND_NEIGH_SET:
        return set_neigh(pump, command);
    case IPU_COMMAND_NEIGH_DEL:
        return del_neigh(pump, command);
    case IPU_COMMAND_ROUTE_SET:
        return ipu_route_set(&pump->route, &command->key, command->prefix_len,
                             (enum ipu_route_kind)command->forward, &command->via);
    case IPU_COMMAND_ROUTE_DEL:
        return ipu_route_delete(&pump->route, &command->key, command->prefix_len);
    case IPU_COMMAND_SEND_FRAME:
        return pump->broken ? -ENETDOWN : send_frame(pump, command, data);
    case IPU_COMMAND_SEND_PACKET:
        return pump->broken ? -ENETDOWN : send_packet(pump, command, data);
    case IPU_COMMAND_DELIVER:
        return deliver_packet(pump, command, data);
    case IPU_COMMAND_CAPTURE:
        pump->tap.snap_len = command->mtu;
        return 0;
    case IPU_COMMAND_CONNECTION_ADD:
        return ipu_connection_add(pump, command);
    case IPU_COMMAND_CONNECTION_DEL:
        return ipu_connection_delete(pump, command);
    case IPU_COMMAND_TX_MODE:
        return ipu_connection_set_tx_mode(pump, command);
    case IPU_COMMAND_SYNC:
        return ipu_event_emit(
                   pump, &(struct ipu_event){.type = IPU_EVENT_SYNC, .token = command->token}, NULL)
                   ? 0
                   : -ENOSPC;
    }
    return -EINVAL;
}

int ipu_command_run(struct ipu_pump *pump, int max)
{
    int done = 0;
    ipu_transmit_flush(pump);
    while (done < max && pump->pending == 0 && pump->cut.left == 0) {
        uint32_t len;
        const struct ipu_command *command = ipu_ring_peek(&pump->commands, &len);
        if (command == NULL)
            break;
        IPU_COUNT(pump, commands);
        if (len < sizeof *command || command->len > len - sizeof *command ||
            execute(pump, command, command + 1) < 0)
            IPU_COUNT(pump, commands_bad);
        ipu_ring_release(&pump->commands);
        done++;
    }
    return done;
}
