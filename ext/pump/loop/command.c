/* SPDX-License-Identifier: BSD-2-Clause */
#include "pump/loop/command.h"

#include <errno.h>
#include <string.h>

#include "core/clock.h"
#include "core/frame.h"
#include "core/guests.h"
#include "pump/ends/event.h"
#include "pump/receive/connection.h"
#include "pump/transmit/next_hop.h"
#include "pump/transmit/transmit.h"

enum { ROOM_NS = 20000000 }; /* a packet waits so long for a frame, as for a full connection */

static const void *data_of(const struct ipu_command *command)
{
    return command + 1;
}

static int set_neigh(struct ipu_pump *pump, const struct ipu_neigh_set *set)
{
    struct ipu_ah *ah = NULL;
    if (set->action <= IPU_NEIGH_NOTIFY) {
        int error = ipu_ah_cache_get(&pump->ahs, &set->dest, &ah);
        if (error < 0)
            return error;
    }
    struct ipu_ah *former = NULL;
    int error = ipu_neigh_set(&pump->neigh, &set->next_hop, ah, (enum ipu_neigh_action)set->action,
                              set->mtu, &former);
    ipu_ah_cache_put(&pump->ahs, error < 0 ? ah : former);
    if (set->action == IPU_NEIGH_SEND)
        ipu_resolution_answered(&pump->resolution, &set->next_hop, ipu_clock_coarse_ms());
    return error;
}

static int do_neigh_set(struct ipu_pump *pump, const struct ipu_command *command)
{
    const struct ipu_neigh_set *set = &command->neigh_set;
    int error = set_neigh(pump, set);
    if (error < 0) {
        struct ipu_event event = {
            .type = IPU_EVENT_NEIGH_REFUSED,
            .neigh_refused = {.next_hop = set->next_hop, .error = (uint32_t)-error}};
        (void)ipu_event_emit(pump, &event, NULL);
    }
    return error;
}

static int do_neigh_del(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_ah *former = NULL;
    int error = ipu_neigh_delete(&pump->neigh, &command->neigh_del.next_hop, &former);
    ipu_ah_cache_put(&pump->ahs, former);
    return error == -ENOENT ? 0 : error; /* there is no entry now, as the engine wants it */
}

/* Takes a frame of `tx` for the engine's packet, if the batch has room; or IPU_SLAB_NONE. */
static uint32_t get_frame(struct ipu_pump *pump)
{
    if (pump->pending == IPU_BATCH + IPU_BATCH_ENGINE || pump->tx.free_frames == 0)
        ipu_transmit_flush(pump);
    if (pump->broken || pump->pending == IPU_BATCH + IPU_BATCH_ENGINE)
        return IPU_SLAB_NONE;
    return ipu_slab_get(&pump->tx);
}

/* Handles a packet of the engine for which no frame is free: -EAGAIN, it waits in the command ring;
 * -ENOBUFS, it ends here. A burst that waited for a neighbour has more packets than there are
 * frames. */
static int wait_for_room(struct ipu_pump *pump)
{
    uint64_t now_ns = ipu_clock_ns();
    if (pump->engines.room_since_ns == 0)
        pump->engines.room_since_ns = now_ns;
    uint64_t waited_ns = now_ns - pump->engines.room_since_ns;
    bool hopeless = pump->sending == 0 || pump->engines.room_refused;
    if (!hopeless && waited_ns < ROOM_NS) {
        pump->engines.room_left_ns = ROOM_NS - waited_ns;
        return -EAGAIN;
    }
    pump->engines.room_refused = true;
    return -ENOBUFS;
}

/* Sends a frame of the engine to a destination that need not be in the table. */
static int do_send_frame(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_ah *ah;
    if (pump->broken)
        return -ENETDOWN;
    if (command->len > IPU_ENCAP_LEN + pump->mtu || command->len < IPU_ENCAP_LEN)
        return -EMSGSIZE;
    uint32_t index = get_frame(pump);
    if (index == IPU_SLAB_NONE)
        return -ENOBUFS;
    int error = ipu_ah_cache_get(&pump->ahs, &command->send_frame.dest, &ah);
    if (error < 0) {
        ipu_slab_put(&pump->tx, index);
        return error;
    }
    uint8_t *frame = ipu_tx_frame(pump, index) + IPU_TX_ENCAP;
    memcpy(frame, data_of(command), command->len);
    ipu_admission_sent(&pump->admission, frame, command->len);
    ipu_transmit_enqueue(pump, index, ah, frame, command->len, command->send_frame.source_qpn);
    ipu_transmit_flush(pump);
    ipu_ah_cache_put(&pump->ahs, ah);
    return 0;
}

