# SPDX-License-Identifier: BSD-2-Clause
"""partitions.conf as OpenSM 3.3 reads it; opensm(8), "PARTITION CONFIGURATION", and its examples."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, PKey
from ipoibu.base.errors import IpoibuError, LinkError, UsageError
from ipoibu.base.ib import PartitionParams, PortInfo
from ipoibu.fabric.partition.conf import parse, read
from ipoibu.fabric.partition.model import Group, Member, MemberType, Partition, Ports
from ipoibu.proto.sa.partition_line import partition_line
from ipoibu.wire.mgid import broadcast

LIMITED, FULL, BOTH = MemberType.LIMITED, MemberType.FULL, MemberType.BOTH
GID: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")
PORT: Final = PortInfo("soft:eth0", 1, GID, GID.interface_id, 4096, "Ethernet", "eth0")


def only(text: str, pkey: int = 0x8001) -> Partition:
    """Parse a file without warnings and return its partition of `pkey`."""
    partitions = parse(text)
    assert partitions.warnings == ()
    return partitions.partition(PKey(pkey))


def one_group(text: str, pkey: int = 0x8001) -> Group:
    [group] = only(text, pkey).groups
    return group


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert str(caught.value).startswith("partitions.conf:")
    return str(caught.value)


# -- partitions and their groups -------------------------------------------------------------------


def test_the_line_that_opensm_ships_makes_the_default_partition_one_for_ipoib() -> None:
    partition = only("Default=0x7fff, ipoib : ALL=full;", 0xFFFF)
    assert (partition.name, partition.pkey) == ("Default", 0x7FFF)
    assert partition.groups == [Group(broadcast(PKey(0xFFFF)), 0x0B1B, 2048, 3, 0, 0, 0)]
    assert partition.membership(0x123) is FULL


def test_without_a_rule_the_default_partition_has_limited_members_and_no_group() -> None:
    partition = only("", 0xFFFF)
    assert partition.groups == []
    assert partition.membership(0x123) is LIMITED
    assert partition.membership(0x123, is_sm=True) is FULL


def test_every_group_flag_sets_its_parameter() -> None:
    text = "p=1, ipoib, mtu=5, rate=7, sl=3, scope=5, Q_Key=0xb1b0, TClass=6, FlowLabel=7 : ALL;"
    expected = Group(broadcast(PKey(0x8001), 5), 0xB1B0, 4096, 7, 3, 6, 7)
    assert one_group(text) == expected
    assert expected.scope == 5


@pytest.mark.parametrize(("code", "size"), [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)])
def test_an_mtu_is_the_code_of_the_specification(code: int, size: int) -> None:
    assert one_group(f"p=0x1,ipoib,mtu={code}:;").mtu_bytes == size


def test_several_scopes_make_several_groups() -> None:
    partition = only("p=0x1, ipoib, scope=5, scope=2, scope=0xe : ALL=full;")
    assert [group.scope for group in partition.broadcast_groups()] == [2, 5, 0xE]
    assert partition.groups[0].mgid == broadcast(PKey(0x8001), 2)


def test_without_the_ipoib_flag_there_is_no_broadcast_group() -> None:
    assert only("p=0x1, mtu=5 : ALL=full;").groups == []


@pytest.mark.parametrize("pkey", ["1", "0x1", "0x0001", "0x8001", "32769", "01"])
def test_of_a_pkey_the_low_15_bits_count(pkey: str) -> None:
    assert only(f"p={pkey}, ipoib : ALL=full;").pkey == 1


def test_a_name_may_be_left_out() -> None:
    partition = only("0x8001, ipoib : ALL=full;")
    assert (partition.name, len(partition.groups)) == ("0001", 1)
    assert only("=0x8001, ipoib : ALL;").pkey == 1


def test_a_partition_without_a_pkey_takes_the_next_free_one_and_a_warning() -> None:
    partitions = parse("a=0x1 : ALL;\nb, ipoib : ALL;\nc : ALL;\nb : SELF=full;\n")
    assert [(part.name, int(part.pkey)) for part in partitions] == [
        ("Default", 0x7FFF),
        ("a", 1),
        ("b", 2),
        ("c", 3),
    ]
    assert [warning.split(":")[1] for warning in partitions.warnings] == ["2", "3"]
    assert partitions.partition(PKey(2)).membership(9, is_sm=True) is FULL


def test_the_name_default_is_the_default_partition() -> None:
    assert only("Default, ipoib : ALL=full;", 0xFFFF).pkey == 0x7FFF


def test_definitions_of_one_pkey_are_one_partition_and_the_first_name_and_group_stay() -> None:
    partition = only("a=0x1, ipoib, mtu=5 : 0x1;\nb=0x8001, ipoib, mtu=4 : 0x2=full;\n")
    assert partition.name == "a"
    assert [group.mtu_bytes for group in partition.groups] == [4096]
    assert (partition.membership(1), partition.membership(2), partition.membership(3)) == (
        LIMITED,
        FULL,
        None,
    )


def test_indx0_puts_the_key_first() -> None:
    assert only("p=0x1, indx0, ipoib : ALL;").is_first
    assert not only("p=0x1, ipoib : ALL;").is_first


def test_flags_may_be_abbreviated_as_opensm_compares_them() -> None:
    # "m" is mtu and "s" is scope, in OpenSM's order of comparing; "i" is ipoib
    group = one_group("p=0x1, i, m=5, r=7, sl=3, Q=5 : ALL=f;")
    assert (group.mtu_bytes, group.rate, group.sl, group.qkey) == (4096, 7, 3, 5)
    assert one_group("p=0x1, ipoib, s=5 : ALL;").scope == 5


# -- members ---------------------------------------------------------------------------------------


def test_members_are_limited_unless_they_are_said_to_be_full_or_both() -> None:
    partition = only("p=0x1 : 0x10, 0x11=full, 0x12=limited, 0x13=both, 20=full;")
    memberships = [partition.membership(guid) for guid in (0x10, 0x11, 0x12, 0x13, 20, 0x15)]
    assert memberships == [LIMITED, FULL, LIMITED, BOTH, FULL, None]


def test_the_default_membership_is_for_those_that_say_nothing() -> None:
    partition = only("p=0x1, defmember=full : 0x10, 0x11=limited;\np=0x1 : 0x12;")
    assert [partition.membership(guid) for guid in (0x10, 0x11, 0x12)] == [FULL, LIMITED, LIMITED]
    assert only("p=1,defmember=both:0x10;").membership(0x10) is BOTH


def test_a_later_rule_overrides_an_earlier_one() -> None:
    partition = only("p=0x1 : ALL=limited, 0x10=full, SELF=full;")
    assert (partition.membership(0x10), partition.membership(0x11)) == (FULL, LIMITED)
    assert partition.membership(0x11, is_sm=True) is FULL
    assert only("p=0x1 : 0x10=full, ALL;").membership(0x10) is LIMITED


def test_the_words_for_many_ports() -> None:
    partition = only(
        "p=1: ALL, ALL_CAS=full, ALL_SWITCHES=full, ALL_ROUTERS=full, SELF=full, NONE;"
    )
    assert [member.ports for member in partition.members] == [
        Ports.ALL,
        Ports.ALL_CAS,
        Ports.ALL_SWITCHES,
        Ports.ALL_ROUTERS,
        Ports.SELF,
    ]
    assert only("p=1: ALL_SWITCHES=full;").membership(0x10) is None
    assert only("p=1: ALL_CAS=full;").membership(0x10) is FULL


def test_an_empty_list_has_no_members() -> None:
    assert only("p=0x1, ipoib : ;").members == []


# -- mgid= lines -----------------------------------------------------------------------------------


def test_the_groups_of_the_manual() -> None:
    text = """
        Default=0x7fff,ipoib:
               mgid=ff12:401b::0707,sl=1 # random IPv4 group
               mgid=ff12:601b::16    # MLDv2-capable routers
               mgid=ff12:401b::16    # IGMP
               mgid=ff12:601b::2     # All routers
               mgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2 # random group
               ALL=full;
    """
    partition = only(text, 0xFFFF)
    assert [str(group.mgid) for group in partition.groups] == [
        "ff12:401b:ffff::ffff:ffff",
        "ff12:401b:ffff::707",
        "ff12:601b:ffff::16",
        "ff12:401b:ffff::16",
        "ff12:601b:ffff::2",
        "ff12::1",
    ]
    assert partition.groups[1] == Group(Gid.parse("ff12:401b:ffff::707"), 0x0B1B, 2048, 3, 1, 0, 0)
    assert partition.groups[5] == Group(Gid.parse("ff12::1"), 0xDEADBEEF, 512, 3, 1, 0, 0)
    assert partition.membership(0x10) is FULL
    assert [group.scope for group in partition.broadcast_groups()] == [2]


def test_a_group_inherits_the_flags_of_its_partition_but_the_traffic_class() -> None:
    text = "p=1,ipoib,mtu=5,rate=7,sl=2,Q_Key=9,TClass=4,FlowLabel=8:\nmgid=ff12:401b::5\nALL;"
    assert only(text).groups[1] == Group(Gid.parse("ff12:401b:8001::5"), 9, 4096, 7, 2, 0, 8)


def test_a_scope_overrides_that_of_the_gid() -> None:
    partition = only("p=1,ipoib,scope=5,scope=8:mgid=ff12:401b::5,scope=5,scope=8;")
    assert [str(group.mgid) for group in partition.groups[2:]] == [
        "ff15:401b:8001::5",
        "ff18:401b:8001::5",
    ]


def test_without_a_scope_a_group_gets_scope_2_with_a_warning() -> None:
    partitions = parse("p=1,ipoib:mgid=ff15::9;")
    assert [str(group.mgid) for group in partitions.partition(PKey(1)).groups[1:]] == ["ff12::9"]
    assert "group ff15::9 gets scope 2" in partitions.warnings[0]


def test_an_ip_group_needs_the_broadcast_group_of_its_scope() -> None:
    partitions = parse("p=1,ipoib:mgid=ff12:401b::5,scope=2,scope=5;")
    assert [str(group.mgid) for group in partitions.partition(PKey(1)).groups[1:]] == [
        "ff12:401b:8001::5"
    ]
    assert "there is no broadcast group ff15:401b:8001::ffff:ffff" in partitions.warnings[0]


def test_a_broadcast_group_may_be_given_by_its_gid() -> None:
    partition = only("p=1: ALL=full, mgid=ff15:401b::ffff:ffff,scope=5;")
    assert [group.scope for group in partition.broadcast_groups()] == [5]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("ff12:401b:8002::5", "P_Key 0x8002"),
        ("ff12:401b::5,rate=7", "rate 7"),
        ("ff12:601b::5,mtu=5", "MTU 5"),
    ],
)
def test_an_ip_group_unlike_its_broadcast_group_is_left_out_with_a_warning(
    flags: str, why: str
) -> None:
    partitions = parse(f"p=1,ipoib:\nmgid={flags}\nALL=full;")
    assert len(partitions.partition(PKey(1)).groups) == 1
    [warning] = partitions.warnings
    assert warning.startswith("partitions.conf:2: IP group")
    assert why in warning


@pytest.mark.parametrize(
    ("mgid", "why"), [("fe80::1", "is not a multicast GID"), ("", "is not a GID")]
)
def test_what_is_no_group_is_left_out_with_a_warning(mgid: str, why: str) -> None:
    partitions = parse(f"p=1:\nmgid={mgid},mtu=5\nALL=full;")
    assert partitions.partition(PKey(1)).groups == []
    assert partitions.partition(PKey(1)).membership(1) is FULL
    assert why in partitions.warnings[0]


def test_a_group_takes_the_rest_of_its_line_and_members_go_on_below() -> None:
    partition = only("p=1: 0x10=full, mgid=ff12::9,mtu=5\n0x11=full;")
    assert partition.groups == [Group(Gid.parse("ff12::9"), 0, 4096, 3, 0, 0, 0)]
    assert partition.membership(0x10) is FULL
    assert partition.membership(0x11) is FULL


# -- lines, comments, mistakes ---------------------------------------------------------------------


def test_a_definition_goes_on_over_lines_and_several_fit_one() -> None:
    partitions = parse("# all\na=0x1,ipoib:\n 0x10 ,\n\n 0x11=full; # two\nb=0x2:ALL;c=0x3:0x12;")
    assert partitions.warnings == ()
    a, b, c = (partitions.partition(PKey(number)) for number in (1, 2, 3))
    assert a.members == [Member(0x10, LIMITED), Member(0x11, FULL)]
    assert (b.members, c.members) == ([Member(Ports.ALL, LIMITED)], [Member(0x12, LIMITED)])


def test_blanks_are_allowed_around_everything() -> None:
    tight = parse("p=0x1,ipoib,mtu=5,defmember=full:0x10=full,ALL;")
    wide = parse("  p  =  0x1 ,\tipoib , mtu  = 5 , defmember =full :  0x10 = full ,  ALL  ; ")
    assert list(tight) == list(wide)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("Q_Key=x", "'x' is not a Q_Key"),
        ("TClass=256", "out of range"),
        ("scope=16", "out of range"),
        ("scope=0", "scope 0 is out of range"),
        ("sl=16", "out of range"),
        ("FlowLabel=0x100000", "out of range"),
        ("mut=5", "unknown flag 'mut'"),
        ("defmember=some", "'some' is none of full, limited, both"),
        ("defmember", "None is none of"),
    ],
)
def test_flags_that_opensm_passes_over_are_passed_over_with_a_warning(flag: str, why: str) -> None:
    partitions = parse(f"\np=0x1, ipoib, {flag} : ALL=full;")
    [warning] = partitions.warnings
    assert warning.startswith("partitions.conf:2: ")
    assert why in warning
    assert partitions.partition(PKey(1)).groups == [
        Group(broadcast(PKey(0x8001)), 0x0B1B, 2048, 3, 0, 0, 0)
    ]


def test_a_bad_key_brings_the_default_back_as_opensm_does() -> None:
    partitions = parse("p=0x1, ipoib, Q_Key=5, TClass=5, Q_Key=x, TClass=x : ALL=full;")
    [group] = partitions.partition(PKey(1)).groups
    assert (group.qkey, group.traffic_class, len(partitions.warnings)) == (0x0B1B, 0, 2)


@pytest.mark.parametrize(
    ("flag", "values", "why"),
    [
        ("mtu=5z", (4096, 0x0B1B, 0, 0), "mtu='5z': OpenSM reads 0x5, not the rest"),
        ("Q_Key=5\r", (2048, 5, 0, 0), "not the rest; the line has a CR"),
        ("Q_Key=0x100000007", (2048, 7, 0, 0), "at most 0xffffffff; OpenSM takes 0x7"),
        ("Q_Key=0b11", (2048, 0x0B1B, 0, 0), "'0b11' is not a Q_Key: "),
        ("TClass=300", (2048, 0x0B1B, 0x2C, 0), "a traffic class, 0 to 255; OpenSM takes 0x2c"),
        ("sl=3\v", (2048, 0x0B1B, 0, 3), "OpenSM reads 0x3, not the rest; the line has a U+000B"),
        ("sl=3z", (2048, 0x0B1B, 0, 0), "sl 3z is out of range: a service level, 0 to 15; passed"),
        ("mtu", (2048, 0x0B1B, 0, 0), "mtu has no value; passed over"),
        (
            "\u00a0mtu=5",
            (2048, 0x0B1B, 0, 0),
            "passed over; the line has a U+00A0, which is no blank",
        ),
    ],
)
def test_a_flag_that_opensm_takes_in_part_is_taken_like_that_with_a_warning(
    flag: str, values: tuple[int, ...], why: str
) -> None:
    partitions = parse(f"\np=0x1, ipoib, {flag} : ALL=full;")
    [warning] = partitions.warnings
    assert warning.startswith("partitions.conf:2: ")
    assert why in warning
    [group] = partitions.partition(PKey(1)).groups
    assert (group.mtu_bytes, group.qkey, group.traffic_class, group.sl) == values


@pytest.mark.parametrize(
    ("text", "membership", "why"),
    [
        ("p=0x1:ALL=\u00a0full;", LIMITED, "; the line has a U+00A0, which is no blank to OpenSM"),
        ("p=0x1:ALL=full\r\n,0x10;", LIMITED, "; the line has a CR, which is no blank to OpenSM"),
        ("p=0x1:ALL=;", FULL, "no membership after the equals sign: OpenSM takes full"),
        (
            "p=0x1:ALL=full\nN=0x2:ALL;",
            FULL,
            ":2: a semicolon is missing: the definition that begi",
        ),
        ("p=0x1:" + " " * 5000 + "ALL=full;", FULL, "the line has more than 4094 bytes"),
    ],
)
def test_a_member_of_whom_opensm_thinks_otherwise_than_an_editor_shows(
    text: str, membership: MemberType, why: str
) -> None:
    partitions = parse(text)
    [warning] = partitions.warnings
    assert why in warning
    assert partitions.partition(PKey(1)).membership(0x123) is membership


def test_what_ends_a_line_elsewhere_ends_none_here() -> None:
    """Of a comment, too: these end a line of `str.splitlines`."""
    partitions = parse("p=0x1:ALL=full; # \x0b\x0c\x1c\x85\u2028 q=0x2:\nr=3:ALL;\0x=4:ALL;\n")
    assert partitions.warnings == ()
    assert [int(each.pkey) for each in partitions] == [0x7FFF, 1, 3]


@pytest.mark.parametrize(
    ("members", "has_one"),
    [
        ("ALL=limited, SELF=full", False),
        ("ALL=full", True),
        ("ALL=both", True),
        ("ALL=full, ALL_CAS=limited", False),
        ("ALL=limited, 0x10=full", True),
        ("0x10=full, ALL=limited", False),
        ("NONE", False),
    ],
)
def test_a_partition_without_a_full_member_is_known(members: str, has_one: bool) -> None:
    assert only(f"p=1, ipoib: {members};").has_full_member() is has_one


def test_a_membership_that_nobody_knows_is_limited_with_a_warning() -> None:
    partitions = parse("p=0x1 : 0x10=fully;")
    assert partitions.partition(PKey(1)).membership(0x10) is LIMITED
    assert "'fully'" in partitions.warnings[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Default=0x7fff ipoib ALL=full;", "a colon"),
        ("p=0x1,\nipoib : ALL;", "a colon"),
        ("p=0x10000 : ALL;", "P_Key 0x10000 is out of range"),
        ("p=x : ALL;", "'x' is not a P_Key"),
        ("p=0x1 : 0x;", "'0x' is not a port GUID"),
        ("p=0x1 : FRIENDS=full;", "'FRIENDS' is not a port GUID"),
        ("p=0x1 : 0x0;", "port GUID 0 is none"),
        ("p=0x1 : 0x12345678123456789;", "out of range"),
        ("p=0x1, mtu=0 : ALL;", "mtu 0 is out of range"),
        ("p=0x1, mtu=6 : ALL;", "mtu 6 is out of range"),
        ("p=0x1, mtu=2048 : ALL;", "out of range: a code: 4 is 2048 bytes, 5 is 4096"),
        ("p=0x1, mtu= : ALL;", "'' is not a mtu: a code: 4 is 2048 bytes"),
        ("p=0x1, mtu=0b101 : ALL;", "'0b101' is not a mtu"),
        ("p=0x1, rate=40 : ALL;", "rate 40 is out of range: a code: 3 is 10 Gb/s, 7 is 40"),
        ("p=0x1, rate=23 : ALL;", "rate 23 is out of range"),
        ("p=0b1 : ALL;", "'0b1' is not a P_Key"),
        ("p=0x1:ALL;\r\nq=0x2:ALL;\r\n", ":1: a definition begins with its partition and a colon"),
        ("p=0x1:ALL;\r\n", "; the line has a CR, which is no blank to OpenSM: convert it"),
        ("p=0x1:\r\nALL;", ":1: '\\r' is not a port GUID; the line has a CR"),
        ("p=0x1:ALL;\x0c", "; the line has a U+000C, which is no blank to OpenSM"),
        ("p=0x1:\u00a0ALL;", "is not a port GUID; the line has a U+00A0, which is no blank"),
        ("p=0x1:ALL;#" + "x" * 4083 + "\u00e4", ":1: a definition begins"),  # the rest is a line
        ("#" + "x" * 4094, "; the line has more than 4094 bytes: OpenSM cuts it there"),
        (
            "p=0x1:ALL=full\nq=0x2:ALL;",
            ":2: a semicolon is missing: the definition that begins in line 1 goes on here; 'q'",
        ),
        (
            "p=0x1:ALL=full\n\n0x2,ipoib:ALL;",
            ":3: a semicolon is missing: the definition that begins in line 1 goes on here; 'ipo",
        ),
        ("p=0x1, rate=fast : ALL;", "'fast' is not a rate"),
        ("p=0x1, rate=0 : ALL;", "rate 0 is out of range"),
        ("p=0x1 : ALL;;", "a semicolon needs text before it"),
        ("p=0x1 : ALL\n;", "a semicolon needs text before it"),
        ("p=0x1 : defmember=limited : 0x12;", "is not a port GUID"),
    ],
)
def test_what_opensm_gives_up_is_an_error_with_its_line(text: str, why: str) -> None:
    assert why in refusal(text)


def test_the_line_of_an_error_is_named() -> None:
    assert refusal("a=1:ALL;\n\n# x\nb=2:\n0xZZ;").startswith("partitions.conf:5: ")


@given(st.text("aDp0x1=,:;# \nmgidfultALSE_", max_size=120))
def test_any_text_is_read_or_refused_with_one_line(text: str) -> None:
    try:
        partitions = parse(text)
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017 (most texts are read)
    else:
        assert partitions.partition(PKey(0x7FFF)).name == "Default"


# -- parameters, files, the line to add ------------------------------------------------------------


def test_the_parameters_of_a_link_come_from_the_broadcast_group() -> None:
    text = "p=0x1, ipoib, mtu=5, rate=7, sl=3, Q_Key=0x1234, TClass=6, FlowLabel=7 : ALL;"
    assert only(text).params(PORT) == PartitionParams(PKey(0x8001), 0x1234, 4096, 2, 3, 64, 6, 7, 7)


def test_of_several_scopes_link_local_comes_first_unless_one_is_named() -> None:
    partition = only("p=0x1, ipoib, scope=1, scope=2, scope=5 : ALL;")
    assert partition.params(PORT).scope == 2
    assert partition.params(PORT, scope=5).scope == 5
    assert only("p=0x1, ipoib, scope=8, scope=5 : ALL;").params(PORT).scope == 5
    with pytest.raises(LinkError, match=r"no broadcast group of scope 0x8.*scope=8"):
        partition.params(PORT, scope=8)


def test_b2_a_port_that_cannot_carry_the_mtu_is_refused() -> None:
    """B2."""
    partition = only("p=0x1, ipoib, mtu=5 : ALL;")
    with pytest.raises(LinkError, match="carries an InfiniBand MTU of 1024, not 4096"):
        partition.params(replace(PORT, active_mtu_bytes=1024))


def test_b4_a_partition_that_is_not_for_ipoib_names_the_line_to_add() -> None:
    """B4."""
    with pytest.raises(LinkError, match="ib8001=0x0001, ipoib : ALL=full;"):
        only("p=0x1 : ALL;").params(PORT)
    with pytest.raises(LinkError, match="no partition 0x8009: add the line: ib8009=0x0009, ipoib"):
        parse("").partition(PKey(9))


@pytest.mark.parametrize(
    ("pkey", "scope", "mtu_bytes", "expected"),
    [
        (0xFFFF, None, None, "Default=0x7fff, ipoib : ALL=full;"),
        (0x8001, None, 2048, "ib8001=0x0001, ipoib : ALL=full;"),
        (0x0001, 2, 4096, "ib8001=0x0001, ipoib, mtu=5 : ALL=full;"),
        (
            0x8001,
            5,
            None,
            "ib8001=0x0001, ipoib : ALL=full, mgid=ff15:401b::ffff:ffff, scope=5;",
        ),
    ],
)
def test_the_line_to_add_is_one_that_makes_the_group(
    pkey: int, scope: int | None, mtu_bytes: int | None, expected: str
) -> None:
    assert partition_line(PKey(pkey), scope=scope, mtu_bytes=mtu_bytes) == expected
    params = only(expected, pkey).params(PORT, scope)
    assert params.pkey == PKey(pkey).full
    assert (params.scope, params.mtu_bytes) == (scope or 2, mtu_bytes or 2048)


def test_the_line_to_add_names_the_port() -> None:
    added = partition_line(PKey(0x8001), guid=0x0002C903000E0B72)
    assert added == "ib8001=0x0001, ipoib : 0x0002c903000e0b72=full;"
    assert only(added).membership(0x0002C903000E0B72) is FULL


def test_a_file_is_read_and_its_warnings_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "partitions.conf"
    path.write_bytes(b"# \xe9\np=0x1, ipoib, mut=5 : ALL=full;\n")
    with caplog.at_level(logging.WARNING):
        assert len(read(path).partition(PKey(1)).groups) == 1
    assert caplog.messages == [f"{path}:2: unknown flag 'mut' passed over"]


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IpoibuError, match="No such file"):
        read(tmp_path / "absent")
