# SPDX-License-Identifier: BSD-2-Clause
"""A link's parameters from options and from partitions.conf, together or alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError, LinkError, NotPermitted, UsageError
from ipoibu.base.ib import GroupParams, PartitionParams, PortInfo
from ipoibu.fabric.partition.provision import link_params

GID = Gid.parse("fe80::215:5dff:fd33:ff0b")
PORT = PortInfo("soft:eth0", 1, GID, GID.interface_id, 4096, "Ethernet", "eth0")
GUID = "0x02155dfffd33ff0b"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "partitions.conf"


def ask(file: Path, text: str, pkey: int = 0x8001, **options: Any) -> PartitionParams:
    file.write_text(text)
    return link_params(PORT, pkey=PKey(pkey), partitions=file, **options)


def refusal(kind: type[IpoibuError], file: Path, text: str, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        ask(file, text, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_broadcast_groups_definition_gives_every_parameter(file: Path) -> None:
    text = (
        "p=1, ipoib, mtu=5, rate=7, sl=3, scope=5, Q_Key=0xb1b0, TClass=6, FlowLabel=9 : ALL=full;"
    )
    assert ask(file, text) == PartitionParams(
        pkey=PKey(0x8001),
        qkey=0xB1B0,
        mtu_bytes=4096,
        scope=5,
        sl=3,
        hop_limit=64,
        traffic_class=6,
        flow_label=9,
        rate=7,
    )


def test_without_a_file_the_options_and_the_defaults_count() -> None:
    params = link_params(PORT, pkey=PKey(1), mtu_bytes=4092)
    assert (params.pkey, params.qkey, params.mtu_bytes) == (0x8001, 0x0B1B, 4096)
    assert link_params(PORT, pkey=PKey(0xFFFF), qkey=7).qkey == 7
    with pytest.raises(UsageError, match="at most 4092"):
        link_params(PORT, pkey=PKey(0xFFFF), mtu_bytes=4093)


def test_an_option_that_agrees_or_asks_for_less_wins(file: Path) -> None:
    text = "p=1, ipoib, mtu=5, Q_Key=0x1234 : ALL=full;"
    params = ask(file, text, qkey=0x1234, mtu_bytes=1500)
    assert (params.qkey, params.mtu_bytes) == (0x1234, 4096)  # the 1500 is the interface's alone


def test_an_option_that_contradicts_is_refused_with_file_and_line(file: Path) -> None:
    text = "# here\np=1, ipoib, Q_Key=0x1234 : ALL=full;"
    assert refusal(UsageError, file, text, qkey=0xB1B) == (
        f"{file}:2: the link's Q_Key is 0x1234, not 0xb1b"
    )
    assert refusal(UsageError, file, text, mtu_bytes=4092) == (
        f"{file}:2: the link carries an MTU of 2044, not 4092"
    )


@pytest.mark.parametrize("pkey", [0, 0x8000])
def test_the_invalid_keys_are_refused(file: Path, pkey: int) -> None:
    assert "is invalid" in refusal(UsageError, file, "", pkey=pkey)
    with pytest.raises(UsageError, match="is invalid"):
        link_params(PORT, pkey=PKey(pkey))


@pytest.mark.parametrize(
    ("members", "is_limited"),
    [
        ("ALL=full", False),
        ("ALL", True),
        ("ALL=both", False),
        ("ALL_CAS=full", False),
        ("0x00155dfffd33ff0b=full", False),
        ("0x00155dfffd33ff0b", True),
        ("ALL=full, 0x00155dfffd33ff0b=limited", True),
        ("0x00155dfffd33ff0b=full, SELF=limited", False),
    ],
)
def test_the_members_of_the_file_decide_on_our_membership(
    file: Path, members: str, is_limited: bool
) -> None:
    port = replace(PORT, guid=bytes.fromhex("00155dfffd33ff0b"))
    file.write_text(f"p=1, ipoib : {members};")
    params = link_params(port, pkey=PKey(0x8001), partitions=file)
    # The link, its groups' names and their keys are those of full members, as in Linux (E7)
    assert params.pkey == 0x8001
    assert params.is_limited is is_limited
    assert params.own_pkey == (0x0001 if is_limited else 0x8001)


@pytest.mark.parametrize("members", ["", "0x1=full", "SELF=full", "ALL_SWITCHES=full"])
def test_the_error_of_a_port_that_is_no_member_names_what_to_add(file: Path, members: str) -> None:
    text = refusal(LinkError, file, f"\np=1, ipoib : {members};")
    assert text == (
        f"{file}:2: soft:eth0/1 is no member of partition p (0x8001): "
        f"add {GUID}=full to its members"
    )


def test_a_missing_partition_or_group_is_named_with_the_line_to_add(file: Path) -> None:
    assert refusal(LinkError, file, "") == (
        f"{file} has no partition 0x8001: add the line: ib8001=0x0001, ipoib : ALL=full;"
    )
    assert refusal(LinkError, file, "\n\np=1 : ALL=full;") == (
        f"{file}:3: partition p (0x8001) has no broadcast group: put into partitions.conf: "
        "ib8001=0x0001, ipoib : ALL=full;"
    )


def test_the_place_of_a_group_is_that_of_the_definition_that_made_it(file: Path) -> None:
    text = "p=1 : ALL=full;\n\nq=1, ipoib : ALL=full;\nr=1, ipoib, mtu=5 : ALL=full;\n"
    assert refusal(UsageError, file, text, qkey=1).startswith(f"{file}:3: ")


def test_a_link_that_the_port_cannot_carry_is_refused_with_its_line(file: Path) -> None:
    file.write_text("p=1, ipoib, mtu=5 : ALL=full;")
    small = replace(PORT, active_mtu_bytes=1024)
    with pytest.raises(LinkError, match=r":1: soft:eth0/1 carries .* of 1024, not 4096"):
        link_params(small, pkey=PKey(1), partitions=file)


@pytest.mark.parametrize(
    ("asked", "link"), [(None, 2048), (2044, 2048), (3000, 4096), (4093, 4097), (8924, 8928)]
)
def test_an_mtu_beyond_infinibands_has_the_length_that_was_asked_for(
    asked: int | None, link: int
) -> None:
    anyway = replace(PORT, active_mtu_bytes=4096, datagram_bytes=8928)
    assert link_params(anyway, pkey=PKey(1), mtu_bytes=asked).mtu_bytes == link


def test_no_datagram_is_longer_than_the_built_in_hcas_buffer() -> None:
    anyway = replace(PORT, active_mtu_bytes=4096, datagram_bytes=8928)
    with pytest.raises(UsageError, match="too large for datagram mode: choose at most 9140"):
        link_params(anyway, pkey=PKey(1), mtu_bytes=9141)


GROUPS = """p=1, ipoib, sl=1 : ALL=full,
mgid=ff12:401b::1:2, {}
mgid=ff12:601b::9
mgid=ff12::7, sl=5
ALL=full;"""


def test_an_ip_group_may_have_a_service_level_and_a_class_of_its_own(file: Path) -> None:
    params = ask(file, GROUPS.format("sl=4, TClass=8, FlowLabel=3"))
    assert params.groups == (GroupParams(Gid.parse("ff12:401b:8001::1:2"), 4, 8, 3),)
    assert params.sl == 1


def test_an_ip_group_with_a_q_key_of_its_own_is_refused(file: Path) -> None:
    text = GROUPS.format("Q_Key=0x77")
    assert refusal(UsageError, file, text).startswith(
        f"{file}:2: group ff12:401b:8001::1:2 has Q_Key 0x77 and the broadcast group 0xb1b"
    )


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="gone: No such file"):
        link_params(PORT, pkey=PKey(1), partitions=tmp_path / "gone")
    assert NotPermitted.exit_code != UsageError.exit_code
