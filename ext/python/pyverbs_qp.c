/* SPDX-License-Identifier: BSD-2-Clause */
#define PY_SSIZE_T_CLEAN
#include "python/pyverbs_qp.h"

#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

/* pyverbs' PyverbsObject has the first two, PyverbsCM the table of its methods, QP the pointer. */
struct pyverbs_qp {
    PyObject head;
    PyObject *weakrefs;
    PyObject *logger;
    void *methods;
    struct ibv_qp *qp;
};

/* Returns whether the kernel can read the memory: write() fails with EFAULT where we would
 * crash. */
static bool readable(const void *at, size_t len, int pipe_fd[2])
{
    char sink[512];
    if (at == NULL || (uintptr_t)at % _Alignof(void *) != 0 || len > sizeof sink)
        return false;
    if (write(pipe_fd[1], at, len) != (ssize_t)len)
        return false;
    return read(pipe_fd[0], sink, len) == (ssize_t)len;
}

static const char *misfit(const struct ibv_qp *qp, const struct ipu_pyverbs_qp_expected *expected,
                          int pipe_fd[2])
{
    if (!readable(qp, sizeof *qp, pipe_fd))
        return "no queue pair where it should be";
    if (qp->qp_num != expected->qp_num)
        return "another queue pair number";
    if (qp->qp_type != expected->qp_type)
        return "another type of queue pair";
    if (!readable(qp->context, sizeof *qp->context, pipe_fd) ||
        qp->context->cmd_fd != expected->cmd_fd)
        return "another context";
    if (!readable(qp->pd, sizeof *qp->pd, pipe_fd) || qp->pd->context != qp->context)
        return "another protection domain";
    if (!readable(qp->send_cq, sizeof *qp->send_cq, pipe_fd) ||
        !readable(qp->recv_cq, sizeof *qp->recv_cq, pipe_fd) ||
        qp->send_cq->context != qp->context || qp->recv_cq->context != qp->context)
        return "other completion queues";
    if (!readable(qp->recv_cq->channel, sizeof *qp->recv_cq->channel, pipe_fd) ||
        qp->recv_cq->channel != qp->send_cq->channel ||
        qp->recv_cq->channel->context != qp->context)
        return "no common completion channel";
    return NULL;
}

struct ibv_qp *ipu_pyverbs_qp_find(PyObject *object, const struct ipu_pyverbs_qp_expected *expected,
                                   const char **why)
{
    int pipe_fd[2];
    *why = "the object is too small";
    if ((size_t)Py_TYPE(object)->tp_basicsize < sizeof(struct pyverbs_qp))
        return NULL;
    *why = "no pipe to probe memory with";
    if (pipe2(pipe_fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return NULL;
    struct ibv_qp *qp = ((struct pyverbs_qp *)object)->qp;
    *why = misfit(qp, expected, pipe_fd);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
    return *why == NULL ? qp : NULL;
}
