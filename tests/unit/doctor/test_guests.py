# SPDX-License-Identifier: BSD-2-Clause
"""What the doctor says about an interface with guests behind a TAP."""

from __future__ import annotations

from typing import Any

from ipoibu.base.limits import ETHERNET_GUESTS_MAX
from ipoibu.doctor.finding import Finding
from ipoibu.doctor.guests import SHOWN_MAX, tap
from ipoibu.host.netlink import Link

MAC, MAC2 = "52:54:00:00:00:01", "52:54:00:00:00:02"
TAP = Link(index=5, name="tap0", mtu_bytes=2044, up=True, hwaddr=None, master=6)
BRIDGE = Link(index=6, name="br0", mtu_bytes=2044, up=True, hwaddr=None)
ALONE = Link(index=5, name="tap0", mtu_bytes=2044, up=True, hwaddr=None)


def entry(kind: str, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"kind": kind, "ip": "10.0.0.7", "mac": MAC, "hwaddr": None}
    return row | {"state": "claimed", "age_s": 1.0, "count": None, "holder": None} | more


def findings(
    *listed: dict[str, Any],
    link: Link | None = TAP,
    bridge: Link | None = BRIDGE,
    own: tuple[str, ...] = (),
    **stats: int,
) -> dict[str, Finding]:
    named = {name.replace("engine_", "engine."): count for name, count in stats.items()}
    found = tap("tap0", listed, named, link=link, bridge=bridge, own_addresses=own)
    return {it.check: it for it in found}


def test_healthy_guests_are_named_by_mac_and_address() -> None:
    found = findings(
        entry("guest"), entry("guest", ip="fd00::7"), entry("guest", ip="10.0.0.8", mac=MAC2)
    )
    assert {it.status for it in found.values()} == {"ok"}
    assert found["guests"].detail == (f"behind tap0: {MAC} (10.0.0.7 fd00::7), {MAC2} (10.0.0.8)")
    assert found["guest_bridge"].detail == "tap0 is a port of br0"


def test_many_guests_are_a_number() -> None:
    many = [entry("guest", mac=f"52:54:00:00:01:{number:02x}") for number in range(SHOWN_MAX + 3)]
    assert findings(*many)["guests"].detail.endswith("and 3 more")


def test_a_missing_bridge_is_named_with_its_command() -> None:
    found = findings(link=ALONE, bridge=None)
    assert found["guests"].status == "info"
    assert found["guest_bridge"].status == "warn"
    assert found["guest_bridge"].remedy == "ip link set tap0 master BRIDGE"


def test_the_host_may_be_the_guest_and_a_guest_may_need_no_bridge() -> None:
    assert findings(link=ALONE, bridge=None, own=("10.0.0.1/24",))["guest_bridge"].status == "ok"
    assert findings(entry("guest"), link=ALONE, bridge=None)["guest_bridge"].status == "ok"


def test_a_link_that_is_down_is_named() -> None:
    down = Link(index=5, name="tap0", mtu_bytes=2044, up=False, hwaddr=None, master=6)
    assert findings(link=down)["guest_bridge"].remedy == "ip link set tap0 up"
    down = Link(index=6, name="br0", mtu_bytes=2044, up=False, hwaddr=None)
    assert findings(bridge=down)["guest_bridge"].remedy == "ip link set br0 up"
    assert "guest_bridge" not in findings(link=None, bridge=None), "it is elsewhere"
    found = tap("tap0.8001", [], {}, link=ALONE, bridge=None, own_addresses=(), vlan=10)
    assert "guest_bridge" not in {it.check for it in found}, "the parent's TAP has the guests"


def test_a_bridge_with_a_larger_mtu_is_named() -> None:
    wide = Link(index=6, name="br0", mtu_bytes=9000, up=True, hwaddr=None)
    assert findings(bridge=wide)["guest_mtu"].status == "warn"
    assert "guest_mtu" not in findings()


def test_each_refusal_says_who_has_the_address_and_what_to_do() -> None:
    refused: dict[str, Any] = {
        "kind": "refused",
        "mac": MAC2,
        "holder": MAC,
        "count": 4,
        "age_s": 3.2,
    }
    for state, holder, why, remedy in (
        ("bound", MAC, f"--guest binds it to {MAC}", f"--guest {MAC2}=10.0.0.7"),
        ("held", MAC, f"guest {MAC} has it", "ipoibu guests tap0"),
        ("others", None, "binds the guest to other addresses", f"--guest {MAC2}=...,10.0.0.7"),
    ):
        found = findings(entry(**refused | {"state": state, "holder": holder}))["guest_refused"]
        assert found.status == "warn"
        assert found.detail.startswith(f"tap0: guest {MAC2} may not use 10.0.0.7: ")
        assert why in found.detail
        assert "(4 messages, the last 3 s ago)" in found.detail
        assert remedy in str(found.remedy)


def test_the_latest_refusals_come_first_and_the_others_are_a_number() -> None:
    many = [
        entry("refused", ip=f"10.0.0.{number}", state="held", holder=MAC, count=1, age_s=number)
        for number in reversed(range(SHOWN_MAX + 2))
    ]
    found = [
        it.detail
        for it in tap("tap0", many, {}, link=None, bridge=None, own_addresses=())
        if it.check == "guest_refused"
    ]
    assert "10.0.0.0:" in found[0]
    assert found[-1] == "tap0: 2 more refusals"


def test_spoofed_packets_and_frames_of_a_vlan_are_counted() -> None:
    found = findings(tx_spoofed=3, engine_ethernet_spoofed=2, tx_vlan=7)
    assert "3 packets (tx_spoofed) and 2 messages" in found["guest_spoofed"].detail
    assert found["guest_vlan"].status == "warn"
    assert "7 frames of VLANs" in found["guest_vlan"].detail
    assert found["guest_vlan"].remedy == "start tap0 with --vlan VLAN=P_KEY"
    assert "guest_vlan" not in findings()


def test_tables_near_their_cap_and_evictions_are_warnings() -> None:
    assert findings()["guest_tables"].status == "ok"
    assert findings(engine_ethernet_guest_evicted=1)["guest_tables"].status == "warn"
    full = [entry("guest")] * (ETHERNET_GUESTS_MAX * 19 // 20)
    assert "nearly full" in findings(*full)["guest_tables"].detail