/* Copies the engine's packet, with its header, into a frame. 0 or negative errno. */
static int take_packet(struct ipu_pump *pump, const void *data, uint32_t len,
                       struct ipu_outbound *packet)
{
    uint32_t header_len = pump->host->header_len;
    if (len < header_len)
        return -EINVAL;
    const uint8_t *ip = (const uint8_t *)data + header_len;
    len -= header_len;
    *packet = (struct ipu_outbound){.ip_len = len, .engines = true};
    if (pump->broken)
        return -ENETDOWN;
    if (len > pump->device_mtu)
        return -EMSGSIZE;
    if (ipu_classify_tx(ip, len, &packet->flow) == IPU_TX_MALFORMED)
        return -EINVAL;
    packet->index = get_frame(pump);
    if (packet->index == IPU_SLAB_NONE)
        return wait_for_room(pump);
    packet->frame = ipu_tx_frame(pump, packet->index);
    memcpy(packet->frame - header_len, data, header_len);
    memset(packet->frame, 0, IPU_VNET_LEN);
    memcpy(packet->frame + IPU_TX_IP, ip, len);
    return 0;
}

/* Puts a packet of the engine into the batch; -EAGAIN: it has to wait. */
static int forward(struct ipu_pump *pump, struct ipu_outbound *packet)
{
    if (!pump->host->forward(pump, packet))
        ipu_slab_put(&pump->tx, packet->index);
    return packet->again ? -EAGAIN : 0;
}

static int send_packet(struct ipu_pump *pump, const struct ipu_command *command, bool may)
{
    struct ipu_outbound packet;
    int error = take_packet(pump, data_of(command), command->len, &packet);
    if (error < 0)
        return error;
    packet.may_miss = packet.may_ask = may;
    return forward(pump, &packet);
}

static int do_send_packet(struct ipu_pump *pump, const struct ipu_command *command)
{
    return send_packet(pump, command, false);
}

static int do_forward(struct ipu_pump *pump, const struct ipu_command *command)
{
    return send_packet(pump, command, true);
}

static int do_route_answer(struct ipu_pump *pump, const struct ipu_command *command)
{
    const struct ipu_route_answer_set *set = &command->route_answer;
    const struct ipu_hop *hops = data_of(command);
    struct ipu_outbound packet;
    if (set->hops > IPU_HOPS_MAX || command->len < set->hops * sizeof *hops)
        return -EINVAL;
    uint32_t len = command->len - set->hops * (uint32_t)sizeof *hops;
    int error = take_packet(pump, hops + set->hops, len, &packet);
    if (error < 0)
        return error;
    packet.may_miss = true;
    error = ipu_next_hop_answer(pump, set, hops, &packet);
    if (error == 0 && set->send)
        return forward(pump, &packet);
    ipu_slab_put(&pump->tx, packet.index);
    return error;
}

static int do_deliver(struct ipu_pump *pump, const struct ipu_command *command)
{
    return pump->host->deliver(pump, data_of(command), command->len);
}

static int do_route_set(struct ipu_pump *pump, const struct ipu_command *command)
{
    const struct ipu_route_set *set = &command->route_set;
    if (set->kind == IPU_ROUTE_MULTIPATH)
        return ipu_route_set_hops(&pump->route, &set->prefix, set->prefix_len, data_of(command),
                                  command->len / (uint32_t)sizeof(struct ipu_hop));
    if (set->kind == IPU_ROUTE_ASK) {
        ipu_route_answers_flush(&pump->answers);
        return ipu_route_set_ask(&pump->route, &set->prefix, set->prefix_len, set->fields);
    }
    return ipu_route_set(&pump->route, &set->prefix, set->prefix_len,
                         (enum ipu_route_kind)set->kind, &set->gateway);
}

static int do_route_del(struct ipu_pump *pump, const struct ipu_command *command)
{
    return ipu_route_delete(&pump->route, &command->route_del.prefix,
                            command->route_del.prefix_len);
}

static int do_own_set(struct ipu_pump *pump, const struct ipu_command *command)
{
    const struct ipu_own_set *set = &command->own_set;
    return ipu_admission_set_own(&pump->admission, &set->ip, set->ours != 0);
}

static int do_capture(struct ipu_pump *pump, const struct ipu_command *command)
{
    pump->tap.snap_len = command->capture.snap_len;
    return 0;
}

static int do_busy_poll(struct ipu_pump *pump, const struct ipu_command *command)
{
    pump->busy_poll_ns = command->busy_poll.busy_poll_us * (uint64_t)IPU_NS_PER_US;
    pump->adaptive = command->busy_poll.adaptive != 0;
    return 0;
}

static int do_dhcp_watch(struct ipu_pump *pump, const struct ipu_command *command)
{
    (void)command;
    pump->dhcp_watched = true;
    return 0;
}

