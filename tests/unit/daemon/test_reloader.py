# SPDX-License-Identifier: BSD-2-Clause
"""A reload takes over what can change, names what cannot, and leaves all as it is if the file is faulty."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ipoibu.base.addr import IpInterface, IpNetwork
from ipoibu.base.errors import LinkError, UsageError
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.config.parsers import Proxied
from ipoibu.daemon.control.server import Action
from ipoibu.daemon.interface.children import Children
from ipoibu.daemon.interface.reloader import Outcome, Reloader
from ipoibu.daemon.process.log_level import LogLevel
from ipoibu.endpoint.contract import EndpointContract
from ipoibu.host.kernel_interface import RouteSpec
from ipoibu.proto.ethernet_config import EthernetConfig

LINK_MTU = 2044


class FakeInterface:
    """Keeps what it is given; refuses addresses with `refusal`."""

    def __init__(
        self,
        config: InterfaceConfig,
        on_failure: Callable[[str], None] = print,
        actions: Mapping[str, Action] | None = None,
    ) -> None:
        self.config = config
        self.refusal: LinkError | None = None
        self.state = "made"
        self.busy_poll_us: int | None = None
        self.mtu = LINK_MTU
        self.mode = config.endpoint.mode
        self.mode_refusal: UsageError | None = None
        self.addresses = tuple(map(str, config.address))
        self.routes: tuple[str, ...] = ()
        self.proxies: tuple[str, ...] = ()
        self.peers: list[str] = []
        self.guests = config.endpoint.ethernet
        me = dict.fromkeys(("endpoint", "interface", "proxies"), self)
        self.parts: Mapping[str, object] = {**me, "log": LogLevel()}

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def current_name(self) -> str:
        return self.config.name

    @property
    def endpoint(self) -> EndpointContract:
        raise NotImplementedError("nobody observes it here")

    def set_busy_poll(self, busy_poll_us: int | None) -> None:
        self.busy_poll_us = busy_poll_us

    def set_mode(self, mode: str) -> None:
        if self.mode_refusal is not None:
            raise self.mode_refusal
        self.mode = mode

    def set_mtu(self, mtu_bytes: int | None) -> None:
        if mtu_bytes is not None and mtu_bytes > LINK_MTU:
            raise UsageError(f"the link carries at most {LINK_MTU}")
        self.mtu = mtu_bytes or LINK_MTU

    def set_addresses(self, addresses: Sequence[IpInterface]) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.addresses = tuple(map(str, addresses))
        return " ".join(self.addresses)

    def set_routes(self, routes: Sequence[RouteSpec]) -> str:
        self.routes = tuple(map(str, routes))
        return " ".join(self.routes)

    def replace(self, proxies: Sequence[IpNetwork | Proxied]) -> str:
        self.proxies = tuple(map(str, proxies))
        return " ".join(self.proxies)

    def bind_guests(self, config: EthernetConfig) -> None:
        self.guests = config

    def follow_parent(self, name: str) -> None:
        raise AssertionError("no test renames the parent")

    def set_peers(self, peers: Sequence[str]) -> None:
        self.peers = list(peers)

    def forget(self) -> None:
        self.state = "forgotten"

    async def start(self) -> None:
        self.state = "up"

    async def settle(self) -> None:
        await asyncio.sleep(0)

    def unfollow(self) -> None:
        """The test has no kernel."""

    async def close(self) -> None:
        self.state = "closed"

    def summary(self) -> str:
        return self.config.name


class Running:
    """An interface with its children, and its file."""

    def __init__(self, file: Path, text: str, options: Mapping[str, str] | None = None) -> None:
        self.file = file
        file.write_text(text)
        config = InterfaceConfig.build("ib0", options or {}, file)
        self.interface = FakeInterface(config)
        self.made: list[FakeInterface] = []
        self.children = Children(config, self._child)

    def _child(self, *given: Any) -> FakeInterface:
        self.made.append(FakeInterface(*given))
        return self.made[-1]

    def reload(self, *texts: str) -> list[Outcome]:
        """Start, and reload each text of the file."""

        async def main() -> list[Outcome]:
            await self.children.start()
            with ThreadPoolExecutor(1) as executor:
                reloader = Reloader(self.interface, self.children, executor)
                outcomes = []
                for text in texts:
                    self.file.write_text(text)
                    outcomes.append(await reloader.reload())
                return outcomes

        return asyncio.run(main())


BEFORE = 'device = "soft:eth0"\naddress = ["10.0.0.1/24"]\nqueues = 1\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ib0.toml"


@pytest.fixture(autouse=True)
def root_level() -> Iterator[None]:
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(before)


def test_an_unchanged_file_changes_nothing(file: Path) -> None:
    running = Running(file, BEFORE)
    assert running.reload(BEFORE) == [Outcome()]


def test_what_can_change_changes_and_the_rest_waits_for_a_restart(file: Path) -> None:
    running = Running(file, BEFORE)
    after = """\
