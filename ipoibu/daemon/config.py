# SPDX-License-Identifier: BSD-2-Clause
"""What one interface is to be: read from options, from a TOML file, or from both (options win)."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from ipoibu.addr import DEFAULT_PKEY, IpInterface, PKey
from ipoibu.errors import NotPermitted, UsageError
from ipoibu.fabric.device_name import parse_device
from ipoibu.fabric.faults import FaultSpec
from ipoibu.host.interface import RouteSpec
from ipoibu.host.tun import check_name
from ipoibu.limits import (
    BUSY_POLL_MAX_US,
    CONNECTED_MTU,
    CONNECTION_IDLE_MAX_S,
    CONNECTION_IDLE_MIN_S,
    CONNECTION_IDLE_S,
    CPU_LATENCY_MAX_US,
    IPV4_MIN_MTU,
    IPV6_MIN_MTU,
    QUEUES_MAX,
)

CONFIG_FILE_MAX_BYTES: Final = 1 << 20
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
MODES: Final = ("datagram", "connected")
CM_PROFILES: Final = ("linux", "rfc")


def parse_address(text: str) -> IpInterface:
    """A host address with its prefix length: `10.0.0.1/24`, `fd00::1/64`."""
    try:
        address = ipaddress.ip_interface(text)
    except ValueError as error:
        raise UsageError(
            f"{text!r} is no address in CIDR form (expected such as 10.0.0.1/24 or fd00::1/64)"
        ) from error
    if "%" in text:
        raise UsageError(f"{text!r}: leave the zone out: it is this interface")
    if "/" not in text:
        raise UsageError(f"{text!r} lacks a prefix length (expected such as {text}/24)")
    ip = address.ip  # the interface type answers for its network
    if ip.is_multicast or ip.is_unspecified or ip.is_loopback:
        raise UsageError(f"{text!r} cannot be an interface's address")
    return address


def parse_route(text: str) -> RouteSpec:
    """`DST[,via=GW]` where DST is a network in CIDR form or `default`."""
    destination, *options = text.split(",")
    if "%" in text:
        raise UsageError(f"route {text!r}: leave the zone out: it is this interface")
    via = None
    for option in options:
        key, _, value = option.partition("=")
        if key != "via" or via is not None:
            raise UsageError(f"route {text!r}: {option!r} is not understood (expected via=GATEWAY)")
        try:
            via = ipaddress.ip_address(value)
        except ValueError as error:
            raise UsageError(f"route {text!r}: the gateway {value!r} is no address") from error
        if via.is_multicast or via.is_unspecified:
            raise UsageError(f"route {text!r}: {value!r} cannot be a gateway")
    if destination == "default":
        destination = "::/0" if via is not None and via.version == 6 else "0.0.0.0/0"
    try:
        network = ipaddress.ip_network(destination)
    except ValueError as error:
        raise UsageError(
            f"route {text!r}: {destination!r} is no network in CIDR form"
            " (expected such as 10.1.0.0/16, without host bits)"
        ) from error
    if via is not None and via.version == 4 and network.version == 6:
        raise UsageError(f"route {text!r}: an IPv6 network cannot go via an IPv4 gateway")
    return RouteSpec(network, via)


def parse_mtu(text: str) -> int:
    """An IP MTU in bytes."""
    if not re.fullmatch(r"[0-9]{1,6}", text) or not IPV4_MIN_MTU <= int(text) <= CONNECTED_MTU:
        raise UsageError(f"{text!r} is no MTU: expected {IPV4_MIN_MTU} to {CONNECTED_MTU} bytes")
    return int(text)


def parse_mode(text: str) -> str:
    if text not in MODES:
        raise UsageError(f"{text!r} is no mode: expected datagram or connected")
    return text


def parse_profile(text: str) -> str:
    if text not in CM_PROFILES:
        raise UsageError(f"{text!r} is no profile of connected mode: expected linux or rfc")
    return text


def parse_peer_text(text: str) -> str:
    """HOST[:PORT], as it was given."""
    from ipoibu.fabric.mesh.peer_list import parse_peer

    parse_peer(text)
    return text


def parse_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or not 0 < int(text) < 1 << 16:
        raise UsageError(f"{text!r} is no port: expected 1 to 65535")
    return int(text)


def parse_switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise UsageError(f"{text!r} is neither on nor off")
    return text == "on"


def parse_busy_poll(text: str) -> int | None:
    """Microseconds that the data path looks for the next packet before it sleeps; None for auto:
    where answers come soon."""
    return None if text == "auto" else _microseconds(text, BUSY_POLL_MAX_US)


def parse_cpu_latency(text: str) -> int:
    """Microseconds that an idle CPU may take to wake up."""
    return _microseconds(text, CPU_LATENCY_MAX_US)


def _microseconds(text: str, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) > most:
        raise UsageError(f"{text!r}: expected 0 to {most} microseconds")
    return int(text)


def parse_queues(text: str) -> int:
    """How many threads move packets, each with a queue of the TUN."""
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= QUEUES_MAX:
        raise UsageError(f"{text!r}: expected 1 to {QUEUES_MAX} queues")
    return int(text)


def parse_connection_idle(text: str) -> float:
    """Seconds after which a connection that carries nothing ends."""
    if not re.fullmatch(r"[0-9]{1,5}", text) or not (
        CONNECTION_IDLE_MIN_S <= int(text) <= CONNECTION_IDLE_MAX_S
    ):
        raise UsageError(
            f"{text!r}: expected {CONNECTION_IDLE_MIN_S:g} to {CONNECTION_IDLE_MAX_S:g} seconds"
        )
    return float(text)


def parse_log_level(text: str) -> str:
    if text not in LOG_LEVELS:
        raise UsageError(f"{text!r} is no log level: expected one of {', '.join(LOG_LEVELS)}")
    return text


def parse_file(text: str) -> Path:
    """A file's whole path: a child interface reads it again later."""
    if not text:
        raise UsageError("a file's name is expected")
    return Path(text).absolute()


