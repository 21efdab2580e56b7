# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import PKey
from ipoibu.base.errors import NotPermitted, UsageError
from ipoibu.base.limits import CHILDREN_MAX
from ipoibu.daemon.config.interface_config import InterfaceConfig, faults
from ipoibu.daemon.config.parsers import parse_address, parse_route
from ipoibu.endpoint.config import EndpointConfig

DEVICE = {"device": "soft:eth0"}


def test_a_device_is_enough() -> None:
    config = InterfaceConfig.build("ib0", DEVICE)
    endpoint = config.endpoint
    assert (endpoint.device, endpoint.port) == ("soft:eth0", 1)
    assert (endpoint.pkey, endpoint.mode, endpoint.mtu) == (PKey(0xFFFF), "datagram", None)
    assert (config.address, config.route, endpoint.faults) == ((), (), None)
    assert config.offload
    assert endpoint.busy_poll_us is None
    assert config.cpu_latency is None
    assert endpoint.queues == 1
    assert endpoint.cm_profile == "linux"
    assert endpoint.connection_idle_s == 512


def test_options_are_read_into_values() -> None:
    config = InterfaceConfig.build(
        "ib0.8001",
        {
            "device": "mlx5_0/2",
            "pkey": "0x8001",
            "mtu": "1500",
            "address": ["10.0.0.1/24", "fd00::1/64"],
            "route": ["10.1.0.0/16,via=10.0.0.9", "default,via=fe80::1", "10.2.0.0/16,via=fe80::1"],
            "offload": "off",
            "busy-poll": "50",
            "cpu-latency": "0",
            "queues": "16",
            "cm-profile": "rfc",
            "connection-idle": "60",
            "log-level": "debug",
        },
    )
    endpoint = config.endpoint
    assert not config.offload
    assert endpoint.busy_poll_us == 50
    auto = InterfaceConfig.build("ib0", DEVICE | {"busy-poll": "auto"})
    assert auto.endpoint.busy_poll_us is None
    assert config.cpu_latency == 0
    assert endpoint.queues == 16
    assert config.child(PKey(0x8002), {}).endpoint.queues == 16
    assert endpoint.cm_profile == "rfc"
    assert endpoint.connection_idle_s == 60
    assert (endpoint.device, endpoint.port) == ("mlx5_0", 2)
    assert endpoint.pkey == PKey(0x8001)
    assert endpoint.mtu == 1500
    assert [str(address) for address in config.address] == ["10.0.0.1/24", "fd00::1/64"]
    assert [str(route) for route in config.route] == [
        "10.1.0.0/16,via=10.0.0.9",
        "::/0,via=fe80::1",
        "10.2.0.0/16,via=fe80::1",
    ]
    assert config.logging_level == 10


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("address", "10.0.0.1"),
        ("address", "10.0.0.1/33"),
        ("address", "10.0.0/24"),
        ("address", "fd00::1/129"),
        ("address", "224.0.0.1/24"),
        ("address", "0.0.0.0/0"),
        ("address", "127.0.0.1/8"),
        ("address", ""),
        ("address", "fe80::1%ib0/64"),
        ("route", "10.1.0.1/16"),
        ("route", "10.1.0.0/16,via=x"),
        ("route", "10.1.0.0/16,dev=eth0"),
        ("route", "10.1.0.0/16,via=10.0.0.1,via=10.0.0.2"),
        ("route", "fd00::/64,via=10.0.0.1"),
        ("route", "10.1.0.0/16,via=224.0.0.1"),
        ("route", "default,"),
        ("route", "default,via=fe80::1%ib0"),
        ("pkey", "0x10000"),
        ("pkey", "0x8000"),
        ("pkey", "x"),
        ("mtu", "67"),
        ("mtu", "65521"),
        ("mtu", "2k"),
        ("mtu", "-5"),
        ("mtu", "٣٠٠٠"),
        ("mode", "unreliable"),
        ("mode", "fast"),
        ("device", "soft:"),
        ("device", "rxe0/x"),
        ("faults", "loss=2"),
        ("faults", "thunder=1"),
        ("offload", "maybe"),
        ("cm-profile", "both"),
        ("connection-idle", "1"),
        ("connection-idle", "86401"),
        ("connection-idle", "soon"),
        ("busy-poll", "-1"),
        ("busy-poll", "1000001"),
        ("busy-poll", "1.5"),
        ("busy-poll", "٣"),
        ("cpu-latency", "-1"),
        ("cpu-latency", "1000001"),
        ("cpu-latency", "٣"),
        ("queues", "0"),
        ("queues", "17"),
        ("queues", "two"),
        ("queues", "-1"),
        ("queues", "٣"),
        ("log-level", "loud"),
    ],
)
def test_a_wrong_option_names_itself_and_its_text_on_one_line(key: str, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        InterfaceConfig.build("ib0", DEVICE | {key: text})
    message = str(caught.value)
    assert message.startswith(f"--{key}: ")
    assert "\n" not in message


@pytest.mark.parametrize(
    ("key", "text"),
    [("mode", "connected"), ("peer", "10.0.0.1"), ("peers-file", "/etc/peers"), ("mesh-port", "9")],
)
def test_queues_and_connections_exclude_each_other(key: str, text: str) -> None:
    config = InterfaceConfig.build("ib0", DEVICE | {"queues": "1", key: text})
    assert config.endpoint.queues == 1
    with pytest.raises(UsageError, match=r"^--queues is .* leave --queues out$"):
        InterfaceConfig.build("ib0", DEVICE | {"queues": "2", key: text})


def test_a_word_of_a_choice_may_have_any_case_on_the_command_line_and_in_a_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("device = 'soft:eth0'\nmode = 'Connected'\noffload = 'OFF'\nsandbox = 'Off'\n")
    config = InterfaceConfig.build("ib0", {"log-level": "DEBUG", "dad-ipv4": "On"}, file)
    assert (config.endpoint.mode, config.endpoint.dad_ipv4) == ("connected", "on")
    assert (config.offload, config.logging_level, int(config.sandbox)) == (False, 10, 0)
    with pytest.raises(UsageError, match="'Connected' is no mode"):  # a program says what it means
        EndpointConfig("ib0", "soft:eth0", mode="Connected")


def test_a_device_is_needed() -> None:
    with pytest.raises(UsageError, match="--device"):
        InterfaceConfig.build("ib0", {})


def test_an_empty_list_of_devices_is_no_device(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("device = []\n")
    with pytest.raises(UsageError, match="no device given"):
        InterfaceConfig.build("ib0", {}, file)


def test_a_bad_name_is_refused() -> None:
    with pytest.raises(UsageError, match="too long"):
        InterfaceConfig.build("x" * 16, DEVICE)


@pytest.mark.parametrize(("key", "text"), [("address", "fd00::1/64"), ("route", "fd00::/48")])
def test_ipv6_with_an_mtu_below_1280_contradicts_itself(key: str, text: str) -> None:
    with pytest.raises(UsageError, match="1280"):
        InterfaceConfig.build("ib0", {**DEVICE, "mtu": "1279", key: [text]})
    InterfaceConfig.build("ib0", {**DEVICE, "mtu": "1280", key: [text]})


def test_a_file_has_the_options_keys_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text(
        'device = "soft:eth0"\npkey = 0x8001\nmtu = 1500\n'
        'address = ["10.0.0.1/24", "fd00::1/64"]\nroute = "default,via=10.0.0.9"\n'
        'log-level = "error"\n'
    )
    config = InterfaceConfig.build("ib0", {"mtu": "2044"}, file)
    assert config.endpoint.pkey == PKey(0x8001)
    assert config.endpoint.mtu == 2044
    assert config.address == (
        ipaddress.ip_interface("10.0.0.1/24"),
        ipaddress.ip_interface("fd00::1/64"),
    )
    assert [str(route) for route in config.route] == ["0.0.0.0/0,via=10.0.0.9"]
    assert config.log_level == "error"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("device = 'soft:eth0'\nmtuu = 5", "2: mtuu: unknown key ("),
        ("device = 'soft:eth0'\nmtu = 5", "mtu: '5' is no MTU"),
        ("device = 'soft:eth0'\nmtu = true", "mtu: a string or a number"),
        ("device = 'soft:eth0'\nmtu = [1500]", "mtu: a string or a number"),
        ("device = 'soft:eth0'\naddress = [{}]", "address: a string or a number"),
        ("device = ", "not a TOML file"),
        (f"mtu = {'9' * 5000}", "not a TOML file"),
        (f"pkey = 0x{'f' * 5000}", "pkey: a string or a number"),
        ("device = 'soft:eth0'\n[lab]\nx = 1", "2: lab: unknown key ("),
    ],
)
def test_a_wrong_file_names_itself_and_the_key(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as caught:
        InterfaceConfig.build("ib0", {}, file)
    assert str(caught.value).startswith(f"{file}:")
    assert word in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="No such file"):
        InterfaceConfig.build("ib0", DEVICE, tmp_path / "none")
    (tmp_path / "latin").write_bytes(b"device = '\xff'")
    with pytest.raises(UsageError, match="UTF-8"):
        InterfaceConfig.build("ib0", DEVICE, tmp_path / "latin")

    def closed(self: Path, encoding: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", closed)
    with pytest.raises(NotPermitted):
        InterfaceConfig.build("ib0", DEVICE, tmp_path / "latin")


def test_a_file_that_is_far_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "big"
    with open(file, "wb") as out:
        out.truncate(1 << 21)
    with pytest.raises(UsageError, match="too large"):
        InterfaceConfig.build("ib0", DEVICE, file)


def test_a_number_of_the_file_is_no_ambiguous_p_key(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("pkey = 0x0010")
    assert InterfaceConfig.build("ib0", DEVICE, file).endpoint.pkey == 0x0010


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False)])
def test_a_boolean_of_the_file_is_on_or_off(tmp_path: Path, value: str, expected: bool) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text(f"offload = {value}")
    assert InterfaceConfig.build("ib0", DEVICE, file).offload is expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10.0.0.0/24", "is the address of the network 10.0.0.0/24"),
        ("10.0.0.255/24", "is the broadcast address of 10.0.0.0/24"),
        ("255.255.255.255/32", "is the broadcast address of every network"),
        ("0.0.0.5/24", "no host has an address of 0.0.0.0/8"),
        ("::ffff:10.0.0.1/128", "IPv4-mapped address: give 10.0.0.1 instead"),
    ],
)
def test_an_address_that_no_host_can_have_is_refused_with_the_reason(
    text: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_address(text)


@pytest.mark.parametrize("text", ["10.0.0.0/31", "10.0.0.1/31", "10.0.0.0/32", "fd00::/64"])
def test_an_address_of_a_small_network_and_an_anycast_address_are_accepted(text: str) -> None:
    assert str(parse_address(text)) == text


@given(st.text())
def test_any_address_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        address = parse_address(text)
    except UsageError:
        return
    assert parse_address(str(address)) == address


@given(st.text(alphabet="0123456789abcdef:./,via= defult"))
def test_any_route_text_is_a_route_or_a_usage_error(text: str) -> None:
    try:
        route = parse_route(text)
    except UsageError:
        return
    assert parse_route(str(route)) == route


CHILDREN = """\
device = "soft:eth0"
mode = "connected"

[child.0x8001]
address = ["10.1.0.1/24"]
mtu = 1500

[child.0x8002]
"""


def test_a_file_names_the_children_with_their_own_options(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text(CHILDREN)
    first, second = InterfaceConfig.build("ib0", {}, file).children
    assert (first.name, first.endpoint.parent, first.endpoint.mtu) == ("ib0.8001", "ib0", 1500)
    assert [str(address) for address in first.address] == ["10.1.0.1/24"]
    assert (second.name, second.endpoint.mode, second.address) == ("ib0.8002", "connected", ())
    assert faults(file) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("mtu = 5\nmode = 'fast'\n", ["2: mtu: '5' is no MTU", "3: mode: 'fast' is no mode"]),
        ("# a\n\nmtuu = 5", ["4: mtuu: unknown key"]),
        ("address = [\n '10.0.0.1/24',\n '10.0.0.1',\n]\nmtu = 1", ["2: address: ", "6: mtu: "]),
        ("mtu = 'a=\\n'\n\n[child.0x8001]\nmtu = 1", ["2: mtu: ", "5: child.0x8001.mtu: "]),
        ("[child.0x8001]\n[child.0x1]", ["3: child.0x1: another child has the partition 0x8001"]),
        (
            "[child.0x8001]\nqueues = 2",
            [
                "3: child.0x8001.queues: unknown key"
                " (known: address, dhcp-client-id, guest, guest-queue-pairs, mode, mtu, name, proxy, route)"
            ],
        ),
        ("[child.8001]", ["2: child.8001: P_Key '8001' may be decimal or not"]),
        ("child = 1", ["2: child: a table for each child"]),
        ("child.0x8001 = 1", ["2: child.0x8001: a table is expected"]),
        ("mode = 'connected'\nqueues = 2", ["3: queues: --queues is for datagram mode"]),
        ("[child.0xffff]", ["2: child.0xffff: 0xffff is the partition of ib0 itself"]),
        (
            "mtu = 4000\n[child.0x8001]\nmtu = 600\naddress = 'fd00::1/64'",
            ["4: child.0x8001.mtu: --mtu 600 is too small"],
        ),
    ],
)
def test_each_fault_of_a_file_has_its_line_and_key(
    tmp_path: Path, text: str, lines: list[str]
) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text(f"device = 'soft:eth0'\n{text}")
    found = [str(fault).removeprefix(f"{file}:") for fault in faults(file)]
    assert len(found) == len(lines)
    for fault, line in zip(found, lines, strict=True):
        assert fault.startswith(line)


