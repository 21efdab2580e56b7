# SPDX-License-Identifier: BSD-2-Clause
"""A verbs port and its queue pairs over a pyverbs that the test plays."""

from __future__ import annotations

import errno
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError, NoSuchDevice, NotPermitted, UsageError
from ipoibu.base.ib import PartitionParams
from ipoibu.fabric.device import open_port
from ipoibu.fabric.verbs import link_layer
from ipoibu.fabric.verbs.objects import load
from ipoibu.fabric.verbs.port import VerbsPort, VerbsUd

from .verbs_fake import Fabric, LayoutError, Membership, install, machine, uninstall

GID = Gid.parse("fe80::ff:fe00:101")
OTHER = Gid.parse("fe80::ff:fe00:909")
GROUP = Gid.parse("ff12:401b:ffff::ffff:ffff")
LO = 1  # ifindex of the loopback device in every network namespace
PARAMS = PartitionParams(pkey=PKey(0xFFFF), qkey=0x0B1B, mtu_bytes=2048)


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[int, Gid]]]:
    """A fake pyverbs and extension; the IPv6 addresses of this machine, for the test to change."""
    there = {(LO, GID)}
    compiled = install(monkeypatch)
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", compiled)
    monkeypatch.setattr(link_layer, "local_addresses", lambda: there)
    yield there
    uninstall()


@pytest.fixture
def port() -> VerbsPort:
    return VerbsPort("rxe0")


@pytest.fixture
def ud(port: VerbsPort) -> VerbsUd:
    return port.open_ud(PARAMS)


def compiled(ud: VerbsUd) -> Fabric:
    """Return the fake compiled object of the fabric."""
    return next(made for made in Fabric.made if made.native is ud.native)


# The port


def test_a_port_is_described_by_its_gid_and_mtu(port: VerbsPort) -> None:
    info = port.info
    assert (info.device, info.port, info.link_layer, info.netdev) == ("rxe0", 1, "Ethernet", "lo")
    assert (info.gid, info.guid) == (GID, bytes.fromhex("000000fffe000101"))
    assert info.active_mtu_bytes == 4096
    assert port.active()


def test_a_device_is_opened_by_its_name() -> None:
    opened = open_port("rxe0")
    assert isinstance(opened, VerbsPort)
    opened.close()
    assert machine().log[-2:] == ["close pd", "close context"]


def test_a_port_that_is_not_there_is_named() -> None:
    machine().errors["port 2"] = errno.EINVAL
    with pytest.raises(NoSuchDevice, match="rxe0: it has no port 2"):
        VerbsPort("rxe0", 2)


def test_a_net_device_in_another_namespace_is_named(addresses: set[tuple[int, Gid]]) -> None:
    away = 0x7FFFFFFF
    machine().gids = [(0, str(GID), 2, away, 1)]
    addresses.add((away, GID))
    with pytest.raises(LinkError, match="not in this network namespace; run there: ip netns exec"):
        VerbsPort("rxe0")


@pytest.mark.parametrize("arguments", [{}, {"device": "rxe0", "context": object()}])
def test_a_name_or_a_context_and_not_both(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not both"):
        VerbsPort(**arguments)


def test_a_domain_comes_with_its_context() -> None:
    with pytest.raises(UsageError, match="hand in both"):
        VerbsPort("rxe0", pd=object())


def test_a_lent_context_and_domain_stay_open() -> None:
    modules = load()
    context = modules.device.Context(name="rxe0")
    domain = modules.pd.PD(context)
    port = VerbsPort(context=context, pd=domain)
    assert port.info.device == "rxe0"
    ud = port.open_ud(PARAMS)
    assert compiled(ud).qp.pd is domain
    assert compiled(ud).options["owns_events"] is False  # the application reads them
    port.close()
    assert "close qp" in machine().log
    assert not {"close pd", "close context"} & set(machine().log)


def test_without_the_extension_it_says_what_to_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "ipoibu._verbs", None)
    monkeypatch.delattr("ipoibu._verbs", raising=False)
    with pytest.raises(NoSuchDevice, match="apt-get install libibverbs-dev, then install ipoibu"):
        VerbsPort("rxe0")


# A port's changes


def test_a_port_that_is_not_active_is_logged_once(
    port: VerbsPort, caplog: pytest.LogCaptureFixture
) -> None:
    machine().state = 1
    with caplog.at_level(logging.WARNING):
        assert not port.active()
        assert not port.active()
    assert caplog.messages == ["rxe0/1: the port is not active"]
    machine().state = 4
    assert port.active()


def test_a_port_that_went_down_and_came_back_between_two_looks_was_down(
    port: VerbsPort, ud: VerbsUd
) -> None:
    compiled(ud).pending = 1 | 2  # PORT_DOWN, PORT_CHANGED
    assert not port.active()
    assert port.active()