device = "soft:eth0"
address = ["10.0.0.3/24", "fd00::1/64"]
route = ["10.9.0.0/16,via=10.0.0.9"]
proxy = ["10.1.0.0/16"]
queues = 2
mtu = 1500
busy-poll = 50
log-level = "info"
"""
    outcome, again, back = running.reload(after, after, BEFORE)
    assert outcome.changed == {
        "mtu": "1500 (before: 2044)",
        "address": "10.0.0.3/24 fd00::1/64",
        "route": "10.9.0.0/16,via=10.0.0.9",
        "proxy": "10.1.0.0/16",
        "busy-poll": "50 (before: auto)",
        "log-level": "info (before: warning)",
    }
    assert outcome.restart == again.restart == ["queues"]
    assert not again.changed
    assert outcome.lines()[-1] == "queues: a change needs a restart"
    # What the file leaves out again is the default again
    assert back.restart == []
    assert running.interface.addresses == ("10.0.0.1/24",)
    assert running.interface.routes == ()
    assert running.interface.proxies == ()
    assert running.interface.mtu == LINK_MTU
    assert running.interface.busy_poll_us is None
    assert logging.getLogger().level == logging.WARNING


def test_guests_are_bound_and_released(file: Path) -> None:
    before = 'device = "soft:eth0"\nethernet = true\n'
    running = Running(file, before)
    guest = 'guest = ["52:54:00:12:34:56=10.0.0.7,fd00::7"]\n'
    bound, released, off = running.reload(before + guest, before, before.replace("true", "false"))
    assert bound.changed == {"guest": "52:54:00:12:34:56=10.0.0.7,fd00::7"}
    assert released.changed == {"guest": "none"}
    assert off.restart == ["ethernet"]
    assert running.interface.guests == EthernetConfig()


def test_vlans_come_move_and_go(file: Path) -> None:
    before = 'device = "soft:eth0"\nethernet = true\n'
    child = '[child.0x8001]\nguest = ["52:54:00:12:34:56=10.0.0.7"]\n'
    running = Running(file, before)
    added, same, moved, own, gone = running.reload(
        before + 'vlan = ["10=0x8001"]\n',
        before + 'vlan = ["10=0x8001"]\n',
        before + 'vlan = ["20=0x8001"]\n',
        before + 'vlan = ["20=0x8001"]\n' + child,
        before,
    )
    assert added.changed == {"vlan": "10=0x8001", "child.0x8001": "added"}
    assert same == Outcome()
    assert moved.changed == {"vlan": "20=0x8001", "child.0x8001": "added"}
    assert own.changed == {"child.0x8001.guest": "52:54:00:12:34:56=10.0.0.7"}
    assert gone.changed == {"vlan": "none", "child.0x8001": "removed"}
    assert [(it.config.tap_vlan, it.state) for it in running.made] == [
        (10, "closed"),
        (20, "closed"),
    ]


def test_a_child_with_another_name_is_another_interface(file: Path) -> None:
    child = f"{BEFORE}[child.0x8001]\n"
    running = Running(file, child)
    named, same = running.reload(f"{child}name = 'storage'\n", f"{child}name = 'storage'\n")
    assert named.changed == {"child.0x8001": "added"}
    assert same == Outcome()
    assert [it.config.name for it in running.made] == ["ib0.8001", "storage"]
    assert [it.state for it in running.made] == ["closed", "up"]


def test_a_client_of_dhcp_begins_and_ends_with_the_interface_and_other_addresses_change(
    file: Path,
) -> None:
    before = BEFORE.replace('"10', '"dhcp", "10')
    running = Running(file, before)
    changed, more, less = running.reload(
        before.replace("10.0.0.1", "10.0.0.3"),
        before.replace('"dhcp"', '"dhcp", "dhcp6"'),
        BEFORE,
    )
    assert changed.changed == {"address": "10.0.0.3/24"}
    assert more == less == Outcome(restart=["address"])


def test_a_mode_that_the_link_forbids_needs_a_restart(file: Path) -> None:
    running = Running(file, BEFORE)
    running.interface.mode_refusal = UsageError("mode: IPv6 needs an MTU of 1280")
    (outcome,) = running.reload(BEFORE + 'mode = "connected"\n')
    assert outcome == Outcome(restart=["mode"])


def test_the_children_of_the_file_get_the_mode_of_their_parent(file: Path) -> None:
    child = "[child.0x8001]\n"
    running = Running(file, BEFORE + child)
    outcome, back = running.reload(f'mode = "connected"\n{BEFORE}{child}', BEFORE + child)
    assert outcome == Outcome({"mode": "connected (before: datagram)"})
    assert back == Outcome({"mode": "datagram (before: connected)"})
    assert running.made[0].mode == running.interface.mode == "datagram"


def test_an_mtu_above_the_link_s_needs_a_restart(file: Path) -> None:
    (outcome,) = Running(file, BEFORE).reload(BEFORE + "mtu = 4000\n")
    assert outcome == Outcome(restart=["mtu"])


def test_options_of_the_command_line_override_the_new_file_too(file: Path) -> None:
    running = Running(file, BEFORE, {"address": "10.0.0.8/24"})
    (outcome,) = running.reload(BEFORE.replace("10.0.0.1", "10.0.0.3"))
    assert outcome == Outcome()


def test_a_key_that_fails_keeps_its_value_and_is_tried_again(file: Path) -> None:
    running = Running(file, BEFORE)
    running.interface.refusal = LinkError("no room")
    after = BEFORE.replace("10.0.0.1", "10.0.0.3") + "mtu = 1500\n"
    (outcome,) = running.reload(after)
    assert outcome.failed == {"address": "no room"}
    assert running.interface.mtu == 1500
    running.interface.refusal = None
    (outcome,) = running.reload(after)
    assert outcome.changed == {"address": "10.0.0.3/24"}


def test_children_come_and_go_and_change(file: Path) -> None:
    running = Running(file, BEFORE + '[child.0x8001]\naddress = ["10.1.0.1/24"]\n[child.0x8002]\n')
    after = '[child.0x8001]\naddress = ["10.1.0.2/24"]\n[child.0x8003]\nmtu = 1500\n'
    outcome, again = running.reload(BEFORE + after, BEFORE + after)
    assert outcome.changed == {
        "child.0x8001.address": "10.1.0.2/24",
        "child.0x8002": "removed",
        "child.0x8003": "added",
    }
    assert [child.name for child in running.made] == ["ib0.8001", "ib0.8002", "ib0.8003"]
    assert [child.state for child in running.made] == ["up", "closed", "up"]
    assert again == Outcome()


def test_a_child_inherits_what_changes_for_its_parent(file: Path) -> None:
    running = Running(file, BEFORE + "[child.0x8001]\n")
    (outcome,) = running.reload(BEFORE.replace("1\n", "2\n") + "busy-poll = 7\n[child.0x8001]\n")
    assert outcome == Outcome(changed={"busy-poll": "7 (before: auto)"}, restart=["queues"])
    assert running.made[0].busy_poll_us == 7


def test_peers_change_on_a_link_that_has_some(file: Path) -> None:
    running = Running(file, BEFORE + 'peer = ["192.0.2.1"]\n')
    outcome, none = running.reload(BEFORE + 'peer = ["192.0.2.2", "192.0.2.3"]\n', BEFORE)
    assert outcome.changed == {"peer": "192.0.2.2 192.0.2.3"}
    assert running.interface.peers == ["192.0.2.2", "192.0.2.3"]
    assert none == Outcome(restart=["peer"])  # another kind of link


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (BEFORE + "mtu = 5\n", ":4: mtu: '5' is no MTU"),
        (BEFORE + "[child.0x8001]\nqueues = 5\n", ":5: child.0x8001.queues: unknown key"),
        (BEFORE + 'queues = "2"\n', ":4: not a TOML file"),
        (BEFORE + 'mtu = 1000\nroute = ["fd00::/48"]\n', "too small for fd00::/48"),
        ("mtu = 1500\n", "no device given"),
    ],
)
def test_a_faulty_file_is_one_line_and_changes_nothing(
    file: Path, text: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    running = Running(file, BEFORE)
    config = running.interface.config
    with pytest.raises(UsageError) as caught:
        running.reload(text)
    assert str(caught.value).startswith(str(file))
    assert fault in str(caught.value)
    assert running.interface.config is config
    assert "the old configuration stays in force" in caplog.text


def test_an_interface_without_a_file_has_nothing_to_reload() -> None:
    config = InterfaceConfig.build("ib0", {"device": "soft:eth0"})
    with pytest.raises(UsageError, match="ib0 has no configuration file: start it with --config"):
        config.read_again()
