/* SPDX-License-Identifier: BSD-2-Clause */
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>

#include "objects.h"

/*
 * Asynchronous events are bits of the objects that they are of, and the objects that have some are
 * listed: no ring that could be full, nothing to allocate. event_fd says that the list is not
 * empty.
 */

static void signal_state(struct soft_hca *hca)
{
    bool wanted = !TAILQ_EMPTY(&hca->events);
    uint64_t value = 1;

    if (wanted == hca->event_signalled)
        return;
    if (wanted ? write(hca->event_fd, &value, sizeof(value)) == sizeof(value)
               : read(hca->event_fd, &value, sizeof(value)) == sizeof(value))
        hca->event_signalled = wanted;
}

void soft_event_raise(struct soft_hca *hca, struct soft_event_source *source,
                      enum soft_event_type type)
{
    if (source->pending == 0)
        TAILQ_INSERT_TAIL(&hca->events, source, entry);
    source->pending |= 1u << type;
    signal_state(hca);
}

void soft_event_forget(struct soft_hca *hca, struct soft_event_source *source)
{
    if (source->pending == 0)
        return;
    source->pending = 0;
    TAILQ_REMOVE(&hca->events, source, entry);
    signal_state(hca);
}

int soft_hca_get_event(struct soft_hca *hca, struct soft_event *out)
{
    struct soft_event_source *source;

    soft_progress_lock(hca);
    source = TAILQ_FIRST(&hca->events);
    if (source != NULL) {
        int type = ffs((int)source->pending) - 1;

        *out = (struct soft_event){
            .type = (enum soft_event_type)type, .qp = source->qp, .srq = source->srq};
        source->pending &= ~(1u << type);
        if (source->pending == 0) {
            TAILQ_REMOVE(&hca->events, source, entry);
            signal_state(hca);
        }
    }
    soft_progress_unlock(hca);
    return source != NULL;
}

int soft_hca_event_fd(const struct soft_hca *hca)
{
    return hca->event_fd;
}
