# SPDX-License-Identifier: BSD-2-Clause
"""The fault specification of `--faults`, and a fabric that loses everything."""

from __future__ import annotations

import ipaddress

import pytest

from ipoibu import Endpoint, EndpointConfig, Gid, UsageError
from ipoibu.fabric.faults import FaultSpec
from ipoibu.fabric.memory import MemoryPort, MemorySwitch
from tests.doubles.packets import until


def test_a_specification_names_probabilities_and_a_seed() -> None:
    assert FaultSpec.parse("loss=0.1,dup=0.05,reorder=0.2,corrupt=0.01,delay=1,seed=0x10") == (
        FaultSpec(loss=0.1, duplicate=0.05, reorder=0.2, corrupt=0.01, delay=1.0, seed=16)
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is none of"),
        ("los=0.1", "'los=0.1' is none of"),
        ("loss", "'loss' has no number"),
        ("loss=x", "'loss=x' has no number"),
        ("seed=0.5", "'seed=0.5' has no number"),
        ("loss=1.5", "is not a probability"),
        ("loss=-0.1", "is not a probability"),
        ("seed=-1", "is not a probability"),
        ("loss=nan", "is not a probability"),
    ],
)
def test_a_wrong_word_is_named(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        FaultSpec.parse(text)


def test_total_loss_lets_nothing_through_and_counts_it() -> None:
    switch = MemorySwitch()
    spec = FaultSpec(loss=1.0)
    with (
        Endpoint(
            EndpointConfig("a", "memory", faults=spec),
            port=MemoryPort(switch, Gid.parse("fe80::1")),
        ) as a,
        Endpoint(EndpointConfig("b", "memory"), port=MemoryPort(switch, Gid.parse("fe80::2"))) as b,
    ):
        a.address_added(ipaddress.ip_interface("10.0.0.1/24"))
        b.join(ipaddress.ip_address("224.0.0.251"))
        head = bytes.fromhex("45000014000000004011") + bytes(2) + bytes([10, 0, 0, 1])
        for _ in range(5):
            a.send([head + bytes([224, 0, 0, 251])])
        until(lambda: bool(a.stats()["fabric.faults_lost"] >= 5))
        assert b.recv(timeout=0.3) == []
        assert b.stats()["rx_packets"] == 0
