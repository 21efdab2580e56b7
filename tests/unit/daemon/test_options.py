# SPDX-License-Identifier: BSD-2-Clause
"""The table of options, against the configurations that it fills and the page that it makes."""

from __future__ import annotations

import dataclasses
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import Mac, PKey
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import CHILDREN_MAX
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.options import OPTIONS, Option
from ipoibu.endpoint.config import CM_PROFILES, Conflict, EndpointConfig
from ipoibu.endpoint.dhcp_config import DhcpConfig
from ipoibu.fabric.base import MeshOptions
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.proto.rc.connection import Profile
from tests.interpreter import ROOT, run

PARTS = {
    "": InterfaceConfig,
    "endpoint": EndpointConfig,
    "mesh": MeshOptions,
    "dhcp": DhcpConfig,
}
each_option = pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)

# These go together, and exclude other options.
ETHERNET = {"ethernet", "guest", "guest-queue-pairs", "vlan"}
ALONE = {"queues", "rail-mode", "allmulticast"} | ETHERNET

# No built-in HCA without a subnet administrator can have these.
DEVICES = {"allmulticast": "mlx5_0"}


@pytest.mark.parametrize(
    "option", [it for it in OPTIONS if it.name not in ETHERNET], ids=lambda option: option.name
)
def test_an_option_fills_the_field_that_it_names(option: Option) -> None:
    part, _, name = option.field.rpartition(".")
    assert name in {field.name for field in dataclasses.fields(PARTS[part])}
    texts = {"device": DEVICES.get(option.name, "soft:eth0"), option.name: option.example}
    if part == "dhcp":
        texts["address"] = "dhcp"
    config = InterfaceConfig.build("ib0", texts)
    endpoint = config.endpoint
    target = {"": config, "endpoint": endpoint, "mesh": endpoint.mesh, "dhcp": endpoint.dhcp}[part]
    value = option.read(option.example)
    if option.name == "device":  # the first of several; the others are `backups`
        assert (endpoint.device, endpoint.port) == value
    else:
        assert getattr(target, name) == ((value,) if option.several else value)


def test_the_options_of_the_hand_off_fill_one_field() -> None:
    guests = ["52:54:00:12:34:56=10.0.0.7,fd00::7", "52:54:00:12:34:56=10.0.0.8"]
    texts = {"device": "soft:eth0", "ethernet": "on", "guest": guests}
    config = InterfaceConfig.build("ib0", texts)
    ips = frozenset(ip_address(it) for it in ("10.0.0.7", "fd00::7", "10.0.0.8"))
    assert config.endpoint.ethernet == EthernetConfig({Mac.parse("52:54:00:12:34:56"): ips})
    child = config.child(PKey(0x8001), {})
    assert child.endpoint.ethernet == EthernetConfig()
    config = InterfaceConfig.build("ib0", {**texts, "guest-queue-pairs": "7"})
    assert config.endpoint.ethernet == EthernetConfig({Mac.parse("52:54:00:12:34:56"): ips}, 7)
    child = config.child(PKey(0x8001), {})
    assert child.endpoint.ethernet == EthernetConfig(queue_pairs=7)
    off = InterfaceConfig.build("ib0", {"device": "soft:eth0", "ethernet": "off"})
    assert off.endpoint.ethernet is None


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ({"guest": ["52:54:00:12:34:56=10.0.0.7"]}, "--guest is for the guests behind a TAP"),
        ({"vlan": ["10=0x8001"]}, "--vlan is for the guests behind a TAP"),
        ({"ethernet": "on", "vlan": ["0=0x8001"]}, "--vlan: '0=0x8001' is no VLAN with"),
        ({"ethernet": "on", "vlan": ["4095=0x8001"]}, "--vlan: '4095=0x8001' is no VLAN with"),
        ({"ethernet": "on", "vlan": ["0x8001"]}, "--vlan: '0x8001' is no VLAN with its partition"),
        ({"ethernet": "on", "vlan": ["10=0x8000"]}, "--vlan: "),
        ({"ethernet": "on", "vlan": ["10=1", "10=2"]}, "--vlan: VLAN 10 is given 2 times"),
        ({"ethernet": "on", "vlan": ["1=1", "2=0x8001"]}, "--vlan: partition 0x8001 is given 2"),
        ({"ethernet": "on", "vlan": ["1=0xffff"]}, "--vlan: 0xffff is the partition of ib0 itself"),
        (
            {"ethernet": "on", "vlan": [f"{it}={it:#06x}" for it in range(1, CHILDREN_MAX + 2)]},
            f"more than {CHILDREN_MAX} times --vlan",
        ),
        ({"guest-queue-pairs": "4"}, "--guest-queue-pairs is for the guests behind a TAP"),
        (
            {"ethernet": "on", "guest-queue-pairs": "1025"},
            "--guest-queue-pairs: '1025': expected 0 to 1024 queue pairs",
        ),
        (
            {"ethernet": "on", "address": ["10.0.0.1/24"]},
            "--ethernet: the guests have the addresses",
        ),
        ({"ethernet": "on", "address": ["dhcp"]}, "--ethernet: the guests have the addresses"),
        ({"ethernet": "on", "route": ["default,via=10.0.0.9"]}, "--ethernet: the guests have the"),
        ({"ethernet": "on", "proxy": ["routes"]}, "--ethernet: the guests answer for themselves"),
        ({"ethernet": "on", "tun": "attach"}, "--ethernet makes a TAP of its own"),
        ({"ethernet": "on", "queues": "2"}, "--ethernet has one queue: "),
        ({"ethernet": "on", "guest": ["10.0.0.7"]}, "--guest: '10.0.0.7' is no guest (expected"),
        ({"ethernet": "on", "guest": ["52:54:00=10.0.0.7"]}, "--guest: '52:54:00' is not a MAC"),
        (
            {"ethernet": "on", "guest": ["01:00:5e:00:00:01=10.0.0.7"]},
            "01:00:5e:00:00:01 is not the",
        ),
    ],
)
def test_the_hand_off_excludes_what_guests_do_themselves(texts: Any, error: str) -> None:
    with pytest.raises(UsageError) as caught:
        InterfaceConfig.build("ib0", {"device": "soft:eth0", **texts})
    assert str(caught.value).startswith(error)


