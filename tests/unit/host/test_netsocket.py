# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno

import pytest

from ipoibu.base.errors import LinkError, NoSuchDevice, NotPermitted
from ipoibu.host.netsocket import NLM_F_DUMP, NetlinkSocket, refusal, split, verdict

# An NLMSG_ERROR for sequence 5 as Linux 6.18 sends it with NETLINK_CAP_ACK and NETLINK_EXT_ACK:
# header 16, error -101 (ENETUNREACH), request header 16, attribute 1 with the kernel's own words.
REFUSED = bytes.fromhex(
    "48000000 0200 0003 05000000 00000000"
    "9bffffff"
    "30000000 1800 0505 05000000 00000000"
    "2300 0100" + b"Nexthop has invalid gateway\0".hex() + "00000000"
)


def test_a_refusal_carries_the_error_and_the_kernels_words() -> None:
    (message,) = split(REFUSED)
    assert message == (0, 2, 0x300, 5)
    assert verdict(REFUSED, 0, 2, 0x300) == (errno.ENETUNREACH, "Nexthop has invalid gateway")


def test_an_acknowledgement_is_norefusal() -> None:
    done = bytes.fromhex("24000000 0200 0001 05000000 00000000 00000000") + bytes(16)
    assert verdict(done, 0, 2, 0x100) == (0, "")


def test_a_message_of_impossible_length_ends_the_datagram() -> None:
    assert list(split(bytes(64))) == []
    assert list(split(b"\x10\0\0")) == []


def test_a_request_on_a_closed_socket_says_what_failed() -> None:
    netlink = NetlinkSocket()
    netlink.close()
    with pytest.raises(LinkError, match=r"^listing links: Bad file descriptor"):
        netlink.exchange(18, NLM_F_DUMP, bytes(16), "listing links")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (errno.EPERM, NotPermitted),
        (errno.ENODEV, NoSuchDevice),
        (errno.EACCES, LinkError),  # "IPv6 is disabled on this interface"
        (errno.ENETUNREACH, LinkError),
    ],
)
def test_each_refusal_has_its_family(code: int, kind: type[Exception]) -> None:
    error = refusal(code, "adding route 10.0.0.0/8", "")
    assert type(error) is kind
    assert str(error).startswith("adding route 10.0.0.0/8")
