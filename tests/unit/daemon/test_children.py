# SPDX-License-Identifier: BSD-2-Clause
"""Children that come and go, and fail, at the request of any client; no interface behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from ipoibu.base.addr import PKey
from ipoibu.base.errors import IpoibuError, LinkError, NoSuchDevice, UsageError
from ipoibu.base.limits import CHILDREN_MAX
from ipoibu.daemon.config.interface_config import InterfaceConfig
from ipoibu.daemon.control.server import Action
from ipoibu.daemon.interface.children import Children
from ipoibu.endpoint.contract import EndpointContract

Talk = Callable[[Children], Awaitable[None]]


class FakeChild:
    """Starts when `gate` is open, unless there is a `refusal`."""

    made: list[FakeChild]
    refusal: Exception | None
    gate: asyncio.Event

    def __init__(
        self,
        config: InterfaceConfig,
        on_failure: Callable[[str], None],
        actions: Mapping[str, Action],
    ) -> None:
        self.config, self.on_failure, self.actions = config, on_failure, actions
        self.state = "made"
        self.is_forgotten = False
        self.unfollowed: list[str] = []  # all states when this child stopped following
        self.made.append(self)

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def endpoint(self) -> EndpointContract:
        raise NotImplementedError("nobody observes it here")

    @property
    def parts(self) -> Mapping[str, object]:
        raise NotImplementedError("no test changes an option")

    async def start(self) -> None:
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        self.state = "up"

    @property
    def current_name(self) -> str:
        return self.config.name

    def follow_parent(self, name: str) -> None:
        self.parent = name

    def forget(self) -> None:
        self.is_forgotten = True

    async def settle(self) -> None:
        await asyncio.sleep(0)

    def unfollow(self) -> None:
        self.unfollowed = [child.state for child in self.made]

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.state = "closed"

    @property
    def mtu(self) -> int:
        return 2044

    def summary(self) -> str:
        return f"{self.config.name}: up"


def run(talk: Talk, pkey: int = 0xFFFF, name: str = "ib0") -> list[FakeChild]:
    """Let `talk` ask a parent's `Children`; return every child made."""

    class Child(FakeChild):
        refusal = None

    Child.made = []

    async def main() -> None:
        Child.gate = asyncio.Event()
        Child.gate.set()
        parent = InterfaceConfig.build(
            name, {"device": "soft:eth0", "pkey": str(pkey), "mtu": "1500", "address": "10.0.0.1/8"}
        )
        children = Children(parent, Child)
        async with asyncio.timeout(10):
            await talk(children)
            await children.close()

    asyncio.run(main())
    return Child.made


def test_each_vlan_of_a_tap_is_a_child() -> None:
    class Child(FakeChild):
        refusal = None

    async def main() -> None:
        Child.made, Child.gate = [], asyncio.Event()
        Child.gate.set()
        vlans = ["10=0x8001", "20=0x8002"]
        texts = {"device": "soft:eth0", "ethernet": "on", "vlan": vlans}
        children = Children(InterfaceConfig.build("tap0", texts), Child)
        assert await children.start() == ["tap0.8001: up", "tap0.8002: up"]
        listed = await children.actions["child-list"]({})
        assert isinstance(listed, list)
        assert [(it["name"], it["vlan"]) for it in listed] == [("tap0.8001", 10), ("tap0.8002", 20)]
        await children.close()

    asyncio.run(main())


def test_the_children_of_the_file_start_and_one_that_fails_does_not_keep_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Child(FakeChild):
        refusal = None

        async def start(self) -> None:
            if self.config.name == "ib0.8002":
                raise LinkError("no such partition")
            await super().start()

    async def main() -> None:
        Child.made, Child.gate = [], asyncio.Event()
        Child.gate.set()
        parent = InterfaceConfig.build("ib0", {"device": "soft:eth0"})
        for pkey in (0x8001, 0x8002, 0x8003):
            parent = parent.with_child(PKey(pkey), {})
        children = Children(parent, Child)
        assert await children.start() == ["ib0.8001: up", "ib0.8003: up"]
        assert [child.config.name for child in children.running] == ["ib0.8001", "ib0.8003"]
        await children.close()

    asyncio.run(main())
    assert "ib0.8002: the child did not start: no such partition" in caplog.text


