# SPDX-License-Identifier: BSD-2-Clause
"""Files, options and requests under drawn text: each is a value, or a `UsageError` of one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.addr import Gid, HwAddr, PKey
from ipoibu.base.errors import UsageError
from ipoibu.daemon.config import interface_config as config
from ipoibu.daemon.config import parsers
from ipoibu.daemon.config.options import BY_NAME
from ipoibu.daemon.control.server import _parse_untrusted
from ipoibu.fabric.mesh.peer_list import read_peers
from ipoibu.fabric.partition import conf

WORDS = st.sampled_from(
    [
        *(
            "Default",
            "rapid",
            "0x7fff",
            "=0x8001",
            ",",
            "ipoib",
            "mtu=4",
            "rate=3",
            "sl=1",
            "scope=2",
        ),
        *("Q_Key=0x1b1b", "defmember=full", ":", "ALL", "=full", "=limited", "SELF", ";", "indx0"),
        *("mgid=ff12:401b::1", "#", "\n", "10.0.0.1/24", "fd00::1/64", "default", "via=", "%"),
        *("[::1]:7", "host.example", ":70000", "loss=0.5", "dup=", "nan", "seed=-1", "on", "off"),
        *("auto", "0x1_0", "\x00", "\ud800", "=", '"', "'", "[", "]", "{", "}"),
    ]
)
texts = st.text(max_size=60) | st.lists(WORDS, max_size=25).map("".join)
words = texts | st.lists(WORDS, max_size=25).map(" ".join)

PARSERS: dict[str, Callable[[str], object]] = {
    "GID": Gid.parse,
    "P_Key": PKey.parse,
    "address": parsers.parse_address,
    "busy poll": parsers.parse_busy_poll,
    "faults": parsers.parse_faults,
    "file": parsers.parse_file,
    "hardware address": HwAddr.parse,
    "peer": parsers.parse_peer,
    "route": parsers.parse_route,
    "sandbox": parsers.parse_sandbox,
    "switch": parsers.parse_switch,
    "user": parsers.parse_user,
}


def _refusal(parse: Callable[[], object]) -> str:
    """The text of the refusal; any other exception passes through."""
    try:
        parse()
    except UsageError as error:
        return str(error)
    return "none"


@pytest.mark.parametrize("name", PARSERS)
@given(text=words)
def test_an_option_is_a_value_or_refused_in_one_line(name: str, text: str) -> None:
    assert "\n" not in _refusal(lambda: PARSERS[name](text))


@given(text=words)
def test_a_partitions_conf_is_read_or_refused(text: str) -> None:
    assert _refusal(lambda: conf.parse(text))


@given(raw=st.binary(max_size=200) | words.map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_a_list_of_peers_is_read_or_refused(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert _refusal(lambda: read_peers(_file(tmp_path_factory, raw)))


values = st.recursive(
    st.booleans() | st.integers(-(2**70), 2**70) | words | st.floats(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_a_configuration_or_refused(
    raw: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert _refusal(lambda: config.faults(_file(tmp_path_factory, raw)))


@given(key=st.sampled_from(sorted(BY_NAME)), value=values)
def test_a_configuration_with_odd_values_is_read_or_refused(
    key: str, value: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    raw = f"{key} = {json.dumps(value)}\n".encode("utf-8", "surrogatepass")
    file = _file(tmp_path_factory, raw)
    assert _refusal(lambda: config.faults(file))
    assert _refusal(lambda: config.InterfaceConfig.build("ib0", {"device": "soft:eth0"}, file))


@given(raw=st.binary(max_size=200) | values.map(lambda value: json.dumps(value).encode()))
def test_a_line_of_the_control_socket_is_a_request_or_refused(raw: bytes) -> None:
    assert _refusal(lambda: _parse_untrusted(raw))


def _file(factory: pytest.TempPathFactory, raw: bytes) -> Path:
    path = factory.getbasetemp() / "fuzzed"
    path.write_bytes(raw)
    return path
