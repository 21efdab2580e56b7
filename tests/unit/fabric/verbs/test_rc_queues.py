# SPDX-License-Identifier: BSD-2-Clause
"""Connections of a verbs port, over a pyverbs that the test plays."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ipoibu.base.addr import Gid, PKey, Qpn
from ipoibu.base.errors import LinkError
from ipoibu.base.ib import Destination, PartitionParams, RcAttributes
from ipoibu.fabric.verbs import link_layer
from ipoibu.fabric.verbs.port import VerbsPort, VerbsUd
from ipoibu.fabric.verbs.rc_queues import VerbsRc

from .verbs_fake import Connection, Fabric, install, machine, uninstall

GID = Gid.parse("fe80::ff:fe00:101")
PEER = Gid.parse("fe80::ff:fe00:202")
PARAMS = PartitionParams(pkey=PKey(0xFFFF), qkey=0x0B1B, mtu_bytes=2048)
ATTRIBUTES = RcAttributes(
    Destination(PEER, Qpn(0x99), hop_limit=64, flow_label=0x12345),
    path_mtu_bytes=2048,
    receive_psn=0x111,
    send_psn=0x222,
    ack_timeout=14,
    retries=7,
    rnr_retries=6,
)
QUEUES = ["channel", "cq 4096", "cq 128", "srq 128"]
CLOSED = ["close srq", "close cq", "close cq", "close channel"]


@pytest.fixture(autouse=True)
def _pyverbs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    compiled = install(monkeypatch)
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", compiled)
    monkeypatch.setattr(link_layer, "local_addresses", lambda: {(1, GID)})
    yield
    uninstall()


@pytest.fixture
def ud() -> VerbsUd:
    return VerbsPort("rxe0").open_connected(PARAMS)


def qp_of(connection: VerbsRc) -> Any:
    return connection._qp  # pyverbs' queue pair


def test_all_connections_share_queues_that_a_pattern_introduces(ud: VerbsUd) -> None:
    log = machine().log
    begun = log.index("srq 128")
    assert log[begun - 3 : begun + 1] == QUEUES
    assert log[begun + 1 : begun + 4] == ["qp", "connect", "close qp"]
    first, second = ud.open_connection(), ud.open_connection()
    assert qp_of(first).attr.srq is qp_of(second).attr.srq
    assert qp_of(first).attr.scq is qp_of(second).attr.scq
    assert (first.qpn, first.retries) == (0x11, None)


def test_a_datagram_port_has_none_of_it() -> None:
    VerbsPort("rxe0").open_ud(PARAMS)
    assert not [entry for entry in machine().log if entry.startswith("srq")]


def test_a_queue_pair_goes_from_state_to_state(ud: VerbsUd) -> None:
    connection = ud.open_connection()
    connection.program(ATTRIBUTES)
    connection.stop()
    (init_mask, init), (rtr_mask, rtr), (rts_mask, rts), (err_mask, err) = qp_of(connection).asked
    states = [asked["qp_state"] for asked in (init, rtr, rts, err)]
    assert states == [1, 2, 3, 6]
    assert (init["pkey_index"], init["qp_access_flags"], init["port_num"]) == (0, 0, 1)
    route = rtr["ah_attr"].gr
    assert route.dgid.val == "fe80:0000:0000:0000:0000:00ff:fe00:0202"
    assert (route.sgid_index, route.hop_limit, route.flow_label) == (0, 64, 0x12345)
    assert (rtr["path_mtu"], rtr["dest_qp_num"], rtr["rq_psn"]) == (4, 0x99, 0x111)
    assert (rts["sq_psn"], rts["timeout"], rts["retry_cnt"], rts["rnr_retry"]) == (0x222, 14, 6, 6)
    assert (init_mask, rtr_mask, rts_mask, err_mask) == (0x39, 0x129181, 0x12E01, 1)


def test_the_core_hears_of_a_queue_pair_before_and_after_all_that_it_receives(ud: VerbsUd) -> None:
    connection = ud.open_connection()
    log = machine().log
    del log[:]
    connection.program(ATTRIBUTES)
    connection.close()
    assert log == ["program 0x111 2048", "modify 2", "modify 3", "close qp", "end connection"]


@pytest.mark.parametrize(("vendor", "loses"), [(0xFFFFFF, True), (0x02C9, False)])
def test_soft_roce_loses_receives(vendor: int, loses: bool) -> None:
    machine().vendor_id = vendor
    ud = VerbsPort("rxe0").open_connected(PARAMS)
    fabric = next(made for made in Fabric.made if made.native is ud.native)
    assert fabric.loses_receives is loses


def test_a_queue_pair_is_closed_once(ud: VerbsUd) -> None:
    connection = ud.open_connection()
    before = machine().log.count("close qp")
    connection.close()
    connection.close()
    connection.stop()
    assert machine().log.count("close qp") == before + 1
    assert "modify 6" not in machine().log


def test_a_peer_that_cannot_be_programmed_is_a_link_error(ud: VerbsUd) -> None:
    machine().errors["modify 2"] = errno.EINVAL
    connection = ud.open_connection()
    with pytest.raises(LinkError, match="rxe0: connected queue pair"):
        connection.program(ATTRIBUTES)


def test_a_device_that_is_gone_does_not_stop_the_end(ud: VerbsUd) -> None:
    connection = ud.open_connection()
    machine().errors["modify 6"] = errno.ENODEV
    connection.stop()
    connection.close()


@pytest.mark.parametrize("what", ["qp", "modify 1"])
def test_a_device_without_room_says_so_and_keeps_nothing(ud: VerbsUd, what: str) -> None:
    machine().errors[what] = errno.ENOMEM
    with pytest.raises(LinkError, match="out of memory"):
        ud.open_connection()
    machine().errors.clear()
    log = machine().log
    assert log.count("qp") - (what == "qp") == log.count("close qp") + 1  # the UD queue pair stays


def test_a_queue_pair_that_the_core_refuses_is_closed(ud: VerbsUd) -> None:
    Connection.refuse = OSError(errno.EINVAL, "Invalid argument")
    with pytest.raises(LinkError, match="rxe0: connection: Invalid argument"):
        ud.open_connection()
    assert machine().log[-1] == "close qp"


def test_a_device_without_shared_receive_queues_is_refused() -> None:
    machine().max_srq = 0
    with pytest.raises(LinkError, match="needs shared receive queues"):
        VerbsPort("rxe0").open_connected(PARAMS)
    assert machine().log[-5:] == ["close fabric", *CLOSED[1:], "close membership"]


def test_a_device_that_takes_less_inline_gets_none() -> None:
    machine().max_inline = 0
    ud = VerbsPort("rxe0").open_connected(PARAMS)
    assert qp_of(ud.open_connection()).attr.cap.max_inline_data == 0


def test_what_was_made_before_a_failure_is_closed() -> None:
    machine().errors["srq 128"] = errno.ENOMEM
    with pytest.raises(LinkError, match="shared receive queue: out of memory"):
        VerbsPort("rxe0").open_connected(PARAMS)
    assert machine().log.count("close cq") == 4
    assert machine().log.count("close channel") == 2


def test_the_shared_queues_go_before_the_rest(ud: VerbsUd) -> None:
    ud.close()
    log = machine().log
    begun = log.index("close srq")
    assert log[begun : begun + 4] == CLOSED
    assert log.index("close fabric") > begun
    ud.close()
    assert log.count("close srq") == 1
