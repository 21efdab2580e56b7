# SPDX-License-Identifier: BSD-2-Clause
"""Statuses of the subnet administrator as errors that say what to change (M6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import LinkError
from ipoibu.proto.sa import errors as sa_errors
from ipoibu.proto.sa.errors import Asked
from ipoibu.proto.sa.transaction import Failure
from ipoibu.wire.mcmember import JoinState, McMemberRecord
from ipoibu.wire.mgid import broadcast

DEFAULT: Final = PKey(0xFFFF)
OTHER: Final = PKey(0x8001)
GUID: Final = 0x0002C903000E0B72
GROUP: Final = Gid.parse("ff12:401b:ffff::f01:203")
JOIN: Final = McMemberRecord(
    mgid=GROUP, pkey=DEFAULT, mtu_bytes=4096, rate=3, join_state=JoinState.FULL_MEMBER
)
FOUND: Final = McMemberRecord(mgid=GROUP, pkey=DEFAULT, mtu_bytes=2048, rate=3)
ASKED: Final = Asked("join", GROUP, DEFAULT, JOIN, FOUND, GUID, is_member=True)


def text(status: int, asked: Asked = ASKED) -> str:
    message = str(sa_errors.refusal(status, asked))
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (0x0004, sa_errors.Unsupported),
        (0x0008, sa_errors.Unsupported),
        (0x000C, sa_errors.Unsupported),
        (0x001C, sa_errors.Unsupported),
        (0x0100, sa_errors.NoResources),
        (0x0200, sa_errors.InvalidRequest),
        (0x0300, sa_errors.NoRecords),
        (0x0400, sa_errors.TooManyRecords),
        (0x0500, sa_errors.InvalidGid),
        (0x0600, sa_errors.InsufficientComponents),
        (0x0700, sa_errors.Denied),
    ],
)
def test_every_status_has_an_error_of_its_own(status: int, kind: type[sa_errors.SaError]) -> None:
    error = sa_errors.refusal(status, ASKED)
    assert type(error) is kind
    assert isinstance(error, LinkError)
    assert (error.status, error.exit_code) == (status, 1)
    assert f"{status:#06x}" in str(error)


@pytest.mark.parametrize("status", [0x0002, 0x0F00, 0x7F00, 0xFFFF])
def test_a_status_that_nobody_knows_is_an_error_all_the_same(status: int) -> None:
    assert type(sa_errors.refusal(status, ASKED)) is sa_errors.SaError


def test_the_text_names_group_partition_and_mtu() -> None:
    start = text(0x0200).split(": the subnet")[0]
    assert start == "join ff12:401b:ffff::f01:203, P_Key 0xffff, MTU 4096"


def test_a_wrong_mtu_is_named_with_the_line_to_change() -> None:
    message = text(0x0200)
    assert "the group has MTU 2048" in message
    assert "set mtu=5 in the partition's line of partitions.conf" in message


def test_a_wrong_rate_is_named() -> None:
    wrong = replace(JOIN, mtu_bytes=2048, rate=7)
    message = text(0x0200, replace(ASKED, record=wrong))
    assert "the group has rate 3, not 7" in message
    assert "set rate=7" in message


def test_a_group_of_another_partition_is_named() -> None:
    wrong = replace(JOIN, mtu_bytes=None, rate=None, pkey=OTHER)
    assert "the group belongs to P_Key 0xffff" in text(0x0200, replace(ASKED, record=wrong))


def test_an_error_about_a_too_small_port_names_what_to_lower() -> None:
    message = text(0x0200, replace(ASKED, record=replace(JOIN, mtu_bytes=None, rate=None)))
    assert "cannot carry the group's MTU 2048 or rate 3; lower mtu= or rate=" in message


def test_m1_the_error_of_a_join_that_may_not_create_says_so() -> None:
    """M1."""
    state = JoinState.SEND_ONLY_NON_MEMBER
    asked = replace(ASKED, record=replace(JOIN, join_state=state), group=None)
    assert "this kind of join may not create one" in text(0x0200, asked)
    assert "cannot be created with these parameters" in text(0x0200, replace(ASKED, group=None))


def test_a_wrong_leave_is_named() -> None:
    message = text(0x0200, Asked("leave", GROUP, DEFAULT, is_member=True))
    assert message.endswith("the port is not a member of the group with that join state")


@pytest.mark.parametrize("status", [0x0300, 0x0600])
def test_b4_a_missing_broadcast_group_is_named_with_the_line_to_add(status: int) -> None:
    """B4."""
    asked = Asked("join", broadcast(DEFAULT), DEFAULT, guid=GUID, is_member=True)
    assert text(status, asked).endswith("Default=0x7fff, ipoib : ALL=full;")
    other = Asked("join", broadcast(OTHER), OTHER, guid=GUID, is_member=True)
    assert text(status, other).endswith("ib8001=0x0001, ipoib : 0x0002c903000e0b72=full;")
    wider = Asked("join", broadcast(OTHER, 5), OTHER, guid=GUID, is_member=True)
    line = "ib8001=0x0001, ipoib : 0x0002c903000e0b72=full, mgid=ff15:401b::ffff:ffff, scope=5;"
    assert text(status, wider).endswith(line)


@pytest.mark.parametrize("status", [0x0200, 0x0300, 0x0600, 0x0700])
def test_e7_a_port_outside_the_partition_is_named_whatever_the_status(status: int) -> None:
    """E7."""
    message = text(status, replace(ASKED, pkey=OTHER, is_member=False))
    assert "this port is not in the partition; add 0x0002c903000e0b72=full" in message
    assert "0x0001 in partitions.conf" in message


def test_a_missing_group_or_path_is_named() -> None:
    group = Asked("look up", GROUP, DEFAULT, is_member=True)
    assert "there is no such group" in text(0x0300, group)
    path = Asked("path to", Gid.parse("fe80::10:5"), DEFAULT, is_member=True)
    assert "no port with that GID shares the partition" in text(0x0300, path)
    assert "no such record" in text(0x0300, Asked("list groups"))


@pytest.mark.parametrize("status", [0x000C, 0x0100, 0x0400, 0x0500, 0x0700, 0x0F00])
def test_the_other_statuses_have_words_too(status: int) -> None:
    message = text(status)
    assert len(message.split(f"{status:#06x}: ")[1]) > 10


def test_a_missing_answer_names_where_it_was_expected() -> None:
    def message(failure: Failure, lid: int) -> str:
        return str(sa_errors.no_answer(failure, Asked("join", GROUP, DEFAULT), lid))

    assert "no subnet manager has configured this port" in message(Failure.TIMEOUT, 0)
    assert "no answer from the subnet administrator at LID 7" in message(Failure.TIMEOUT, 7)
    for failure in (Failure.BROKEN, Failure.STOPPED, Failure.QUEUE_FULL):
        assert failure.value in message(failure, 7)
