# SPDX-License-Identifier: BSD-2-Clause
"""The machines of a lab, from the words of its options: what each kernel gets, and what runs in it first.

Machine N has MAC 02:00:00:00:00:0N, on ib0 10.9.0.N/24 and fd00:9::N/64, and on vec0 fe80::ff:fe00:N; on RoCE
and iWARP vec0 has 10.8.0.N/24, too. Its port's GUID is 0x000000fffe00000N.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from ipoibu.base.errors import UsageError
from ipoibu.base.limits import DEFAULT_QKEY, DEFAULT_SCOPE, ENCAP_LEN
from ipoibu.fabric.partition.conf import load
from ipoibu.fabric.partition.model import MemberType, Partition
from ipoibu.lab.machines.runner import INFINIBAND, SCENARIOS, source

NAMES: Final = "abcdefgh"
NO_FABRIC: Final = "none"  # no RDMA device, and vec0 is down
FABRICS: Final = ("ib", "roce", "iwarp", NO_FABRIC)
MODES: Final = ("datagram", "connected")
SOFT: Final = "ipoibu:soft"  # ipoibu on the built-in HCA
DEVICES: Final = {
    "rxe0": "ipoibu",
    "soft:vec0": SOFT,
    "siw0": "ipoibu",
}  # what ipoibu runs on, and the kind
KINDS: Final = ("kernel", "ipoibu", SOFT, "none")
MIXED: Final = "mixed"
MIXED_FIRST: Final = ""  # no user's word: ipoibu in the first machine, and in every other one
PARTITIONS: Final = "partitions.conf"  # its name in the run's directory
DEFAULT_PARTITIONS: Final = "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"  # OpenSM's own have mtu=4
SCRIPTS: Final = tuple(SCENARIOS / name for name in ("verbs_host.sh", "lab_machine.sh"))

# The kernel's rxe holds RoCE's UDP port.
WITHOUT_RXE: Final = "initcall_blacklist=rxe_module_init"

_DEFAULT_PKEY: Final = 0x7FFF
LINK_MTU: Final = 4092  # of IP in datagram mode where no partitions say otherwise
# By the MTU of a link, in bytes: the largest MTU of vec0 with which the port has just that one.
_WIRE_MTUS: Final = {4096: 9000, 2048: 4175}  # 1024 is too short for IPv6


@dataclass(frozen=True, slots=True)
class _Table:
    """The P_Keys of a port: first those of links, then others."""

    links: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One machine: its kernel's arguments, the script that sets it up, its addresses and what it is."""

    name: str
    index: int
    kind: str
    fabric: str
    mode: str
    kernel_arguments: tuple[str, ...]
    wire_mtu: int
    setup: str

    @property
    def interface(self) -> str:
        """The interface that has the addresses."""
        return "vec0" if self.kind == "none" else "ib0"

    @property
    def ipv4(self) -> str:
        """The IPv4 address; empty if there is none."""
        if self.kind != "none":
            return f"10.9.0.{self.index}"
        return f"10.8.0.{self.index}" if self.fabric in ("roce", "iwarp") else ""

    @property
    def ipv6(self) -> str:
        """The IPv6 address; link-local, so with %vec0, where no IP over InfiniBand runs."""
        if self.kind != "none":
            return f"fd00:9::{self.index}"
        return "" if self.fabric == NO_FABRIC else f"fe80::ff:fe00:{self.index}%vec0"

    @property
    def description(self) -> str:
        """What runs on the machine's port, in words."""
        port = {
            "ib": "rxe0 as an InfiniBand port",
            "roce": "rxe0",
            "iwarp": "siw0",
            NO_FABRIC: "no RDMA device",
        }[self.fabric]
        return {
            "kernel": f"ib_ipoib on {port}",
            "ipoibu": f"ipoibu on {port}",
            SOFT: "ipoibu on soft:vec0",
            "none": port,
        }[self.kind]

    @property
    def runs_ipoibu(self) -> bool:
        """Whether ipoibu has to be among the machine's programs."""
        return self.kind in ("ipoibu", SOFT)


