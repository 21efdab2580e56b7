# SPDX-License-Identifier: BSD-2-Clause
"""Addresses as values: A1-A6, E5, E7."""

from __future__ import annotations

import dataclasses
from typing import Final

import pytest

from ipoibu.base.addr import MULTICAST_QPN, Gid, HwAddr, PKey, Qpn
from ipoibu.base.errors import IpoibuError, UsageError

RAW: Final = bytes.fromhex("80000048fe8000000000000002155dfffd33ff0b")
GID: Final = Gid.parse("fe80::215:5dff:fd33:ff0b")


class TestGid:
    def test_it_has_16_bytes(self) -> None:
        for length in (0, 15, 17, 20):
            with pytest.raises(ValueError, match="a GID has 16 bytes"):
                Gid(bytes(length))

    def test_it_reads_and_prints_like_an_ipv6_address(self) -> None:
        assert GID.raw.hex() == "fe8000000000000002155dfffd33ff0b"
        assert str(GID) == "fe80::215:5dff:fd33:ff0b"
        assert Gid.parse("FE80:0:0:0:0215:5DFF:FD33:FF0B") == GID
        assert str(Gid.parse("::ffff:c000:201")) == "::ffff:192.0.2.1"
        assert Gid.parse("::ffff:192.0.2.1") == Gid.parse("::ffff:c000:201")

    @pytest.mark.parametrize(
        "text", ["", "fe80", "10.0.0.1", "fe80::1/64", "fe80::g", "fe80::1 ", "1:2:3:4:5:6:7:8:9"]
    )
    def test_other_words_are_a_usage_error(self, text: str) -> None:
        with pytest.raises(UsageError, match="is not a GID"):
            Gid.parse(text)

    def test_a3_its_low_half_is_the_port_guid(self) -> None:
        """A3."""
        assert GID.interface_id.hex() == "02155dfffd33ff0b"

    def test_it_is_multicast_if_it_begins_with_ff(self) -> None:
        assert Gid.parse("ff12:401b:ffff::1").is_multicast
        assert not GID.is_multicast

    def test_it_is_a_frozen_ordered_key(self) -> None:
        other = Gid.parse("fe80::215:5dff:fd33:ff0c")
        assert other > GID
        assert {GID: 1}[Gid(bytes(GID.raw))] == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            GID.raw = bytes(16)  # type: ignore[misc]


class TestQpn:
    @pytest.mark.parametrize("value", [-1, 0x1000000])
    def test_it_has_24_bits(self, value: int) -> None:
        with pytest.raises(ValueError, match="24 bits"):
            Qpn(value)

    def test_it_prints_as_six_hex_digits(self) -> None:
        assert (str(Qpn(0x48)), repr(Qpn(0)), f"{Qpn(MULTICAST_QPN)}") == (
            "0x000048",
            "0x000000",
            "0xffffff",
        )

    def test_e5_the_multicast_queue_pair_is_all_ones(self) -> None:
        """E5."""
        assert Qpn(MULTICAST_QPN) == 0xFFFFFF


class TestPKey:
    @pytest.mark.parametrize("value", [-1, 0x10000])
    def test_it_has_16_bits(self, value: int) -> None:
        with pytest.raises(ValueError, match="16 bits"):
            PKey(value)

    @pytest.mark.parametrize(
        ("text", "value"),
        [("0xffff", 0xFFFF), ("0x0001", 1), ("32769", 0x8001), ("0X7FFF", 0x7FFF)],
    )
    def test_it_reads_hexadecimal_and_decimal(self, text: str, value: int) -> None:
        assert PKey.parse(text) == value

    @pytest.mark.parametrize(
        "text", ["", "x", "0x", "0x10000", "-1", "65536", "1.5", "ffff", "0x12 34"]
    )
    def test_other_words_are_a_usage_error(self, text: str) -> None:
        with pytest.raises(UsageError, match=r"is not a P_Key \(expected 0x0001..0xffff\)"):
            PKey.parse(text)

    @pytest.mark.parametrize("text", ["8001", "10", "9999", "0100"])
    def test_digits_that_may_be_hexadecimal_are_refused_with_both_readings(self, text: str) -> None:
        with pytest.raises(UsageError, match=f"write 0x{text} or "):
            PKey.parse(text)

    @pytest.mark.parametrize("text", ["0", "0x8000", "32768"])
    def test_a_key_of_zero_low_bits_is_a_usage_error(self, text: str) -> None:
        with pytest.raises(UsageError, match="its low 15 bits are zero"):
            PKey.parse(text)

    def test_e7_full_membership_is_bit_15(self) -> None:
        """E7."""
        assert PKey(0x8001).is_full
        assert not PKey(0x7FFF).is_full
        assert PKey(0x7FFF).full == PKey(0xFFFF).full == PKey(0xFFFF)
        assert isinstance(PKey(1).full, PKey)

    def test_it_prints_as_four_hex_digits(self) -> None:
        assert (str(PKey(1)), repr(PKey(0xFFFF))) == ("0x0001", "0xffff")


