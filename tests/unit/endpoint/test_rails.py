# SPDX-License-Identifier: BSD-2-Clause
"""An endpoint with two devices under an administrator: each port joins and leaves for itself."""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import Final

import pytest

from ipoibu import Endpoint, EndpointConfig, LinkError, PKey
from ipoibu.base.errors import Closed, NoSuchDevice
from ipoibu.endpoint.callbacks import Callbacks
from ipoibu.endpoint.rails import rails
from ipoibu.fabric.flush import Flush
from ipoibu.proto.machine.transition import Topic
from ipoibu.wire import mgid
from ipoibu.wire.mcmember import JoinState
from tests.doubles.administered import (
    BROADCAST,
    IbPort,
    Subnet,
    passes,
    passes_again,
    receives,
    states,
    until,
)

RED: Final = PKey(0x8001)
TWO_DEVICES: Final = (("memory0", 1), ("memory1", 1))
ONE_DEVICE: Final = (("mlx4_0", 1), ("mlx4_0", 2))


class Two:
    """Host 1 of the subnet has the devices memory0 and memory1, whose ports have the numbers 2 and 3; or
    `places` names two ports of one device."""

    def __init__(self, subnet: Subnet, monkeypatch: pytest.MonkeyPatch) -> None:
        self.subnet = subnet
        self.places: tuple[tuple[str, int], ...] = TWO_DEVICES
        self.made: dict[str, list[IbPort]] = {"memory0": [], "memory1": []}
        self.gone: set[str] = set()
        self.pkeys: dict[str, tuple[int, ...]] = {"memory0": (0xFFFF,), "memory1": (0xFFFF,)}
        monkeypatch.setattr(rails, "open_port", self._open_port)
        monkeypatch.setattr(rails, "RAIL_REOPEN_S", 0.01)

    def _open_port(self, device: str, number: int, *rest: object) -> IbPort:
        if device in self.gone:
            raise NoSuchDevice(f"{device}: gone")
        index = self.places.index((device, number))
        name = list(self.made)[index]
        port = IbPort(self.subnet.switch, self.subnet.sa, 2 + index, self.pkeys[name])
        port.describe(device, number)
        self.made[name].append(port)
        return port

    def open(self, primary: str | None = None) -> Endpoint:
        (device, port), *backups = self.places
        config = EndpointConfig("h1", device, port, backups=tuple(backups), rail_primary=primary)
        endpoint = Endpoint(config, callbacks=Callbacks(on_failure=self.subnet.failures.append))
        self.subnet.endpoints.insert(0, endpoint)
        endpoint.open()
        until(lambda: bool(endpoint.show()["state"] == "up"))
        endpoint.address_added(ipaddress.ip_interface("10.0.0.1/24"))
        return endpoint

    def port(self, device: str) -> IbPort:
        return self.made[device][-1]

    def give(self, device: str, *pkeys: int) -> None:
        """The subnet manager writes another P_Key table into the port."""
        mads = self.port(device).mads
        mads.info = replace(mads.info, pkeys=tuple(PKey(key) for key in pkeys))

    def members(self) -> set[int]:
        """The numbers of the ports of host 1 that are full members of the broadcast group."""
        return {n for n in (2, 3) if states(self.subnet.sa, BROADCAST, n) & JoinState.FULL_MEMBER}


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    subnet = Subnet()
    yield Two(subnet, monkeypatch)
    subnet.close()


def _other_host(two: Two) -> None:
    """Host 2, whose port has the number 4."""
    two.subnet.ports = [two.port("memory0"), two.port("memory1")]
    two.subnet.host()
    address = ipaddress.ip_interface("10.0.0.2/24")
    two.subnet.endpoints[1].address_added(address)


def _states(endpoint: Endpoint) -> list[str]:
    return [rail["state"] for rail in endpoint.show()["rails"]]


def _registering_again(port: IbPort) -> Callable[[], Coroutine[None, None, None]]:
    """The subnet manager asks the port to join its groups again."""

    async def register() -> None:
        port.sa.reregister()

    return register


