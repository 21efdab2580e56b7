# SPDX-License-Identifier: BSD-2-Clause
"""Packets as stacks of layers: `ipv6(...) / echo_request()`. One notation is what to send and what to expect.

A layer holds the fields that somebody gave. To send it, the rest gets defaults, lengths and checksums; as an
expectation, the rest may be anything. A value can be a `Symbol`, which the run of a test replaces ("the
peer's IPv4 address"); in an expectation it can be a `Rule` ("at most 64"), too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ipoibu.conform.layout import Layout, Value


@dataclass(frozen=True, slots=True)
class Symbol:
    """A value that only the run of a test knows; `name` is a key of its `Names`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Rule:
    """An expectation of a field that is no single value."""

    words: str
    holds: Callable[[Value], bool]

    def __str__(self) -> str:
        return self.words


Names = Mapping[str, Value]
"""What the symbols stand for in one run of a test."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A value, or a rule, that follows from what the symbols stand for."""

    words: str
    of: Callable[[Names], Value | Rule]

    def __str__(self) -> str:
        return self.words


@dataclass(frozen=True, slots=True)
class Fill:
    """A payload that makes the IP packet as long as the link's MTU, and so many bytes more.

    `of` is another length: the name of a symbol, or a number of bytes.
    """

    more: int = 0
    of: str | int = "mtu"

    def __str__(self) -> str:
        return f"up to {self.of}{self.more:+d}"


@dataclass(frozen=True, slots=True)
class Cut:
    """A payload that is bytes `first` to `end` of another packet, counted behind its first `without` layers:
    a fragment, or what an error quotes."""

    of: Packet
    first: int = 0
    end: int | None = None
    without: int = 1

    def __str__(self) -> str:
        end = "" if self.end is None else self.end
        return f"bytes {self.first}:{end} of [{self.of}]"


Given = Value | Symbol | Rule | Derived
SOUND: Final = "sound"
"""A value that reading a header adds to its fields: 1 if its checksum is right, 0 if not (`SUMS`)."""


def at_least(least: int) -> Rule:
    return Rule(f"at least {least}", lambda value: isinstance(value, int) and value >= least)


def at_most(most: int) -> Rule:
    return Rule(f"at most {most}", lambda value: isinstance(value, int) and value <= most)


def one_of(*values: Value) -> Rule:
    return Rule("one of " + ", ".join(map(repr, values)), lambda value: value in values)


def other_than(value: Value) -> Rule:
    return Rule(f"other than {value!r}", lambda found: found != value)