static int do_sync(struct ipu_pump *pump, const struct ipu_command *command)
{
    struct ipu_event event = {.type = IPU_EVENT_SYNC, .sync = command->sync};
    return ipu_event_emit(pump, &event, NULL) ? 0 : -ENOSPC;
}

static int do_connection_add(struct ipu_pump *pump, const struct ipu_command *command)
{
    return ipu_connection_add(pump, &command->connection_add);
}

static int do_connection_del(struct ipu_pump *pump, const struct ipu_command *command)
{
    return ipu_connection_delete(pump, command->connection_del.id);
}

static int do_tx_mode_set(struct ipu_pump *pump, const struct ipu_command *command)
{
    return ipu_connection_set_tx_mode(pump, &command->tx_mode_set);
}

/* ---- guests */

static int do_guest_set(struct ipu_guests *guests, const struct ipu_command *command)
{
    const struct ipu_guest_set *set = &command->guest_set;
    return ipu_mac_table_set(&guests->guests, &set->ip, 0, set->mac, set->firm != 0);
}

static int do_guest_del(struct ipu_guests *guests, const struct ipu_command *command)
{
    ipu_mac_table_delete(&guests->guests, &command->guest_del.ip, 0);
    return 0;
}

static int do_guest_qpn_set(struct ipu_guests *guests, const struct ipu_command *command)
{
    const struct ipu_guest_qpn_set *set = &command->guest_qpn_set;
    if (set->qpn != 0)
        return ipu_guests_set_qpn(guests, set->mac, set->qpn);
    ipu_guests_delete_qpn(guests, set->mac);
    return 0;
}

static int do_mac_set(struct ipu_guests *guests, const struct ipu_command *command)
{
    memcpy(guests->own, command->mac_set.mac, IPU_MAC_LEN);
    return 0;
}

static int do_host_mac_set(struct ipu_guests *guests, const struct ipu_command *command)
{
    const struct ipu_host_mac_set *set = &command->host_mac_set;
    return ipu_mac_table_set(&guests->hosts, &set->gid, set->qpn, set->mac, false);
}

static int do_host_mac_del(struct ipu_guests *guests, const struct ipu_command *command)
{
    const struct ipu_host_mac_del *del = &command->host_mac_del;
    ipu_mac_table_delete(&guests->hosts, &del->gid, del->qpn);
    return 0;
}

/* ---- all commands */

typedef int handler(struct ipu_pump *pump, const struct ipu_command *command);
typedef int guest_handler(struct ipu_guests *guests, const struct ipu_command *command);

#define X(NAME, handler) [IPU_COMMAND_##NAME] = do_##handler,
static handler *const handlers[IPU_COMMAND_TYPES] = {IPU_COMMANDS(X)};
static guest_handler *const guest_handlers[IPU_COMMAND_TYPES] = {IPU_GUEST_COMMANDS(X)};
#undef X

static int execute(struct ipu_pump *pump, const struct ipu_command *command)
{
    if (command->type >= IPU_COMMAND_TYPES)
        return -EINVAL;
    if (handlers[command->type] != NULL)
        return handlers[command->type](pump, command);
    if (guest_handlers[command->type] == NULL)
        return -EINVAL;
    return pump->host->has_guests ? guest_handlers[command->type](&pump->guests, command) : -ENODEV;
}

static bool is_packet(const struct ipu_command *command)
{
    return command->type == IPU_COMMAND_SEND_PACKET || command->type == IPU_COMMAND_FORWARD ||
           command->type == IPU_COMMAND_ROUTE_ANSWER;
}

/* Executes a record, which other commands do while no packet waits for its doorbell. */
static int execute_record(struct ipu_pump *pump, const struct ipu_command *command, uint32_t len)
{
    if (len < sizeof *command || command->len > len - sizeof *command)
        return -EINVAL;
    pump->engines.wait = is_packet(command);
    if (!pump->engines.wait)
        ipu_transmit_flush(pump);
    return execute(pump, command);
}

int ipu_command_run(struct ipu_pump *pump, int max)
{
    int done = 0;
    pump->command_seen_ns = 0;
    pump->engines.wait = false;
    ipu_transmit_flush(pump);
    while (done < max) {
        uint32_t len;
        const struct ipu_command *command = ipu_ring_peek(&pump->commands, &len);
        if (command == NULL) {
            pump->engines.wait = false;
            break;
        }
        int error = execute_record(pump, command, len);
        if (error == -EAGAIN)
            break;
        pump->engines.room_since_ns = pump->engines.room_left_ns = 0;
        IPU_COUNT(pump, commands);
        IPU_ADD(pump, commands_bad, error < 0);
        ipu_ring_release(&pump->commands);
        done++;
    }
    ipu_transmit_flush(pump);
    return done;
}