def test_the_rail_that_takes_over_is_a_member_already(two: Two) -> None:
    """No queue pair is made, neighbours stay, and the packet after the change needs no join."""
    endpoint = two.open()
    _other_host(two)
    endpoint.join("239.1.2.3")
    assert passes(two.subnet, 1, 2, b"before")
    until(lambda: two.members() == {2, 3})
    until(lambda: len(two.port("memory1").sa.held) == len(two.port("memory0").sa.held) == 4)
    joined = set(two.port("memory1").sa.held)
    two.port("memory0").up = False
    until(lambda: _states(endpoint) == ["down", "active"])
    assert endpoint.stats().get("engine.renewals", 0) == 0
    assert passes(two.subnet, 1, 2, b"from the second port")
    assert passes_again(two.subnet, 2, 1, b"and to it")
    assert set(two.port("memory1").sa.held) == joined
    assert two.members() == {2, 3}
    endpoint.leave("239.1.2.3")
    for device in ("memory0", "memory1"):
        until(lambda device=device: len(two.port(device).sa.held) == 3)  # type: ignore[misc]
    endpoint.close()
    assert two.members() == set()


def test_two_ports_of_one_device_are_rails(two: Two, caplog: pytest.LogCaptureFixture) -> None:
    """The commonest bond of InfiniBand."""
    two.places = ONE_DEVICE
    endpoint = two.open("mlx4_0/1")
    _other_host(two)
    assert passes(two.subnet, 1, 2, b"before")
    until(lambda: two.members() == {2, 3})
    two.port("memory0").up = False
    until(lambda: _states(endpoint) == ["down", "active"])
    assert endpoint.stats().get("engine.renewals", 0) == 0
    assert passes(two.subnet, 1, 2, b"from the second port")
    shown = endpoint.show()
    assert (shown["device"], shown["port"]) == ("mlx4_0", 2)
    assert [(rail["device"], rail["port"]) for rail in shown["rails"]] == list(two.places)
    assert "mlx4_0/2 carries the traffic now, not mlx4_0/1" in caplog.text
    two.port("memory0").up = True
    until(lambda: _states(endpoint) == ["active", "backup"])  # the primary


def test_requests_under_way_go_to_the_sa_by_the_rail_that_takes_over(two: Two) -> None:
    endpoint = two.open()
    _other_host(two)
    assert passes(two.subnet, 1, 2, b"before")
    until(lambda: two.members() == {2, 3})
    two.subnet.sa.is_deaf = True
    group = ipaddress.ip_address("239.1.2.3")
    mapped = mgid.of_group(group, PKey(0xFFFF), 2)
    endpoint.join(group)
    two.port("memory0").up = False
    until(lambda: _states(endpoint) == ["down", "active"])
    two.subnet.sa.is_deaf = False
    until(lambda: bool(states(two.subnet.sa, mapped, 3) & JoinState.FULL_MEMBER))
    until(lambda: receives(endpoint, mapped))
    assert endpoint.stats().get("engine.renewals", 0) == 0


def test_a_rail_that_is_no_member_joins_when_it_takes_over(two: Two) -> None:
    two.pkeys["memory1"] = (0x8003,)
    endpoint = two.open()
    _other_host(two)
    assert passes(two.subnet, 1, 2, b"before")
    assert two.members() == {2}
    two.give("memory1", 0xFFFF)
    two.port("memory0").up = False
    until(lambda: _states(endpoint) == ["down", "active"])
    until(lambda: two.members() == {2, 3})
    assert endpoint.stats()["engine.renewals"] == 1
    assert passes_again(two.subnet, 1, 2, b"from the second port")


def test_a_primary_that_the_sa_refuses_does_not_disturb_the_active_rail(two: Two) -> None:
    """It becomes active once the SA has made its port a member, and not before."""
    two.pkeys["memory1"] = (0x8003,)
    endpoint = two.open("memory1")
    _other_host(two)
    assert _states(endpoint) in (["active", "suspect"], ["active", "joining"])  # suspect for 1 s
    until(lambda: _states(endpoint) == ["active", "joining"])
    time.sleep(0.2)
    assert _states(endpoint) == ["active", "joining"]
    two.give("memory1", 0xFFFF)
    until(lambda: _states(endpoint) == ["backup", "active"])
    stats = endpoint.stats()
    assert (stats["engine.rail_changes"], stats["engine.renewals"]) == (1, 1)
    assert passes_again(two.subnet, 1, 2, b"from the second port")


def test_a_primary_takes_over_without_another_queue_pair_once_it_has_joined_again(two: Two) -> None:
    endpoint = two.open("memory1")
    until(lambda: two.members() == {2, 3})
    primary = two.port("memory1")
    until(lambda: _states(endpoint) == ["backup", "active"])
    primary.up = False
    until(lambda: _states(endpoint) == ["active", "down"])
    two.subnet.sa.is_deaf = True
    flushes: list[object] = []
    primary.sa.listen(flushes.append)
    primary.sa.submit(_registering_again(primary)).result(10)
    until(lambda: Flush.LIGHT in flushes)
    primary.sa.unlisten(flushes.append)
    primary.up = True
    until(lambda: _states(endpoint) == ["active", "joining"])
    time.sleep(0.2)
    assert _states(endpoint) == ["active", "joining"]
    two.subnet.sa.is_deaf = False
    until(lambda: _states(endpoint) == ["backup", "active"])
    stats = endpoint.stats()
    assert (stats["engine.rail_changes"], stats.get("engine.renewals", 0)) == (2, 0)


