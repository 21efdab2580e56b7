# SPDX-License-Identifier: BSD-2-Clause
"""A fabric that wraps a fabric and spoils what is sent, seeded: for tests and demonstrations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

from ipoibu._core import FaultyFabric
from ipoibu.addr import Gid, Qpn
from ipoibu.errors import UsageError
from ipoibu.fabric.base import Fabric, RcFabric, RcQueuePair, TxQueue

_WORDS = {"dup": "duplicate"}


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """Probabilities (0..1) that a datagram meets each fate, and the generator's seed."""

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay: float = 0.0
    seed: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `loss=0.1,dup=0.05,seed=7`; `UsageError` names the word that is wrong."""
        known = {field.name: field.type for field in fields(cls)}
        values: dict[str, float | int] = {}
        for word in text.split(","):
            name, _, value = word.partition("=")
            name = _WORDS.get(name, name)
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


class FaultyUd:
    """The inner fabric, with faults on the datagrams that it sends, and on those of its `tx_queues`."""

    def __init__(self, inner: Fabric, spec: FaultSpec, tx_queues: Sequence[TxQueue] = ()) -> None:
        self._inner = inner
        self._faulty = _spoil(inner, spec, spec.seed)
        self.tx_queues = [
            _spoil(tx_queue, spec, (spec.seed + number) % 2**64)
            for number, tx_queue in enumerate(tx_queues, start=1)
        ]

    @property
    def qpn(self) -> Qpn:
        return self._inner.qpn

    @property
    def native(self) -> object:
        return self._faulty.native

    @property
    def event_fd(self) -> int | None:
        return getattr(self._inner, "event_fd", None)

    def attach(self, mgid: Gid, mlid: int = 0) -> None:
        self._inner.attach(mgid, mlid)

    def detach(self, mgid: Gid) -> None:
        self._inner.detach(mgid)

    def open_connection(self) -> RcQueuePair:
        """The inner fabric's: what goes by connections meets no faults."""
        inner: RcFabric = self._inner  # type: ignore[assignment]
        return inner.open_connection()

    def counters(self) -> dict[str, int]:
        total = Counter[str]()
        for faulty in (self._faulty, *self.tx_queues):
            total.update(faulty.counters())
        return self._inner.counters() | {f"faults_{name}": n for name, n in total.items()}

    def close(self) -> None:
        self._inner.close()