# Key of the file and of the option -> how its text is read, and whether there may be several.
_KEYS: Final[dict[str, tuple[Callable[[str], object], bool]]] = {
    "device": (parse_device, False),
    "pkey": (PKey.parse, False),
    "partitions": (parse_file, False),
    "mode": (parse_mode, False),
    "cm-profile": (parse_profile, False),
    "connection-idle": (parse_connection_idle, False),
    "mtu": (parse_mtu, False),
    "address": (parse_address, True),
    "route": (parse_route, True),
    "faults": (FaultSpec.parse, False),
    "offload": (parse_switch, False),
    "busy-poll": (parse_busy_poll, False),
    "cpu-latency": (parse_cpu_latency, False),
    "queues": (parse_queues, False),
    "allmulticast": (parse_switch, False),
    "peer": (parse_peer_text, True),
    "peers-file": (parse_file, False),
    "mesh-port": (parse_port, False),
    "log-level": (parse_log_level, False),
}


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """Everything `ipoibu up` needs to know; each value is checked.

    `faults` spoils what the interface sends, for tests. `offload`: super-frames between the kernel
    and the data path, as far as the kernel can.
    """

    name: str
    device: tuple[str, int]
    pkey: PKey = DEFAULT_PKEY
    partitions: Path | None = None
    mode: str = "datagram"
    cm_profile: str = "linux"
    connection_idle: float = CONNECTION_IDLE_S
    mtu: int | None = None
    address: tuple[IpInterface, ...] = ()
    route: tuple[RouteSpec, ...] = ()
    faults: FaultSpec | None = None
    offload: bool = True
    busy_poll: int | None = None
    cpu_latency: int | None = None
    queues: int = 1
    allmulticast: bool = False
    peer: tuple[str, ...] = ()
    peers_file: Path | None = None
    mesh_port: int | None = None
    log_level: str = "warning"

    @property
    def logging_level(self) -> int:
        return logging.getLevelNamesMapping()[self.log_level.upper()]

    @classmethod
    def build(
        cls, name: str, options: Mapping[str, str | Sequence[str]], file: Path | None = None
    ) -> Self:
        """Options as text by key, over those of the TOML `file`; `UsageError` names key and
        place."""
        values: dict[str, object] = {}
        if file is not None:
            for key, value in read_file(file).items():
                values[key] = _read(key, value, f"{file}: {key}")
        for key, text in options.items():
            values[key] = _read(key, text, f"--{key}")
        if "device" not in values:
            raise UsageError(
                "no device given: use --device soft:NETDEV (any network device) or an RDMA device"
            )
        named: dict[str, Any] = {key.replace("-", "_"): value for key, value in values.items()}
        config = cls(name=check_name(name), **named)
        config._check()
        return config

    def child(self, pkey: PKey, options: Mapping[str, str | Sequence[str]]) -> Self:
        """The child interface in the partition `pkey`, with addresses and MTU of its own."""
        values: dict[str, Any] = {"mtu": None, "address": (), "route": ()}
        values |= {key: _read(key, text, f"--{key}") for key, text in options.items()}
        name = check_name(f"{self.name}.{pkey.full:04x}")
        config = replace(self, name=name, pkey=pkey.full, **values)
        config._check()
        return config

    def _check(self) -> None:
        if self.queues > 1 and self.mode == "connected":
            raise UsageError(
                "--queues is for datagram mode: a connection belongs to one thread; leave it out"
            )
        if self.queues > 1 and (self.peer or self.peers_file or self.mesh_port):
            raise UsageError(
                "--queues is not for iWARP: a connection belongs to one thread; leave it out"
            )
        if self.mtu is None or self.mtu >= IPV6_MIN_MTU:
            return
        wanted: list[object] = [a for a in self.address if a.version == 6]
        wanted += [r for r in self.route if r.network.version == 6]
        if wanted:
            raise UsageError(
                f"--mtu {self.mtu} is too small for {wanted[0]}: IPv6 needs {IPV6_MIN_MTU}"
            )


def _read(key: str, value: str | Sequence[str], place: str) -> object:
    parse, several = _KEYS[key]
    try:
        if not several:
            if not isinstance(value, str):
                raise UsageError("one value is expected")
            return parse(value)
        texts = [value] if isinstance(value, str) else value
        return tuple(parse(text) for text in texts)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def read_file(path: Path) -> dict[str, str | list[str]]:
    """The file's keys as option texts; `UsageError` names the file and the key that is wrong."""
    try:
        if os.stat(path).st_size > CONFIG_FILE_MAX_BYTES:
            raise UsageError(f"{path}: too large for a configuration file")
        text = path.read_text(encoding="utf-8")
    except PermissionError as error:
        raise NotPermitted(f"{path}: not readable for this user") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path}: {reason}") from error
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        raise UsageError(f"{path}: not a TOML file: {error}") from error
    values: dict[str, str | list[str]] = {}
    for key, value in table.items():
        if key not in _KEYS:
            raise UsageError(
                f"{path}: unknown key {key!r} (known: {', '.join(sorted(_KEYS))})"
            ) from None
        values[key] = _texts(value, f"{path}: {key}", several=_KEYS[key][1])
    return values


def _texts(value: Any, place: str, *, several: bool) -> str | list[str]:
    if isinstance(value, list) and several:
        return [_text(item, place) for item in value]
    return _text(value, place)


def _text(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        return str(value)  # pkey = 0x8001, mtu = 2044
    raise UsageError(f"{place}: a string or a number is expected")
