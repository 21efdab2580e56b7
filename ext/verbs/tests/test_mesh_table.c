/* SPDX-License-Identifier: BSD-2-Clause */
/* Control messages of a mesh that nobody reads. Each comes from a peer of its own, because one
 * beyond the cap ends the connection that it came by. */
#include "fake_rc.h"
#include "mesh/mesh.h"
#include "mesh/mesh_state.h"
#include "tests/table_rows.h"

static struct ipu_mesh *mesh;
static struct ipu_mesh_peer *peers; /* twice the cap, and the honest one behind them */
static const uint8_t message[IPU_MESH_CONTROL_MAX] = {1};

static void open_mesh(void)
{
    fake_rc_open(fake_open(false), false);
    struct ipu_mesh_config config = {
        .pattern = &fake_rc.qp[0], .gid = address(1), .qpn = 1, .mtu = FAKE_MTU, .peers_max = 1};
    CHECK_EQ(ipu_mesh_create(&config, &mesh), 0);
    peers = calloc(2 * MESH_EVENTS_MAX + 1, sizeof *peers);
    CHECK(peers != NULL);
}

static void close_mesh(void)
{
    ipu_mesh_destroy(mesh);
    free(peers);
    fake_rc_close();
    fake_close();
}

static void add_message(uint32_t number)
{
    peers[number].id = number;
    mesh_peer_notify(mesh, &peers[number], IPU_MESH_CONTROL, message, sizeof message);
}

static uint32_t count_messages(void)
{
    const struct mesh_event *event;
    uint32_t count = 0;
    STAILQ_FOREACH(event, &mesh->events, queue)
        count += event->type == IPU_MESH_CONTROL;
    return count;
}

/* The connections that have ended, which the log names. */
static uint64_t connections_ended(void)
{
    uint64_t ended = 0;
    for (uint32_t i = 0; i < 2 * MESH_EVENTS_MAX; i++)
        ended += peers[i].broken;
    return ended;
}

static bool admits_message(void)
{
    struct ipu_mesh_event event;
    while (ipu_mesh_next_event(mesh, &event))
        continue;
    add_message(2 * MESH_EVENTS_MAX);
    return ipu_mesh_next_event(mesh, &event) && event.type == IPU_MESH_CONTROL &&
           event.id == 2 * MESH_EVENTS_MAX && event.len == sizeof message;
}

static const struct row row = {"control messages of peers of an iWARP mesh",
                               MESH_EVENTS_MAX,
                               open_mesh,
                               add_message,
                               count_messages,
                               connections_ended,
                               admits_message,
                               close_mesh,
                               0,
                               false};

int main(void)
{
    fill_tables(&row, 1);
    return 0;
}