def plan(
    guests: int,
    ipoib: str | None,
    fabric: str | None,
    mode: str,
    partitions: Path | None = None,
    *,
    sm: int = 0,
    device: str | None = None,
) -> list[Plan]:
    """Return the machines; `UsageError` names the word that is wrong, or that the others do not suit.

    `device` is what ipoibu runs on. Without `ipoib` ipoibu then runs in every other machine, or in all where
    the kernel has no IP over InfiniBand, and without `device` ib_ipoib in all.
    """
    fabric = _fabric(fabric, device)
    if not 1 <= guests <= len(NAMES):
        raise UsageError(f"--guests {guests}: a lab has 1 to {len(NAMES)} machines")
    for option, word, words in (("--fabric", fabric, FABRICS), ("--mode", mode, MODES)):
        if word not in words:
            raise UsageError(f"{option} {word!r}: expected one of {', '.join(words)}")
    kinds = _kinds(ipoib or _default_kinds(fabric, device), guests, device)
    if fabric == NO_FABRIC and set(kinds) != {"none"}:
        raise UsageError(f"--ipoib {ipoib}: --fabric none has nothing to run it on")
    if "kernel" in kinds and fabric != "ib":
        raise UsageError(f"--ipoib kernel needs --fabric ib: ib_ipoib does not run on {fabric}")
    if SOFT in kinds and fabric == "iwarp":
        raise UsageError(f"--ipoib {SOFT} needs --fabric ib or roce: the built-in HCA is no iWARP")
    if mode == "connected" and fabric == "iwarp":
        raise UsageError("--mode connected: on iwarp ipoibu has datagram mode only")
    _check_manager(fabric, kinds, sm)
    tables = [_Table()] * guests
    wire_mtu = _WIRE_MTUS[4096]
    if partitions is not None:
        if fabric in ("iwarp", NO_FABRIC):
            raise UsageError(f"--partitions: --fabric {fabric} has no partitions")
        if fabric == "ib":
            tables, wire_mtu = _tables(partitions, guests)
            if sm and any(it.links[0] & _DEFAULT_PKEY != _DEFAULT_PKEY for it in tables):
                raise UsageError(f"--sm: {partitions}: the partition 0x7fff needs the flag ipoib")
    return [
        Plan(
            name,
            index,
            kind,
            fabric,
            mode,
            _kernel_arguments(kind, fabric, mode, table, has_sm=sm > 0),
            wire_mtu,
            _setup(
                kind, fabric, mode, table.links, wire_mtu, has_file=partitions is not None, sm=sm
            ),
        )
        for index, (name, kind, table) in enumerate(
            zip(NAMES[:guests], kinds, tables, strict=True), 1
        )
    ]


def _fabric(fabric: str | None, device: str | None) -> str:
    """Return the fabric; `UsageError` unless the device of ipoibu is on it."""
    if device is not None and device not in DEVICES:
        raise UsageError(f"--device {device!r}: expected one of {', '.join(DEVICES)}")
    fabric = fabric or ("iwarp" if device == "siw0" else "ib")
    fits = fabric != NO_FABRIC and (device == "siw0") == (fabric == "iwarp")
    if device is not None and not fits:
        raise UsageError(f"--device {device}: a machine has none with --fabric {fabric}")
    return fabric


def _check_manager(fabric: str, kinds: Sequence[str], managers: int) -> None:
    """`UsageError` unless so many machines can run OpenSM."""
    if managers and fabric != "ib":
        raise UsageError(f"--sm needs --fabric ib: {fabric} has no subnet manager")
    if managers and SOFT in kinds:
        raise UsageError(f"--ipoib {SOFT} does without --sm: nothing manages the built-in HCA")
    if not 0 <= managers <= len(kinds):
        raise UsageError(f"--sm {managers}: there are {len(kinds)} machines")


def _default_kinds(fabric: str, device: str | None) -> str:
    """Return the machines' kinds where nobody has named them."""
    if device is None:
        return "none" if fabric == NO_FABRIC else "kernel"
    return MIXED_FIRST if fabric == "ib" else "ipoibu"


def _kinds(ipoib: str, guests: int, device: str | None) -> list[str]:
    repeated = {MIXED: ["kernel", "ipoibu"], MIXED_FIRST: ["ipoibu", "kernel"]}
    words = repeated.get(ipoib) or ipoib.split(",")
    wrong = [word for word in words if word not in KINDS]
    if wrong:
        raise UsageError(
            f"--ipoib {wrong[0]!r}: expected {', '.join(KINDS)}, {MIXED}, or a list with one for each"
        )
    if ipoib not in repeated and len(words) not in (1, guests):
        raise UsageError(f"--ipoib {ipoib}: {len(words)} words for {guests} machines")
    own = DEVICES.get(device or "", "ipoibu")
    return [own if word == "ipoibu" else word for word in islice(cycle(words), guests)]


