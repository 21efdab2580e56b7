# SPDX-License-Identifier: BSD-2-Clause
"""A fabric that wraps another and spoils the datagrams sent, by a seeded generator: for tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from ipoibu._core import FaultyFabric
from ipoibu.base.addr import Qpn
from ipoibu.base.errors import UsageError
from ipoibu.fabric.base import Fabric, TxQueue
from ipoibu.fabric.wrapper import FabricWrapper

_ABBREVIATIONS = {"dup": "duplicate"}


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """The probability (0..1) of each fault for a datagram, and the generator's seed."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.0
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `loss=0.1,dup=0.05,seed=7`; `UsageError` names the wrong word."""
        known = {field.name: field.type for field in fields(cls)}
        values: dict[str, float | int] = {}
        for word in text.split(","):
            name, _, value = word.partition("=")
            name = _ABBREVIATIONS.get(name, name)
            if name not in known:
                raise UsageError(
                    f"faults: {word!r} is none of loss=, dup=, reorder=, corrupt=, delay=, seed="
                )
            try:
                values[name] = int(value, 0) if name == "seed" else float(value)
            except ValueError as error:
                raise UsageError(f"faults: {word!r} has no number") from error
            limit = 2**64 - 1 if name == "seed" else 1
            if not 0 <= values[name] <= limit:  # also refuses nan
                raise UsageError(f"faults: {word!r} is not a probability (0 to 1) or seed")
        return cls(**values)  # type: ignore[arg-type]


def _spoil(inner: TxQueue, spec: FaultSpec, seed: int) -> FaultyFabric:
    return FaultyFabric(
        inner,
        loss=spec.loss,
        duplicate=spec.duplicate,
        reorder=spec.reorder,
        corrupt=spec.corrupt,
        delay=spec.delay,
        seed=seed,
    )


class FaultyUd(FabricWrapper):
    """The inner fabric, with faults on the datagrams that it and its TX queues send; messages of
    connections have no faults."""

    def __init__(self, inner: Fabric, spec: FaultSpec) -> None:
        super().__init__(inner)
        self._spec = spec
        self._faulty = [_spoil(inner, spec, spec.seed)]  # the fabric's, then one for each TX queue

    @property
    def native(self) -> object:
        return self._faulty[0].native

    def open_tx_queues(self, count: int) -> Sequence[TxQueue]:
        tx_queues = [
            _spoil(tx_queue, self._spec, (self._spec.seed + number) % 2**64)
            for number, tx_queue in enumerate(self._inner.open_tx_queues(count), start=1)
        ]
        self._faulty += tx_queues
        return tx_queues

    def open_guest_queue_pairs(self, count: int) -> Sequence[Qpn]:
        return self._inner.open_guest_queue_pairs(count)

    def counters(self) -> dict[str, int]:
        total = Counter[str]()
        for faulty in self._faulty:
            total.update(faulty.counters())
        return self._inner.counters() | {f"faults_{name}": n for name, n in total.items()}
