/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_MESH_STATE_H
#define IPU_MESH_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "core/counter.h"
#include "fabric/group_list.h"
#include "mesh/mesh.h"
#include "verbs/completion.h"
#include "verbs/rc_queue.h"
#include "verbs/receive_queue.h"

/*
 * The inside of the mesh, shared by its files, each of which calls only those before it:
 * mesh_peers.c, mesh_send.c, mesh_receive.c, mesh_commands.c (from the other thread) and mesh.c
 * (life, waiting). Unless it says otherwise, all of it is the pump thread's.
 */
enum {
    MESH_BATCH = 64,
    MESH_LOST = 512,    /* cookies of sends that ended without a work request */
    MESH_CASTS = 256,   /* messages to groups that are under way */
    MESH_CONTROLS = 64, /* control messages that are under way */
    MESH_CONTROL_LEN = 4 + IPU_MESH_CONTROL_MAX,
    MESH_WAITING = 64,      /* control messages that wait for one peer; more break its connection */
    MESH_EVENTS_MAX = 1024, /* events that the other thread has not read */
    MESH_BUCKETS = 64,
    MESH_ROOM_KEPT = 8, /* slots of a send queue that only control messages may use */
};

struct mesh_command {
    STAILQ_ENTRY(mesh_command) queue;
    enum {
        MESH_ADD,
        MESH_NAME,
        MESH_SET_GROUPS,
        MESH_GROUP,
        MESH_SEND_CONTROL,
        MESH_REMOVE,
        MESH_FORGET
    } kind;
    uint64_t id;
    struct ipu_mesh_peer *peer; /* MESH_ADD */
    struct in6_addr gid;        /* the peer's, or the group's */
    uint32_t qpn, window;
    bool flag;
    uint32_t len;
    uint8_t bytes[];
};

STAILQ_HEAD(mesh_commands, mesh_command);

struct mesh_event {
    STAILQ_ENTRY(mesh_event) queue;
    uint64_t id;
    enum ipu_mesh_event_type type;
    uint32_t len;
    uint8_t message[];
};

STAILQ_HEAD(mesh_events, mesh_event);

struct ipu_mesh_peer {
    LIST_ENTRY(ipu_mesh_peer) all;
    struct ipu_mesh_peer *chain; /* next in its bucket, by the queue pair's number */
    STAILQ_ENTRY(ipu_mesh_peer) ended;
    uint64_t id;
    uint32_t qp_num;
    struct ipu_rc_queue queue;
    struct in6_addr gid; /* the peer's GID, if `named` */
    uint32_t qpn;
    bool named, may_send, ready, leaving, forgotten, broken, listed;
    uint32_t sent, limit;  /* messages to the peer that use its window, and their limit */
    uint32_t got, granted; /* the peer's messages that use our window, and their limit */
    struct ipu_receive_queue receives;
    struct ipu_group_list groups;
    struct mesh_commands waiting; /* control messages */
    int waiting_count;
    struct mesh_event *turns[IPU_MESH_GONE + 1]; /* for the events of each type but messages */
};

struct mesh_handle {
    struct in6_addr gid;
    uint32_t qpn;
    bool is_group;
    struct ipu_mesh_peer *peer; /* as of `version` */
    uint64_t version;
};

struct mesh_cast {
    uint64_t cookie;
    uint32_t left;
};

struct mesh_slot {
    struct ipu_recv recv;
    struct ipu_mesh_peer *owner; /* NULL: free */
    uint32_t next;               /* the next free slot */
    uint32_t generation;         /* of its use: a device uses queue pair numbers again at once */
};

struct ipu_mesh {
    struct ipu_fabric fabric;
    struct ibv_pd *pd;
    struct in6_addr broadcast;
    struct ipu_regions regions;
    bool closed;

    LIST_HEAD(, ipu_mesh_peer) peers;
    struct ipu_mesh_peer *bucket[MESH_BUCKETS];
    uint64_t version; /* of the peers' names */

    /* sends */
    struct ipu_mesh_peer *to; /* the peer that the chain goes to */
    struct ipu_send chain[MESH_BATCH];
    int chained;
    uint32_t sending, send_room;
    STAILQ_HEAD(, ipu_mesh_peer) ended; /* peers with ended sends */
    uint64_t lost[MESH_LOST];
    uint32_t lost_count;
    struct mesh_cast casts[MESH_CASTS];
    uint16_t free_casts[MESH_CASTS];
    int free_cast_count;
    uint8_t *controls;
    uint16_t free_controls[MESH_CONTROLS];
    int free_control_count;

    /* receives: the stock holds those that no peer has */
    struct mesh_slot *slots;
    uint32_t slot_count, free_slot;
    struct ipu_recv *stock;
    uint32_t stock_count;

    struct ipu_completion completion;
    int epoll_fd; /* over the completion channel and the commands */

    /* shared with the other thread, under the mutex */
    pthread_mutex_t mutex;
    struct mesh_commands commands;
    struct mesh_events events;
    int event_count;
    atomic_bool has_commands;
    int command_fd, event_fd;

    struct {
        IPU_MESH_COUNTERS(IPU_MESH_COUNTERS_FIELD)
    } counters;
};

#define MESH_ADD_TO(m, name, n) ipu_counter_add(&(m)->counters.name, (n))
#define MESH_COUNT(m, name)     MESH_ADD_TO(m, name, 1)

/* mesh_peers.c */
struct ipu_mesh_peer *mesh_peer_by_number(struct ipu_mesh *mesh, uint32_t qp_num);
struct ipu_mesh_peer *mesh_peer_by_id(struct ipu_mesh *mesh, uint64_t id);
void mesh_peer_add(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);
void mesh_peer_free(struct ipu_mesh_peer *peer);
/* Sends the other thread an event of the peer. */
void mesh_peer_notify(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer,
                      enum ipu_mesh_event_type type, const void *message, uint32_t len);
void mesh_peer_broke(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);
/* Frees the forgotten peers whose sends and receives have all come back. */
void mesh_settle(struct ipu_mesh *mesh);

/* mesh_send.c */
void *mesh_handle_create(void *self, const struct ipu_dest *dest);
void mesh_handle_destroy(void *self, void *ah);
int mesh_send(void *self, const struct ipu_send *sends, int n);
int mesh_sent(struct ipu_mesh *mesh, uint64_t *cookies, int max);
void mesh_send_poll(struct ipu_mesh *mesh);
/* Ends the peer's outstanding sends, after its queue pair was destroyed. */
void mesh_send_end(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);
/* Sends the waiting control messages, as far as there is room. */
void mesh_send_waiting(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);
/* Sends the peer its new window, if the window has grown by enough. */
void mesh_send_window(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);

/* mesh_receive.c */
int mesh_post(void *self, const struct ipu_recv *recvs, int n);
int mesh_received(struct ipu_mesh *mesh, struct ipu_received *done, int max);
void mesh_receive_poll(struct ipu_mesh *mesh);
/* Returns the peer's receives to the stock, after its queue pair was destroyed. */
void mesh_receive_end(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);
/* Posts the receives that the peer lacks, and sends the peer its new window. */
void mesh_feed(struct ipu_mesh *mesh, struct ipu_mesh_peer *peer);

/* mesh_commands.c: run the other thread's commands. */
void mesh_commands_run(struct ipu_mesh *mesh);
void mesh_commands_free(struct ipu_mesh *mesh);

#endif