@each_option
def test_a_child_inherits_what_the_table_says(option: Option) -> None:
    texts = {"device": DEVICES.get(option.name, "soft:eth0"), option.name: option.example}
    texts |= {"ethernet": "on"} if option.name in ETHERNET else {}
    child = InterfaceConfig.build("ib0", texts).child(PKey(0x8001), {})
    assert (option.name in child.values) == option.is_inherited


def test_a_child_has_its_parents_endpoint_but_for_what_is_its_own() -> None:
    texts = {option.name: option.example for option in OPTIONS if option.name not in ALONE}
    parent = InterfaceConfig.build("ib0", texts)
    own = {
        "mode": "datagram",
        "mtu": "1400",
        "address": ["10.0.0.2/24"],
        "dhcp-client-id": "guid",
        "route": ["10.8.0.0/16"],
        "proxy": ["10.1.0.0/16"],
    }
    child = parent.child(PKey(0x0002), own)
    assert child.endpoint == dataclasses.replace(
        parent.endpoint,
        name="ib0.8002",
        pkey=PKey(0x8002),
        mode="datagram",
        mtu=1400,
        parent="ib0",
        rail_monitor=(),
    )
    assert set(own) | {"guest", "guest-queue-pairs"} == {
        it.name for it in OPTIONS if "child" in it.commands
    }


def test_no_two_options_share_a_name_or_a_field() -> None:
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert len({option.field for option in OPTIONS}) == len(OPTIONS)


def test_the_page_of_options_is_what_the_table_says() -> None:
    run(["docs/make/list_options.py", "--check"])


def test_the_page_of_options_has_examples_that_work(tmp_path: Path) -> None:
    page = (ROOT / "docs/reference/options.md").read_text(encoding="utf-8")
    assert max(map(len, page.splitlines())) <= 100
    examples = [block.split("```")[0] for block in page.split("```toml\n")[1:]]
    file = tmp_path / "ib0.toml"
    together = (it for it in examples if it.split()[0] not in ALONE)
    file.write_text("\n".join(together))
    config = InterfaceConfig.build("ib0", {}, file)
    assert set(config.values) == {option.name for option in OPTIONS} - ALONE
    assert len(tomllib.loads("".join(examples))) == len(OPTIONS)


def test_the_profiles_are_those_of_the_policy() -> None:
    assert set(CM_PROFILES.words) == {profile.value for profile in Profile}


def test_a_conflict_names_fields_to_a_program_and_options_to_a_user() -> None:
    with pytest.raises(
        Conflict, match=r"^queues is for datagram mode, not connected mode: "
    ) as own:
        EndpointConfig("ib0", "soft:eth0", queues=2, mode="connected")
    texts = {"device": "soft:eth0", "queues": "2", "mode": "connected"}
    with pytest.raises(UsageError) as users:
        InterfaceConfig.build("ib0", texts)
    assert str(users.value) == str(own.value).replace("queues", "--queues")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"mode": "unreliable"}, "'unreliable' is no mode: expected datagram or connected"),
        ({"cm_profile": "both"}, "'both' is no profile of connected mode: expected linux or rfc"),
        ({"mtu": 67, "mode": "connected"}, "MTU 67 does not fit: choose 68 to 65520 bytes"),
        ({"mtu": 65_521}, "MTU 65521 does not fit: choose 68 to 65520 bytes"),
        ({"connection_idle_s": 1.5}, "connection_idle_s 1.5: expected 2 to 86400 seconds"),
        ({"connection_idle_s": float("nan")}, "connection_idle_s nan: expected 2 to 86400 seconds"),
        ({"queues": 17}, "queues 17: expected 1 to 16 queues"),
        ({"mtu": 575, "dhcp": DhcpConfig()}, "DHCP needs an MTU of 576: raise mtu"),
        ({"mtu": 1279, "dhcp6": DhcpConfig()}, "DHCPv6 needs an MTU of 1280: raise mtu"),
        ({"queues": 2, "mesh": MeshOptions()}, "queues is not for links with peers: "),
        ({"backups": (("soft:eth0", 1),)}, "soft:eth0 is given twice: each rail needs a port"),
        ({"backups": (("m", 2), ("m", 1), ("m", 2))}, "m/2 is given twice: each rail needs a port"),
        ({"backups": (("m", 0),)}, "port 0: expected 1 to 255"),
        ({"rail_primary": "soft:eth1"}, "soft:eth1 is none of the devices soft:eth0"),
        (
            {"rail_primary": "m/3", "backups": (("m", 1), ("m", 2))},
            "m/3 is none of the devices soft:eth0, m/1, m/2",
        ),
        (
            {"rail_primary": "m", "backups": (("m", 2), ("m", 3))},
            "m is none of the devices soft:eth0, m/2, m/3",
        ),
        ({"rail_updelay_ms": -1}, "rail_updelay_ms -1: expected 0 to 3600000 milliseconds"),
        ({"rail_monitor": (ip_address("10.0.0.9"),) * 17}, "17 neighbours to monitor, 16 at most"),
    ],
)
def test_a_wrong_field_is_refused_before_a_port_is_opened(
    fields: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        EndpointConfig("ib0", "soft:eth0", **fields)  # type: ignore[arg-type]
    assert str(caught.value).startswith(text)