def test_a_backup_joins_again_when_the_sa_has_forgotten_it(two: Two) -> None:
    two.open()
    until(lambda: two.members() == {2, 3})
    two.subnet.sa.forget()
    two.subnet.sa.make_broadcast(PKey(0xFFFF))
    until(lambda: two.members() == {2, 3})


def test_a_group_that_is_gone_ends_no_rail_for_good(two: Two) -> None:
    """The SA refuses both ports, which take turns, until the link's group is back."""
    endpoint = two.open()
    until(lambda: two.members() == {2, 3})
    two.subnet.sa.forget()
    until(lambda: endpoint.show()["state"] == "down")
    two.subnet.sa.make_broadcast(PKey(0xFFFF))
    until(lambda: bool(endpoint.show()["state"] == "up"))
    until(lambda: two.members() == {2, 3})


def test_a_change_ends_a_join_over_the_former_rail(two: Two) -> None:
    """The SA is silent while the first rail joins the link again; then that rail goes down."""
    endpoint = two.open()
    _other_host(two)
    two.subnet.sa.is_deaf = True
    two.give("memory0", 0x8003, 0xFFFF)
    until(lambda: endpoint.stats().get("engine.renewals", 0) == 1)
    two.port("memory0").up = False
    until(lambda: _states(endpoint) == ["down", "active"])
    two.subnet.sa.is_deaf = False
    until(lambda: bool(endpoint.show()["state"] == "up"))
    until(lambda: two.members() == {2, 3})
    assert passes_again(two.subnet, 1, 2, b"by the second port")
    assert endpoint.stats()["engine.rail_changes"] >= 1
    assert two.subnet.failures == []


def test_a_silent_sa_is_no_failure_of_the_active_rail(two: Two) -> None:
    endpoint = two.open()
    _other_host(two)
    assert passes(two.subnet, 1, 2, b"before")
    seen: list[tuple[Topic, str]] = []
    end = endpoint.watch(lambda change: seen.append((change.topic, change.after)))
    two.subnet.sa.is_deaf = True
    until(lambda: (Topic.SA, "silent") in seen)
    assert passes(two.subnet, 1, 2, b"by the path that is known")
    two.subnet.sa.is_deaf = False
    until(lambda: (Topic.SA, "light flush") in seen)
    end()
    until(lambda: _states(endpoint) == ["active", "backup"])
    assert endpoint.stats().get("engine.rail_changes", 0) == 0


def test_a_lost_p_key_is_a_failure_and_the_rails_do_not_alternate(two: Two) -> None:
    endpoint = two.open()
    _other_host(two)
    two.give("memory0", 0x8003)
    until(lambda: _states(endpoint)[1] == "active")
    until(lambda: two.members() == {3})
    assert passes_again(two.subnet, 1, 2, b"by the second port")
    two.give("memory1", 0x8003)  # now no port is in the partition
    until(lambda: endpoint.show()["state"] == "down")
    until(lambda: endpoint.stats().get("engine.renewals_refused", 0) > 2)
    assert endpoint.stats()["engine.rail_changes"] < 5
    two.give("memory1", 0xFFFF)
    until(lambda: bool(endpoint.show()["state"] == "up"))
    assert passes_again(two.subnet, 1, 2, b"again")


def test_a_device_that_goes_and_comes_back_joins_again(two: Two) -> None:
    endpoint = two.open()
    first = two.port("memory0")
    for device, times in (("memory0", 2), ("memory1", 3)):
        two.port(device).sa.counts["sa_unsent"] += times

    def active() -> bool:
        raise LinkError("memory0: gone")

    first.active = active  # type: ignore[method-assign]
    two.gone.add("memory0")
    until(lambda: _states(endpoint) == ["absent", "active"])
    until(lambda: two.members() == {3})
    assert endpoint.stats()["engine.sa_unsent"] == 5  # those of the device that went, too
    two.gone.clear()
    until(lambda: _states(endpoint) == ["backup", "active"])
    two.port("memory1").up = False
    until(lambda: _states(endpoint) == ["active", "down"])
    until(lambda: two.members() == {2, 3})
    assert two.port("memory0") is not first