def test_a_file_that_is_no_toml_has_the_line_of_the_fault(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("mtu = 2044\nmode = \n")
    with pytest.raises(UsageError, match=f"^{file}:2: not a TOML file"):
        faults(file)


def test_a_file_has_no_more_children_than_an_interface(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("".join(f"[child.{0x8001 + n:#x}]\n" for n in range(CHILDREN_MAX + 1)))
    (fault,) = faults(file)
    assert (fault.line, fault.text) == (128, "an interface has at most 127 children")


def test_a_statement_of_thousands_of_lines_costs_no_line_number(tmp_path: Path) -> None:
    file = tmp_path / "ib0.toml"
    file.write_text("address = [\n" + "'10.0.0.1',\n" * 20000 + "]\n")
    (fault,) = faults(file)
    assert (fault.line, fault.key) == (0, "address")


@pytest.mark.parametrize(
    ("name", "pkey"),
    [
        ("ib0.8001", 0x8001),
        ("ib0.FFFE", 0xFFFE),
        ("ib0.0005", 0x8005),  # NetworkManager's name of a P_Key without the bit of full membership
        ("mlx5.1.8001", 0x8001),
        ("ib0", 0xFFFF),
        ("ib0.ipoib", 0xFFFF),
        ("ib0.100000", 0xFFFF),
        ("ib8001", 0xFFFF),
    ],
)
def test_the_name_of_a_child_says_its_partition(tmp_path: Path, name: str, pkey: int) -> None:
    path = tmp_path / f"{name}.toml"
    path.write_text('device = "soft:eth0"\n')
    config = InterfaceConfig.build(name, {"device": "soft:eth0"})
    assert config.endpoint.pkey == pkey
    assert InterfaceConfig.build(name, {}, path).read_again().endpoint.pkey == pkey
    assert faults(path) == []
    assert config.with_values(config.values).endpoint.pkey == pkey


@pytest.mark.parametrize("name", ["ib0.5", "ib0.100", "ib0.32769", "ib0.8000", "ib0.0x8001"])
def test_a_name_that_may_say_a_partition_needs_a_p_key(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="may mean a partition: give --pkey"):
        InterfaceConfig.build(name, {"device": "soft:eth0"})
    path = tmp_path / f"{name}.toml"
    path.write_text('device = "soft:eth0"\n')
    assert len(faults(path)) == 1
    for pkey in (0x8001, 0xFFFF):
        config = InterfaceConfig.build(name, {"device": "soft:eth0", "pkey": hex(pkey)})
        assert config.endpoint.pkey == pkey


def test_children_of_a_file_have_different_names(tmp_path: Path) -> None:
    path = tmp_path / "ib0.toml"
    text = "device = 'soft:eth0'\n[child.0x8001]\nname = 'a'\n[child.0x8002]\nname = '{}'\n"
    path.write_text(text.format("b"))
    config = InterfaceConfig.build("ib0", {}, path)
    assert [child.name for child in config.children] == ["a", "b"]
    for name in ("a", "ib0"):
        path.write_text(text.format(name))
        (fault,) = faults(path)
        assert (fault.line, fault.key) == (5, "child.0x8002.name")


def test_a_p_key_that_contradicts_the_name_is_refused(tmp_path: Path) -> None:
    options = {"device": "soft:eth0", "pkey": "0x8002"}
    with pytest.raises(UsageError, match=r"ib0.8001 says partition 0x8001, but --pkey is 0x8002"):
        InterfaceConfig.build("ib0.8001", options)
    limited = InterfaceConfig.build("ib0.8001", {**options, "pkey": "0x0001"})
    assert limited.endpoint.pkey == 0x0001
    path = tmp_path / "ib0.8001.toml"
    path.write_text('device = "soft:eth0"\npkey = 0x8002\n')
    assert [(fault.line, fault.key) for fault in faults(path)] == [(2, "pkey")]
    with pytest.raises(UsageError, match="but pkey is 0xffff"):
        EndpointConfig("ib0.8001", "soft:eth0")