class TestHwAddr:
    def test_a1_it_is_flags_queue_pair_and_gid(self) -> None:
        """A1."""
        hwaddr = HwAddr.unpack(RAW)
        assert (hwaddr.flags, hwaddr.qpn, hwaddr.gid) == (0x80, Qpn(0x48), GID)
        assert hwaddr.pack() == RAW

    @pytest.mark.parametrize("length", [0, 6, 19, 21])
    def test_a1_it_has_20_bytes(self, length: int) -> None:
        """A1."""
        with pytest.raises(ValueError, match="a hardware address has 20 bytes"):
            HwAddr.unpack((RAW * 2)[:length])

    def test_a2_its_flags_are_zero_unless_given(self) -> None:
        """A2."""
        assert HwAddr(Qpn(0x48), GID).pack() == b"\0" + RAW[1:]

    def test_a6_hosts_are_compared_without_the_flags(self) -> None:
        """A6."""
        rc, plain = HwAddr.unpack(RAW), HwAddr(Qpn(0x48), GID)
        assert rc != plain
        assert rc.same_queue_pair(plain)
        assert plain.same_queue_pair(rc)

    def test_a5_a_new_queue_pair_is_another_host(self) -> None:
        """A5."""
        assert not HwAddr(Qpn(0x48), GID).same_queue_pair(HwAddr(Qpn(0x49), GID))

    def test_a_new_gid_is_another_host(self) -> None:
        other = Gid.parse("fe80::215:5dff:fd33:ff0c")
        assert not HwAddr(Qpn(0x48), GID).same_queue_pair(HwAddr(Qpn(0x48), other))

    def test_it_prints_and_reads_as_ip_link_writes_it(self) -> None:
        text = "80:00:00:48:fe:80:00:00:00:00:00:00:02:15:5d:ff:fd:33:ff:0b"
        assert str(HwAddr.unpack(RAW)) == text
        assert HwAddr.parse(text) == HwAddr.parse(text.upper()) == HwAddr.unpack(RAW)

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "00:15:5d:33:ff:0b",
            "80:00:00:48:fe:80:00:00:00:00:00:00:02:15:5d:ff:fd:33:ff",
            "80:00:00:48:fe:80:00:00:00:00:00:00:02:15:5d:ff:fd:33:ff:0b:00",
            "80:00:00:48:fe:80:00:00:00:00:00:00:02:15:5d:ff:fd:33:ff:0g",
            "80:00:00:48:fe:80:00:00:00:00:00:00:02:15:5d:ff:fd:33:ff:0b\n",
            RAW.hex(),
        ],
    )
    def test_other_words_are_a_usage_error(self, text: str) -> None:
        with pytest.raises(UsageError, match="is not a 20-byte hardware address"):
            HwAddr.parse(text)


def test_a_hashed_guid_is_fnv_1a_of_the_whole_gid() -> None:
    # The hash of 16 zero bytes, computed by another program.
    assert Gid(bytes(16)).hashed_guid.hex() == "88201fb960ff6465"
    assert Gid.parse("2001:db8::1").hashed_guid != Gid.parse("2001:db8:1::1").hashed_guid


def test_a_usage_error_ends_the_command_line_with_2() -> None:
    with pytest.raises(IpoibuError) as caught:
        PKey.parse("0")
    assert caught.value.exit_code == 2
