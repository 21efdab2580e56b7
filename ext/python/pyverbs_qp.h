/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef IPU_PYVERBS_QP_H
#define IPU_PYVERBS_QP_H

#include <Python.h>

#include <infiniband/verbs.h>

/*
 * pyverbs installs no C interface, so we find the queue pair inside its QP object by the object's
 * layout, which is the same in pyverbs 44 and 59. We trust nothing: we probe every pointer before
 * we follow it, and the structure behind it has to agree with the numbers that pyverbs reports.
 */
struct ipu_pyverbs_qp_expected {
    uint32_t qp_num; /* QP.qp_num */
    int cmd_fd;      /* Context.cmd_fd */
    enum ibv_qp_type qp_type;
};

/* Returns the queue pair, or NULL with the mismatch in *why. The caller holds the GIL and the
 * object. */
struct ibv_qp *ipu_pyverbs_qp_find(PyObject *object, const struct ipu_pyverbs_qp_expected *expected,
                                   const char **why);

#endif
