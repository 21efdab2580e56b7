# SPDX-License-Identifier: BSD-2-Clause
# cython: embedsignature=True, annotation_typing=False
"""Fabrics: the built-in HCA, the in-process fabric, and those over others. Types: fabric.pyi."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.errno cimport EAGAIN, EBUSY, EINVAL, EIO, EMSGSIZE, ENOENT, ENOSPC, EOPNOTSUPP, errno
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t, INT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from native cimport *

include "soft.pxi"
include "memory.pxi"
include "wrappers.pxi"
include "raw.pxi"