def test_a_child_that_a_command_adds_has_the_present_mode_of_its_parent() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8002")
        children.mode = lambda: "connected"  # `ipoibu set ib0 mode connected`
        await add(children, "0x8003")
        await add(children, "0x8004", mode="datagram")

    made = run(talk)
    assert [child.config.endpoint.mode for child in made] == ["datagram", "connected", "datagram"]


def add(children: Children, pkey: str, **fields: object) -> Awaitable[object]:
    return children.actions["child-add"]({"pkey": pkey, **fields})


def remove(children: Children, pkey: str) -> Awaitable[object]:
    return children.actions["child-del"]({"pkey": pkey})


def names(listed: Any) -> list[str]:
    return [each["name"] for each in listed]


def test_a_child_has_the_kernels_name_and_what_was_asked_for() -> None:
    async def talk(children: Children) -> None:
        assert await add(children, "0x0001", address=["10.9.0.1/24"], mtu="1400") == "ib0.8001: up"
        assert await children.actions["child-list"]({}) == [
            {"name": "ib0.8001", "parent": "ib0", "pkey": "0x8001", "vlan": None}
        ]

    (child,) = run(talk)
    config = child.config
    endpoint = config.endpoint
    assert (config.name, endpoint.pkey, endpoint.mtu) == ("ib0.8001", PKey(0x8001), 1400)
    assert (endpoint.device, endpoint.port) == ("soft:eth0", 1)
    assert [str(a) for a in config.address] == ["10.9.0.1/24"]
    assert child.state == "closed"  # with its parent


def test_a_child_may_have_another_name() -> None:
    async def talk(children: Children) -> None:
        assert await add(children, "0x8001", name="storage") == "storage: up"
        assert names(await children.actions["child-list"]({})) == ["storage"]
        for name, why in [
            ("ib0.8003", "says partition 0x8003, but --pkey is 0x8002"),
            ("a/b", "forbidden character"),
            (7, '"name" is a text'),
        ]:
            with pytest.raises(UsageError, match=why):
                await add(children, "0x8002", name=name)

    (child,) = run(talk)
    assert (child.config.name, child.config.endpoint.pkey) == ("storage", PKey(0x8001))


def test_a_child_of_a_renamed_parent_has_its_new_name() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8001")
        children.rename("ibp1s0")
        assert await add(children, "0x8002") == "ibp1s0.8002: up"
        assert await add(children, "0x8003", name="storage") == "storage: up"
        listed: Any = await children.actions["child-list"]({})
        assert names(listed) == ["ib0.8001", "ibp1s0.8002", "storage"]
        assert {each["parent"] for each in listed} == {"ibp1s0"}
        with pytest.raises(UsageError, match="0xffff is the partition of ibp1s0 itself"):
            await add(children, "0xffff")
        children.rename("a-name-of-11by")
        with pytest.raises(UsageError, match="is too long"):
            await add(children, "0x8004")
        await children.add(
            InterfaceConfig.build("ib0", {"device": "soft:eth0"}).child(PKey(5), {"name": "five"})
        )

    made = run(talk)
    assert [child.parent for child in made[:3]] == ["a-name-of-11by"] * 3
    assert [child.config.endpoint.parent for child in made] == [
        "ib0",
        "ibp1s0",
        "ibp1s0",
        "a-name-of-11by",
    ]


def test_a_child_does_not_inherit_addresses_routes_or_mtu() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8002")

    (child,) = run(talk)
    config = child.config
    assert (config.address, config.route, config.endpoint.mtu) == ((), (), None)


@pytest.mark.parametrize(
    ("pkey", "why"),
    [
        ("0x8001", "ib0.8001 has the partition 0x8001 already"),
        ("0x0001", "ib0.8001 has the partition 0x8001 already"),
        ("0xffff", "0xffff is the partition of ib0 itself"),
        ("0x7fff", "0xffff is the partition of ib0 itself"),
        ("0", "P_Key 0x0000 is invalid"),
        ("0x8000", "P_Key 0x8000 is invalid"),
        ("0x10000", "'0x10000' is not a P_Key"),
        ("9" * 10_000, "is not a P_Key"),
        (7, '"pkey" is a text'),
        (None, '"pkey" is a text'),
    ],
)
def test_a_key_that_cannot_be_is_refused(pkey: Any, why: str) -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8001")
        with pytest.raises(UsageError) as caught:
            await add(children, pkey)
        assert why in str(caught.value)

    assert len(run(talk)) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"mtu": 7},
        {"mtu": "x"},
        {"address": "10.0.0.1/8"},
        {"address": [7]},
        {"address": ["10.0.0.1"]},
        {"address": ["fd00::1/64"], "mtu": "1000"},
    ],
)
def test_fields_that_make_no_sense_are_refused_before_anything_starts(
    fields: dict[str, object],
) -> None:
    async def talk(children: Children) -> None:
        with pytest.raises(UsageError):
            await add(children, "0x8001", **fields)

    assert run(talk) == []


