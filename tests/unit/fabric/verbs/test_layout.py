# SPDX-License-Identifier: BSD-2-Clause
"""Reading the layout of a pyverbs queue pair checks everything, and never crashes."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

_verbs = pytest.importorskip(
    "ipoibu._verbs", reason="the verbs extension is not built: it needs libibverbs-dev"
)

HEAD_BYTES = 40  # PyObject, weak references, logger, method table: where the pointer stands
QPN, CMD_FD, UD, RC = 0x17, 9, 4, 2


class Fake:
    """An object with a pointer where pyverbs' QP has one; slots are laid out in sorted order."""

    __slots__ = ("a", "b", "c", "qp", "qp_num")

    def __init__(self) -> None:
        self.qp_num = QPN


class Small:
    __slots__ = ("qp_num",)

    def __init__(self) -> None:
        self.qp_num = QPN


class Pd(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("handle", ctypes.c_uint32))


class Channel(ctypes.Structure):
    _fields_ = (("context", ctypes.c_void_p), ("fd", ctypes.c_int), ("refcnt", ctypes.c_int))


class Cq(ctypes.Structure):
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("channel", ctypes.c_void_p),
        ("rest", ctypes.c_char * 112),
    )


class Context(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_void_p),
        ("ops", ctypes.c_void_p * 32),
        ("cmd_fd", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class Qp(ctypes.Structure):  # struct ibv_qp, <infiniband/verbs.h>
    _fields_ = (
        ("context", ctypes.c_void_p),
        ("qp_context", ctypes.c_void_p),
        ("pd", ctypes.c_void_p),
        ("send_cq", ctypes.c_void_p),
        ("recv_cq", ctypes.c_void_p),
        ("srq", ctypes.c_void_p),
        ("handle", ctypes.c_uint32),
        ("qp_num", ctypes.c_uint32),
        ("state", ctypes.c_int),
        ("qp_type", ctypes.c_int),
        ("rest", ctypes.c_char * 96),
    )


@dataclass
class World:
    """All structures that a queue pair points to; correct but for the channel."""

    qp: Qp
    context: Context
    pd: Pd
    send_cq: Cq
    recv_cq: Cq
    channel: Channel
    fake: Fake

    def point_to(self, address: int) -> None:
        ctypes.c_void_p.from_address(id(self.fake) + HEAD_BYTES).value = address


@pytest.fixture
def world() -> Iterator[World]:
    made = World(Qp(), Context(), Pd(), Cq(), Cq(), Channel(), Fake())
    context = ctypes.addressof(made.context)
    made.context.cmd_fd = CMD_FD
    made.pd.context = made.send_cq.context = made.recv_cq.context = context
    made.qp.context, made.qp.pd = context, ctypes.addressof(made.pd)
    made.qp.send_cq = ctypes.addressof(made.send_cq)
    made.qp.recv_cq = ctypes.addressof(made.recv_cq)
    made.qp.qp_num, made.qp.qp_type = QPN, UD
    gc.disable()  # it would follow the pointer as that of a Python object
    made.point_to(ctypes.addressof(made.qp))
    yield made
    made.point_to(0)
    gc.enable()


def refusal(qp: object) -> str:
    with pytest.raises(_verbs.LayoutError) as caught:
        _verbs.VerbsFabric(
            qp,
            cmd_fd=CMD_FD,
            gid=bytes(16),
            sgid_index=0,
            port=1,
            pkey_index=0,
            qkey=0x0B1B,
            mtu_bytes=2048,
            max_ah=100,
            resolves=True,
            owns_events=True,
        )
    return str(caught.value)


def test_an_object_without_room_for_a_pointer_is_refused() -> None:
    assert refusal(Small()) == "the object is too small"


@pytest.mark.parametrize("address", [0, 8, 3, 0xDEAD0000, 2**47 - 4096, 2**63])
def test_a_pointer_to_nowhere_is_refused(world: World, address: int) -> None:
    world.point_to(address)
    assert refusal(world.fake) == "no queue pair where it should be"


def test_a_pointer_to_something_else_is_refused(world: World) -> None:
    other = ctypes.create_string_buffer(b"no queue pair at all " * 100)
    world.point_to(ctypes.addressof(other) & ~7)
    assert refusal(world.fake) == "another queue pair number"


def test_another_number_is_refused(world: World) -> None:
    world.qp.qp_num = QPN + 1
    assert refusal(world.fake) == "another queue pair number"


def test_another_type_of_queue_pair_is_refused(world: World) -> None:
    world.qp.qp_type = RC
    assert refusal(world.fake) == "another type of queue pair"


def test_another_context_is_refused(world: World) -> None:
    world.context.cmd_fd = CMD_FD + 1
    assert refusal(world.fake) == "another context"
    world.qp.context = 0x10
    assert refusal(world.fake) == "another context"


def test_another_protection_domain_is_refused(world: World) -> None:
    world.pd.context = ctypes.addressof(world.pd)
    assert refusal(world.fake) == "another protection domain"


def test_other_completion_queues_are_refused(world: World) -> None:
    world.qp.recv_cq = None
    assert refusal(world.fake) == "other completion queues"


def test_completion_queues_without_a_common_channel_are_refused(world: World) -> None:
    assert refusal(world.fake) == "no common completion channel"
    world.recv_cq.channel = ctypes.addressof(world.channel)
    assert refusal(world.fake) == "no common completion channel"
    world.send_cq.channel = world.recv_cq.channel  # but of another context
    assert refusal(world.fake) == "no common completion channel"