def test_a_device_that_failed_ends_the_port(port: VerbsPort, ud: VerbsUd) -> None:
    compiled(ud).pending = 4  # FATAL
    with pytest.raises(LinkError, match="rxe0/1: the device failed or was removed"):
        port.active()


def test_an_mtu_below_the_links_is_a_port_that_is_down(
    port: VerbsPort, ud: VerbsUd, caplog: pytest.LogCaptureFixture
) -> None:
    machine().active_mtu = 4
    assert port.active()  # the link needs 2048
    machine().active_mtu = 3
    assert not port.active()
    assert caplog.messages == [
        "rxe0/1: the port's MTU fell to 1024, the link's is 2048: ip link set lo mtu 2128"
    ]
    ud.close()
    assert port.active()  # no fabric needs more


def test_queue_pairs_move_to_the_ports_new_gid(
    port: VerbsPort, ud: VerbsUd, addresses: set[tuple[int, Gid]]
) -> None:
    addresses.clear()
    machine().gids = [(4, str(OTHER), 2, LO, 1)]
    assert not port.active()  # the table has it, the net device not yet
    assert port.info.gid == GID
    addresses.add((LO, OTHER))
    assert port.active()
    assert port.info.gid == OTHER
    assert port.info.guid == OTHER.interface_id
    assert compiled(ud).log == [("rebind", OTHER.raw, 4)]
    assert port.open_ud(PARAMS) is not ud
    assert Fabric.made[-1].options["sgid_index"] == 4


def test_a_gid_without_its_address_is_a_port_that_is_down(
    port: VerbsPort, addresses: set[tuple[int, Gid]]
) -> None:
    addresses.clear()
    assert not port.active()
    addresses.add((LO, GID))
    assert port.active()


# Queue pairs


def test_a_queue_pair_is_made_as_the_partition_says(port: VerbsPort) -> None:
    machine().pkeys = [0x7FFF, 0x8001, 0xFFFF]
    ud = port.open_ud(PARAMS)
    options = compiled(ud).options
    assert options == {
        "cmd_fd": 5,
        "gid": GID.raw,
        "sgid_index": 0,
        "port": 1,
        "pkey_index": 2,
        "qkey": 0x0B1B,
        "mtu_bytes": 4096,
        "max_ah": 24575,  # three quarters of 32767
        "resolves": True,
        "owns_events": True,
    }
    assert (ud.qpn, ud.native) == (0x11, compiled(ud).native)
    assert ud.counters() == {"tx_doorbells": 3}


def test_a_small_device_gets_what_it_can_hold(port: VerbsPort) -> None:
    machine().max_qp_wr, machine().max_cqe = 100, 50
    ud = port.open_ud(PARAMS)
    cap = compiled(ud).qp.attr.cap
    assert (cap.max_send_wr, cap.max_recv_wr) == (50, 50)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (PartitionParams(PKey(0x8005), 1, 2048), "no P_Key 0x8005; it has: 0xffff"),
        (
            PartitionParams(PKey(0xFFFF), 1, 2048, is_limited=True),
            "no P_Key 0x7fff, the limited member's; it has: 0xffff",
        ),
    ],
)
def test_a_pkey_that_the_port_does_not_have_is_named_before_anything_is_made(
    port: VerbsPort, params: PartitionParams, message: str
) -> None:
    machine().pkeys = [0xFFFF, 0]
    with pytest.raises(LinkError, match=f"rxe0/1: {message}"):
        port.open_ud(params)
    assert not [line for line in machine().log if line.startswith("close")]


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (LayoutError("no queue pair where it should be"), LinkError, "versions 44 to 59 are known"),
        (OSError(errno.EPERM, "no"), NotPermitted, "queue pair: not permitted; run as root"),
        (OSError(errno.EINVAL, "no"), LinkError, "rxe0/1: queue pair: Invalid argument"),
        (RuntimeError("a defect"), RuntimeError, "a defect"),
    ],
)
def test_a_queue_pair_that_cannot_be_used_is_closed(
    port: VerbsPort, error: BaseException, kind: type[BaseException], words: str
) -> None:
    Fabric.refuse = error
    with pytest.raises(kind, match=words):
        port.open_ud(PARAMS)
    closed = ["close qp", "close cq", "close cq", "close channel", "close membership"]
    assert machine().log[-5:] == closed


def test_closing_ends_the_queue_pair_before_its_memory_and_queues(ud: VerbsUd) -> None:
    machine().log.clear()
    ud.close()
    assert machine().log == [
        "close qp",
        "close fabric",
        "close cq",
        "close cq",
        "close channel",
        "close membership",
    ]