def _kernel_arguments(
    kind: str, fabric: str, mode: str, table: _Table, *, has_sm: bool
) -> tuple[str, ...]:
    if kind == SOFT:
        return (WITHOUT_RXE,)
    if fabric != "ib":
        return ()
    arguments = list(INFINIBAND)
    pkeys = (*table.links, *table.others)
    if has_sm:
        arguments.append("rdma_rxe.sm=1")
    elif pkeys:
        arguments.append(f"rdma_rxe.pkeys={','.join(f'{pkey:#06x}' for pkey in pkeys)}")
    if kind == "ipoibu" and mode == "connected":
        arguments.append("initcall_blacklist=ib_cm_init")  # ipoibu's CM replaces the kernel's
    return tuple(arguments)


def _setup(
    kind: str,
    fabric: str,
    mode: str,
    pkeys: Sequence[int],
    wire_mtu: int,
    *,
    has_file: bool,
    sm: int = 0,
) -> str:
    """Return the script that makes a machine's devices and, if it has one, its interface."""
    if fabric == NO_FABRIC:
        return ""
    port = "soft" if kind == SOFT else fabric
    script = source(*SCRIPTS)
    if sm:
        script += f"managed_wire_up {wire_mtu} {sm}\n"
    else:
        script += f"wire_up {port} {wire_mtu}\n"
    if kind == "kernel":
        children = [f"{pkey:#06x}" for pkey in pkeys[1:] if pkey & 0x8000]
        script += shlex.join(["kernel_up", mode, *children]) + "\n"
    elif kind != "none":
        options = ["--mode", mode] if mode == "connected" else []
        if pkeys and pkeys[0] & 0x7FFF != _DEFAULT_PKEY:
            options += ["--pkey", f"{pkeys[0]:#06x}"]
        if has_file and port != "ib":
            options += ["--partitions", f"/run/lab/{PARTITIONS}"]
        elif kind == SOFT and fabric == "ib" and mode == "datagram":
            options += ["--mtu", str(max(_WIRE_MTUS) - ENCAP_LEN)]  # no SA says it
        script += shlex.join(["ipoibu_up", port, *options]) + "\n"
    return script


def _tables(file: Path, guests: int) -> tuple[list[_Table], int]:
    """Return the P_Key table of each port, and the MTU of vec0, for the partitions of the file.

    Partitions without the flag ipoib, such as the Default that OpenSM adds, stand behind those that have it.
    """
    partitions = sorted(
        load(file),
        key=lambda it: (not _has_link(it), not it.is_first, it.pkey.full & 0x7FFF != _DEFAULT_PKEY),
    )
    mtus = {_mtu_bytes(it) for it in partitions if _has_link(it)}
    if len(mtus) > 1:
        raise UsageError(f"{file}: all partitions must have one mtu: a machine has one port")
    mtu = max(mtus, default=max(_WIRE_MTUS))
    if mtu not in _WIRE_MTUS:
        raise UsageError(f"{file}: an mtu of {mtu} bytes: a port has {_words(_WIRE_MTUS)}")
    tables = []
    for index, name in enumerate(NAMES[:guests], 1):
        guid = 0xFFFE000000 + index
        links, others = (
            tuple(_keys(guid, [it for it in partitions if _has_link(it) is has_link]))
            for has_link in (True, False)
        )
        if not links:
            raise UsageError(
                f"{file}: machine {name} (0x{guid:016x}) is in no partition with the flag ipoib"
            )
        tables.append(_Table(links, others))
    return tables, _WIRE_MTUS[mtu]


def _keys(guid: int, partitions: Sequence[Partition]) -> Iterator[int]:
    for partition in partitions:
        membership = partition.membership(guid)
        if membership is not None:
            limited = 0x8000 if membership is MemberType.LIMITED else 0
            yield partition.pkey.full & ~limited


def _has_link(partition: Partition) -> bool:
    return bool(partition.broadcast_groups())


def _mtu_bytes(partition: Partition) -> int:
    """Return the MTU of a partition's link; `UsageError` for what a port's own SA cannot have.

    That SA gives every partition of the port a broadcast group, with the same parameters.
    """
    group, *others = partition.broadcast_groups()
    wanted = (group.scope, group.qkey, group.sl, group.traffic_class, group.flow_label)
    if others or wanted != (DEFAULT_SCOPE, DEFAULT_QKEY, 0, 0, 0) or partition.own_params(group):
        raise UsageError(
            f"{group.place}: a lab machine's port has groups of scope 2 and Q_Key {DEFAULT_QKEY:#x},"
            " without sl, TClass and FlowLabel"
        )
    return group.mtu_bytes


def _words(numbers: dict[int, int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
