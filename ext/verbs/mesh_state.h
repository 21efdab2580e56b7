/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_VERBS_MESH_STATE_H
#define IPU_VERBS_MESH_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "counters.h"
#include "mesh.h"

/*
 * The inside of the mesh, shared by its files: mesh.c (life, waiting, groups), mesh_peer.c,
 * mesh_send.c and mesh_receive.c. Everything but the public functions wants the mutex held.
 */
enum {
    MESH_TYPE = 0x88b5,    /* of control messages: IEEE 802, for local experiments */
    MESH_GROUP_COPY = 1,   /* in the reserved half of the header: a copy of a multicast */
    MESH_HEADER = 8,       /* of a control message: encapsulation, operation, count */
    MESH_DEPTH = 128,      /* of a send queue, a power of two */
    MESH_WAITING = 64,     /* frames that wait for a peer's grant, a power of two, */
    MESH_WAITING_MAX = 48, /* of the pump's: one peer that stalls leaves some for the others */
    MESH_FRAMES = 1024,    /* sends not yet told by sent() */
    MESH_SLOTS = 64,       /* control messages under way */
    MESH_MEMBERS = 255,    /* groups of a peer that we keep apart; beyond, it gets all */
    MESH_SLOT_BYTES = MESH_HEADER + 16 * MESH_MEMBERS,
    MESH_REGIONS = 8,
    MESH_NOTES = 32,
    MESH_BATCH = 64,
    MESH_RECVS = IPU_MESH_WINDOW_MAX + IPU_MESH_RESERVE, /* a power of two */
    MESH_RECVS_MAX = IPU_MESH_PEERS_MAX * MESH_RECVS,
    MESH_NONE = 0xffff,
};

enum mesh_operation {
    MESH_GRANT = 1,   /* count: more messages */
    MESH_MEMBERS_ARE, /* count: groups, 16 bytes each; MESH_ALL for too many to tell */
    MESH_NOTE,        /* count: bytes, for the control face */
};
enum { MESH_ALL = 0xffff };

/* A message under way: the pump's, or of a control slot. Waits for, or is posted to, `refs` peers.
 */
struct mesh_frame {
    uint64_t cookie;
    struct ibv_sge sge[3];
    uint32_t len;
    uint16_t refs;
    uint16_t slot; /* MESH_NONE: the pump's */
    uint8_t pieces;
    bool is_copy;
};

struct mesh_peer {
    struct ibv_qp *qp; /* NULL: the place is free */
    uint32_t id;
    struct ipu_mesh_hello hello;
    bool established; /* sends to its GID go by it */
    bool may_send;    /* MPA: who was connected to waits for the first message */
    bool failed, told;
    bool knows_members, wants_all, members_due;
    uint16_t member_count;
    struct in6_addr members[MESH_MEMBERS];

    uint32_t credit; /* messages that it takes */
    uint32_t owed;   /* received, and no receive posted in their place */
    uint32_t due;    /* to be granted */
    uint32_t spent;  /* granted messages it may still send, as we count */
    int64_t waiting_since_ns;

    uint32_t posted, completed; /* sends; the frame of number n at n & (MESH_DEPTH - 1) */
    uint16_t sent[MESH_DEPTH];
    uint32_t wait_head, wait_tail;
    uint16_t waiting[MESH_WAITING];

    uint32_t recv_posted, recv_completed;
    struct ipu_recv recvs[MESH_RECVS];
};

struct mesh_note {
    uint32_t peer;
    uint32_t len;
    uint8_t bytes[IPU_MESH_NOTE_BYTES];
};

struct ipu_mesh {
    struct ipu_fabric fabric;
    pthread_mutex_t mutex;
    struct ibv_pd *pd;
    struct ibv_cq *send_cq, *recv_cq;
    struct ibv_comp_channel *channel;
    uint32_t window;
    uint32_t generation;
    bool closed;
    bool armed[2]; /* send_cq, recv_cq: an event is to come */
    int epoll_fd, wake_fd, mail_fd;

    struct ibv_mr *regions[MESH_REGIONS];
    int region_count;
    uint8_t *slots; /* MESH_SLOTS, then the headers of copies: one for each type that we carry */
    struct ibv_mr *slots_mr;
    uint16_t free_slots[MESH_SLOTS];
    uint32_t free_slot_count;

    struct mesh_frame frames[MESH_FRAMES];
    uint16_t free_frames[MESH_FRAMES];
    uint32_t free_frame_count;
    uint16_t ended[MESH_FRAMES]; /* the pump's, to be told */
    uint32_t ended_count;

    struct ipu_recv pool[MESH_RECVS_MAX]; /* receives not posted */
    uint32_t pool_count;

    struct in6_addr groups[MESH_MEMBERS];
    uint32_t group_count, groups_untold; /* beyond the array */
    struct mesh_note notes[MESH_NOTES];
    uint32_t note_head, note_tail;

    struct mesh_peer peers[IPU_MESH_PEERS_MAX];

    struct {
#define FIELD(name) _Atomic uint64_t name;
        IPU_MESH_COUNTERS(FIELD)
#undef FIELD
    } counters;
};

#define MESH_ADD(m, name, n) ipu_counters_add(&(m)->counters.name, (n))
#define MESH_COUNT(m, name)  MESH_ADD(m, name, 1)

int64_t ipu_mesh_now_ns(void);

/* mesh.c */
uint32_t ipu_mesh_lkey(const struct ipu_mesh *m, const void *addr);
void ipu_mesh_wake(struct ipu_mesh *m);

/* mesh_peer.c: by the upper half of a work request's number, or NULL when it has gone. */
struct mesh_peer *ipu_mesh_find(struct ipu_mesh *m, uint32_t id);
/* No more of it: what waits is lost, and the control face told. */
void ipu_mesh_fail(struct ipu_mesh *m, struct mesh_peer *p);
/* Post receives as far as there are any. */
void ipu_mesh_top_up(struct ipu_mesh *m, struct mesh_peer *p);

/* mesh_send.c */
int ipu_mesh_send(void *self, const struct ipu_send *sends, int n);
int ipu_mesh_sent(void *self, uint64_t *cookies, int max);
/* Post what waits, as far as the peer takes it. */
void ipu_mesh_flush(struct ipu_mesh *m, struct mesh_peer *p);
/* Lose what waits; `posted`: also what the queue pair, which has gone, had. */
void ipu_mesh_lose(struct ipu_mesh *m, struct mesh_peer *p, bool posted);
/* A control message of so many bytes behind its header, to be filled in; NULL: none free. */
uint8_t *ipu_mesh_control(struct ipu_mesh *m, struct mesh_peer *p, enum mesh_operation operation,
                          uint16_t count, uint32_t len);

/* mesh_receive.c */
int ipu_mesh_post(void *self, const struct ipu_recv *recvs, int n);
int ipu_mesh_received(void *self, struct ipu_received *done, int max);

#endif