def test_closing_the_port_closes_its_queue_pairs_first(port: VerbsPort, ud: VerbsUd) -> None:
    machine().log.clear()
    port.close()
    assert machine().log[0] == "close qp"
    assert machine().log[-2:] == ["close pd", "close context"]


# TxQueues


def test_a_tx_queue_is_a_queue_pair_of_its_own_that_receives_nothing(ud: VerbsUd) -> None:
    tx_queues = ud.open_tx_queues(2)
    main, *others = Fabric.made
    assert [tx_queue.native for tx_queue in tx_queues] == [made.native for made in others]
    for made in others:
        assert made.qp is not main.qp
        assert (made.qp.attr.cap.max_send_wr, made.qp.attr.cap.max_recv_wr) == (512, 1)
        assert made.qp.attr.scq is not main.qp.attr.scq
        assert made.options == main.options | {
            "owns_events": False,
            "leader": main,
            "max_ah": 8191,  # a third of our share of the device's
        }
    assert ud.counters() == {"tx_doorbells": 9}


def test_tx_queues_move_to_the_ports_new_gid_too(
    port: VerbsPort, ud: VerbsUd, addresses: set[tuple[int, Gid]]
) -> None:
    ud.open_tx_queues(1)
    addresses.clear()
    addresses.add((LO, OTHER))
    machine().gids = [(4, str(OTHER), 2, LO, 1)]
    assert port.active()
    assert [made.log for made in Fabric.made] == [[("rebind", OTHER.raw, 4)]] * 2


def test_tx_queues_end_before_their_fabric(ud: VerbsUd) -> None:
    ud.open_tx_queues(1)
    machine().log.clear()
    ud.close()
    tx_queue = ["close qp", "close fabric", "close cq", "close cq", "close channel"]
    assert machine().log == [*tx_queue, *tx_queue, "close membership"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(OSError(errno.ENOSPC, "no"), LinkError), (RuntimeError("a defect"), RuntimeError)],
)
def test_a_tx_queue_that_cannot_be_made_leaves_none(
    ud: VerbsUd, error: BaseException, kind: type[BaseException]
) -> None:
    ud.open_tx_queues(1)
    machine().log.clear()
    Fabric.refuse = error
    with pytest.raises(kind):
        ud.open_tx_queues(1)
    tx_queue = ["close qp", "close cq", "close cq", "close channel"]
    closed = [line for line in machine().log if line.startswith("close")]
    assert closed == [*tx_queue, "close qp", "close fabric", *tx_queue[1:]]


def test_a_group_is_joined_on_the_net_device_and_attached(ud: VerbsUd) -> None:
    ud.attach(GROUP)
    ud.attach(GROUP)
    assert list(Membership.groups) == [GROUP.raw]
    assert compiled(ud).log == [("attach", GROUP.raw, 0)]
    ud.detach(GROUP)
    ud.detach(GROUP)
    assert Membership.groups == {}
    assert compiled(ud).log == [("attach", GROUP.raw, 0), ("detach", GROUP.raw, 0)]


@pytest.mark.parametrize(
    ("code", "words"),
    [(errno.ENOMEM, "takes at most 8192 groups"), (errno.EINVAL, "Invalid argument")],
)
def test_an_attachment_that_fails_ends_the_membership(ud: VerbsUd, code: int, words: str) -> None:
    compiled(ud).errors["attach"] = OSError(code, "no")
    with pytest.raises(LinkError, match=words):
        ud.attach(GROUP)
    assert Membership.groups == {}
    compiled(ud).errors.clear()
    ud.attach(GROUP)  # a second attempt is possible
    assert list(Membership.groups) == [GROUP.raw]


def test_a_membership_that_fails_says_why(ud: VerbsUd) -> None:
    Membership.refuse = OSError(errno.ENOBUFS, "no")
    with pytest.raises(LinkError, match=f"group {GROUP}: IPv6 membership: No buffer space"):
        ud.attach(GROUP)
    assert compiled(ud).log == []


def test_the_end_detaches_what_is_still_attached(ud: VerbsUd) -> None:
    """The kernel answers EBUSY to the end of a queue pair with groups."""
    ud.attach(GROUP)
    ud.close()
    assert compiled(ud).log[:2] == [("attach", GROUP.raw, 0), ("detach", GROUP.raw, 0)]


def test_a_detachment_that_fails_is_logged(ud: VerbsUd, caplog: pytest.LogCaptureFixture) -> None:
    ud.attach(GROUP)
    compiled(ud).errors["detach"] = OSError(errno.EIO, "the device is gone")
    ud.detach(GROUP)
    assert len(caplog.messages) == 1
    assert Membership.groups == {}


def test_a_break_is_passed_on(ud: VerbsUd) -> None:
    ud.break_queue_pair()
    assert compiled(ud).log == [("break",)]