def test_a_rail_that_ceases_to_wait_leaves_the_group_whose_join_has_just_succeeded(
    two: Two,
) -> None:
    """The answer is on its way to the interface when the flush ends the rail's membership: the rail could
    not join again for its queue pair otherwise."""
    interface = two.open()._opened()
    follower, sa = interface._follower, two.port("memory1").sa
    assert follower is not None
    assert interface.subnet is not None
    groups = interface.subnet.received
    until(lambda: len(sa.held) > 0)

    async def replace_members() -> None:
        follower.close_backups()
        until(lambda: sa.held == ())
        follower.open_backups()
        follower.set_received(groups)
        await asyncio.sleep(0)  # the task asks for the broadcast group
        until(lambda: len(sa.held) > 0)  # the SA client's thread takes the answer
        follower.close_backups()

    asyncio.run_coroutine_threadsafe(replace_members(), interface.loop).result()
    until(lambda: sa.held == ())
    until(lambda: two.members() == {2})


@pytest.mark.parametrize("places", [TWO_DEVICES, ONE_DEVICE])
def test_a_child_has_the_ports_of_its_parent_and_goes_on_without_it(
    two: Two, places: tuple[tuple[str, int], ...]
) -> None:
    two.places = places
    two.subnet.sa.make_broadcast(RED)
    two.pkeys = {"memory0": (0xFFFF, RED), "memory1": (0xFFFF, RED)}
    endpoint = two.open()
    child = endpoint.child(RED)
    two.subnet.endpoints.append(child)
    child.open()
    until(lambda: bool(child.show()["state"] == "up"))
    group = mgid.broadcast(RED)
    assert states(two.subnet.sa, group, 2) & JoinState.FULL_MEMBER
    first = two.port("memory0")
    first.up = False
    until(lambda: _states(child) == _states(endpoint) == ["down", "active"])
    until(lambda: bool(states(two.subnet.sa, group, 3) & JoinState.FULL_MEMBER))
    first.up = True
    until(lambda: _states(child) == _states(endpoint) == ["backup", "active"])
    assert [len(made) for made in two.made.values()] == [1, 1]
    endpoint.close()
    two.port("memory1").up = False
    until(lambda: _states(child) == ["active", "down"])
    until(lambda: bool(states(two.subnet.sa, group, 2) & JoinState.FULL_MEMBER))

    def active() -> bool:
        raise LinkError("memory1: gone")

    two.port("memory1").active = active  # type: ignore[method-assign]
    until(lambda: _states(child) == ["active", "backup"])  # opened anew
    assert [len(made) for made in two.made.values()] == [1, 2]


def test_a_child_stays_on_its_own_rail_while_the_sa_refuses_the_parents(two: Two) -> None:
    two.subnet.sa.make_broadcast(RED)
    two.pkeys["memory0"] = (0xFFFF, RED)
    endpoint = two.open("memory1")
    until(lambda: _states(endpoint) == ["backup", "active"])
    child = endpoint.child(RED)
    two.subnet.endpoints.append(child)
    child.open()
    until(lambda: bool(child.show()["state"] == "up"))
    until(lambda: _states(child) == ["active", "joining"])
    time.sleep(0.2)
    assert _states(child) == ["active", "joining"]
    assert child.stats().get("engine.renewals", 0) == 0
    two.give("memory1", 0xFFFF, RED)
    until(lambda: _states(child) == ["backup", "active"])
    assert _states(endpoint) == ["backup", "active"]
    group = mgid.broadcast(RED)
    until(lambda: bool(states(two.subnet.sa, group, 3) & JoinState.FULL_MEMBER))


def test_a_child_of_a_closed_parent_does_not_open(two: Two) -> None:
    endpoint = two.open()
    child = endpoint.child(RED)
    endpoint.close()
    with pytest.raises(Closed, match="h1: the endpoint is not open"):
        child.open()


def test_the_start_takes_a_rail_whose_sa_admits_it(two: Two) -> None:
    two.pkeys["memory0"] = (0x8003,)
    assert _states(two.open())[1] == "active"
    assert two.members() == {3}


def test_the_start_fails_with_the_first_refusal(two: Two) -> None:
    two.pkeys = {"memory0": (0x8003,), "memory1": (0x8004,)}
    with pytest.raises(LinkError, match="no P_Key 0xffff; it has: 0x8003"):
        two.open()
    two.subnet.endpoints.clear()
    assert two.members() == set()
