/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections over rails: each belongs to the rail that was active when it was made, and stays on
 * it until the engine wants it back. The cookies are the pump's own. */
#include "rails/rails_state.h"

static const struct ipu_fabric *inner_of(const struct ipu_rails *r,
                                         const struct ipu_connection *connection)
{
    return r->rails[connection->rail].inner;
}

static int connected_add(void *self, struct ipu_connection *connection)
{
    struct ipu_rails *r = self;
    const struct ipu_fabric *inner = inner_of(r, connection);
    int error = inner->connected->add(inner->connected_self, connection);
    if (error == 0) {
        r->rails[connection->rail].connections++;
        r->asleep &= ~(1u << connection->rail);
    }
    return error;
}

static void connected_remove(void *self, struct ipu_connection *connection)
{
    struct ipu_rails *r = self;
    const struct ipu_fabric *inner = inner_of(r, connection);
    inner->connected->remove(inner->connected_self, connection);
    r->rails[connection->rail].connections--;
}

static int connected_send(void *self, struct ipu_connection *connection,
                          const struct ipu_send *sends, int n)
{
    const struct ipu_fabric *inner = inner_of(self, connection);
    return inner->connected->send(inner->connected_self, connection, sends, n);
}

/* Returns the rail with the fewest receives among those of `open`; *more is how many the next one
 * has more. */
static uint32_t poorest(const struct ipu_rails *r, uint32_t open, uint32_t *more)
{
    uint32_t found = IPU_RAILS_MAX, least = UINT32_MAX, next = UINT32_MAX;
    RAILS_FOR_EACH(r, k) {
        uint32_t posted = r->rails[k].connected_posted;
        if (!(open >> k & 1))
            continue;
        if (posted < least) {
            next = least;
            least = posted;
            found = k;
        } else if (posted < next) {
            next = posted;
        }
    }
    *more = next - least;
    return found;
}

/* Keeps the numbers of receives alike, so that the rail that takes over has as many. */
static int connected_post(void *self, const struct ipu_recv *recvs, int n)
{
    struct ipu_rails *r = self;
    uint32_t open = (1u << r->count) - 1, more;
    int taken = 0;
    while (taken < n) {
        uint32_t k = poorest(r, open, &more);
        if (k == IPU_RAILS_MAX)
            break;
        const struct ipu_fabric *inner = r->rails[k].inner;
        int wanted = n - taken;
        if (more < (uint32_t)wanted)
            wanted = more > 0 ? (int)more : 1;
        int got = inner->connected->post(inner->connected_self, recvs + taken, wanted);
        if (got < wanted) /* the shared queue is full */
            open &= ~(1u << k);
        if (got > 0) {
            r->rails[k].connected_posted += (uint32_t)got;
            taken += got;
        }
    }
    return taken;
}

static int connected_sent(void *self, struct ipu_connection_sent *ended, int max)
{
    struct ipu_rails *r = self;
    int n = 0;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (r->rails[k].connections > 0 && n < max)
            n += inner->connected->sent(inner->connected_self, ended + n, max - n);
    }
    return n;
}

static int connected_received(void *self, struct ipu_connection_received *done, int max)
{
    struct ipu_rails *r = self;
    int n = 0;
    RAILS_FOR_EACH(r, k) {
        const struct ipu_fabric *inner = r->rails[k].inner;
        if (r->rails[k].connections == 0 || n == max)
            continue;
        int got = inner->connected->received(inner->connected_self, done + n, max - n);
        r->rails[k].connected_posted -= (uint32_t)got;
        n += got;
    }
    return n;
}

const struct ipu_connected_ops rails_connected_ops = {
    .add = connected_add,
    .remove = connected_remove,
    .send = connected_send,
    .post = connected_post,
    .sent = connected_sent,
    .received = connected_received,
};

void ipu_rails_assign(const struct ipu_rails *r, struct ipu_connection *connection, uint32_t rail)
{
    if (rail < r->count && r->rails[rail].inner != NULL)
        connection->rail = rail;
}