def _pattern(length: int) -> bytes:
    """Return so many bytes: 0, 1, 2 and so on; none for a negative number."""
    return (bytes(range(256)) * (max(0, length) // 256 + 1))[: max(0, length)]


def differs_from(of: Symbol) -> Derived:
    """An expectation: the field has any value but the symbol's."""
    return Derived(f"other than {of}", lambda names: other_than(names[of.name]))


def resolve(given: Given, names: Names) -> Value | Rule:
    """Return what stands for a symbol or derived value. `KeyError`: the run does not know it."""
    if isinstance(given, Symbol):
        return names[given.name]
    return given.of(names) if isinstance(given, Derived) else given


@dataclass(frozen=True, slots=True)
class Layer:
    """One header. `complete` adds what follows from the rest: lengths, types, checksums."""

    layout: Layout
    values: Mapping[str, Given] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.layout.name

    def __truediv__(self, other: Layer | Packet | bytes | Fill | Cut) -> Packet:
        return Packet((self,)) / other

    def resolved(self, names: Names) -> Layer:
        """Return the layer with values in place of symbols. `KeyError`: the run does not know one."""
        return Layer(self.layout, {k: resolve(v, names) for k, v in self.values.items()})

    def __str__(self) -> str:
        fields = self.layout.fields
        parts = [
            f"{name}={fields[name].shown(value) if isinstance(value, Value) else value}"
            for name, value in self.values.items()
            if name in fields
        ]
        return f"{self.name}({', '.join(parts)})"

    def is_met_by(self, found: Layer) -> bool:
        """Return whether `found` is the same kind of header, and has the values given here."""
        if found.layout is not self.layout:
            return False
        for name, wanted in self.values.items():
            value = found.values[name]
            assert isinstance(value, Value)
            if isinstance(wanted, Rule):
                if not wanted.holds(value):
                    return False
            else:
                assert isinstance(wanted, Value), f"{wanted} is not resolved"
                if name == SOUND:
                    if wanted != value:
                        return False
                    continue
                of = self.layout.fields[name]
                if of.to_int(wanted) != of.to_int(value):
                    return False
        return True


@dataclass(frozen=True, slots=True)
class Packet:
    """Layers from the outside in, and bytes behind the last one."""

    layers: tuple[Layer, ...] = ()
    payload: bytes | Fill | Cut | None = None

    def __truediv__(self, other: Layer | Packet | bytes | Fill | Cut) -> Packet:
        if isinstance(other, Layer):
            return Packet((*self.layers, other), self.payload)
        if isinstance(other, Packet):
            return Packet(self.layers + other.layers, other.payload)
        return Packet(self.layers, other)

    def resolved(self, names: Names) -> Packet:
        """Return the packet with values in place of symbols, and its payload as bytes."""
        payload = self.payload
        if isinstance(payload, Fill):
            mtu = payload.of if isinstance(payload.of, int) else names[payload.of]
            assert isinstance(mtu, int)
            headers = sum(it.layout.size for it in self.layers if it.layout.name != "ipoib")
            payload = _pattern(max(0, mtu + payload.more - headers))
        elif isinstance(payload, Cut):
            whole = payload.of.resolved(names)
            outside = sum(it.layout.size for it in whole.layers[: payload.without])
            payload = build(whole)[outside:][payload.first : payload.end]
        return Packet(tuple(layer.resolved(names) for layer in self.layers), payload)

    def is_met_by(self, found: Packet) -> bool:
        """Return whether `found` has a layer for each of these, in this order; others may lie between.

        A payload, if there is one here, must be the whole payload there.
        """
        at = 0
        for wanted in self.layers:
            while at < len(found.layers) and not wanted.is_met_by(found.layers[at]):
                at += 1
            if at == len(found.layers):
                return False
            at += 1
        return self.payload is None or self.payload == (found.payload or b"")

    def __str__(self) -> str:
        words = " / ".join(map(str, self.layers))
        if isinstance(self.payload, bytes):
            return f"{words} / {len(self.payload)} bytes" if self.payload else words
        return f"{words} / {self.payload}" if self.payload else words


@dataclass(frozen=True, slots=True)
class Around:
    """What a layer's completion sees: the layers around it, and the bytes inside it."""

    outer: Sequence[Layer]  # from the outside in, with their values as given
    inner: Sequence[Layer]
    payload: bytes


Complete = Callable[[dict[str, Value], Around], None]
"""Adds to the values those fields that a header computes, unless the packet gives them."""

Next = Callable[[Sequence[Layer], bytes], "tuple[Layout | None, bytes]"]
"""Given the layers so far and the bytes behind them, returns the layout that follows, and its bytes."""

Sum = Callable[[Sequence[Layer], bytes], bool]
"""Given the layers so far and the bytes from this header on, returns whether its checksum is right."""

COMPLETE: Final[dict[Layout, Complete]] = {}
NEXT: Final[dict[Layout, Next]] = {}
SUMS: Final[dict[Layout, Sum]] = {}
LAYERS_MAX: Final = 64  # of a packet that a peer sends: options of a few bytes each


def build(packet: Packet) -> bytes:
    """Return the bytes of a packet whose symbols are resolved. `ValueError`: a value does not fit."""
    assert not isinstance(packet.payload, Fill | Cut), "resolve the packet first"
    raw = packet.payload or b""
    for index in range(len(packet.layers) - 1, -1, -1):
        layer = packet.layers[index]
        values: dict[str, Value] = {}
        for name, value in layer.values.items():
            if name == SOUND:
                continue
            if not isinstance(value, Value):
                raise ValueError(f"{layer.name}.{name}: {value} is no value to send")
            values[name] = value
        if layer.layout in COMPLETE:
            around = Around(packet.layers[:index], packet.layers[index + 1 :], raw)
            COMPLETE[layer.layout](values, around)
        raw = layer.layout.pack(values) + raw
    return raw


def parse_untrusted(raw: bytes, first: Layout) -> Packet:
    """Read layers as far as they are known and whole; the rest is the payload."""
    layers: list[Layer] = []
    layout: Layout | None = first
    while layout is not None and len(layers) < LAYERS_MAX:
        values = layout.unpack_untrusted(raw)
        if values is None:
            break
        if layout in SUMS:
            values[SOUND] = int(SUMS[layout](layers, raw))
        layers.append(Layer(layout, values))
        raw = raw[layout.size :]
        layout, raw = NEXT[layout](layers, raw) if layout in NEXT else (None, raw)
    return Packet(tuple(layers), raw)