def test_a_name_that_would_be_too_long_is_refused() -> None:
    async def talk(children: Children) -> None:
        with pytest.raises(UsageError, match="too long"):
            await add(children, "0x8001")

    assert run(talk, name="interface-0") == []


def test_a_removed_child_is_gone_and_may_come_back() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8001")
        await remove(children, "0x0001")  # the membership bit does not count
        assert await children.actions["child-list"]({}) == []
        with pytest.raises(NoSuchDevice, match="no child in partition 0x8001"):
            await remove(children, "0x8001")
        await add(children, "0x8001")

    first, second = run(talk)
    assert (first.state, second.state) == ("closed", "closed")


@pytest.mark.parametrize(
    ("refusal", "kind"), [(LinkError("no"), LinkError), (OSError(24, "too many"), IpoibuError)]
)
def test_a_child_that_does_not_start_is_not_listed(
    refusal: Exception, kind: type[Exception]
) -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8002")
        type(children_made(children)[0]).refusal = refusal
        with pytest.raises(kind):
            await add(children, "0x8001")
        assert names(await children.actions["child-list"]({})) == ["ib0.8002"]

    run(talk)


def children_made(children: Children) -> list[FakeChild]:
    return list(children._running.values())  # type: ignore[arg-type]


def test_a_child_that_fails_is_removed_and_the_others_stay() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8001")
        await add(children, "0x8002")
        first, _ = children_made(children)
        first.on_failure("someone removed it")
        while first.state != "closed":
            await asyncio.sleep(0)
        assert names(await children.actions["child-list"]({})) == ["ib0.8002"]

    run(talk)


def test_an_asker_who_goes_away_leaves_a_whole_child() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8002")
        gate = children_made(children)[0].gate
        gate.clear()
        asking = asyncio.ensure_future(add(children, "0x8001"))
        await asyncio.sleep(0.01)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        gate.set()
        while len(children_made(children)) < 2:
            await asyncio.sleep(0)

    assert [child.state for child in run(talk)] == ["closed", "closed"]


def test_all_children_stop_following_the_kernel_before_the_first_ends() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8001")
        await add(children, "0x8002")

    made = run(talk)
    assert [child.unfollowed for child in made] == [["up", "up"]] * 2
    assert [child.state for child in made] == ["closed", "closed"]


def test_a_child_under_way_when_the_parent_ends_is_finished_and_ended() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8002")
        gate = children_made(children)[0].gate
        gate.clear()
        asking = asyncio.ensure_future(add(children, "0x8001"))
        waiting = asyncio.ensure_future(add(children, "0x8003"))
        await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(children.close())
        await asyncio.sleep(0.01)
        gate.set()
        await closing
        # It came up, or its client gets an error.
        await asyncio.gather(asking, return_exceptions=True)
        with pytest.raises(IpoibuError, match="ending"):
            await waiting

    assert [child.state for child in run(talk)] == ["closed", "closed"]


def test_children_are_limited_in_number() -> None:
    async def talk(children: Children) -> None:
        for pkey in range(1, CHILDREN_MAX + 1):
            await add(children, hex(pkey))
        with pytest.raises(UsageError, match=f"{CHILDREN_MAX} children"):
            await add(children, "0x4000")

    assert len(run(talk)) == CHILDREN_MAX


def test_a_child_has_no_children() -> None:
    async def talk(children: Children) -> None:
        await add(children, "0x8001")
        (child,) = children_made(children)
        assert await child.actions["child-list"]({}) == []
        for action in ("child-add", "child-del"):
            with pytest.raises(UsageError, match="no children: name its parent instead"):
                await child.actions[action]({"pkey": "0x8002"})

    run(talk)
