# SPDX-License-Identifier: BSD-2-Clause
"""The configuration of one interface: from options, from a TOML file, or both (options win)."""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from ipoibu.addr import IpInterface, PKey
from ipoibu.daemon.options import BY_NAME, OPTIONS, Option
from ipoibu.endpoint.config import Conflict, EndpointConfig
from ipoibu.errors import NotPermitted, UsageError
from ipoibu.fabric.base import MeshOptions
from ipoibu.host.interface import RouteSpec
from ipoibu.host.tun import check_name
from ipoibu.limits import IPV6_MIN_MTU
from ipoibu.sandbox.stages import Stage
from ipoibu.sandbox.user import User

if TYPE_CHECKING:
    from ipoibu.daemon.metrics_server import ListenAddress

CONFIG_FILE_MAX_BYTES: Final = 1 << 20

# The names of `EndpointConfig`'s fields in messages of the command line.
_FLAGS: Final = {
    option.field.removeprefix("endpoint."): f"--{option.name}"
    for option in OPTIONS
    if option.field.startswith("endpoint.")
}


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """The configuration that `ipoibu up` needs."""

    endpoint: EndpointConfig

    # Addresses and routes that the kernel's interface gets
    address: tuple[IpInterface, ...] = ()
    route: tuple[RouteSpec, ...] = ()

    # Super-frames between the kernel and the data path, as far as the kernel supports them
    offload: bool = True

    # "create" makes a TUN; "attach" takes the administrator's, with its MTU, addresses and routes
    tun: str = "create"

    # Bound on the exit latency of idle CPUs, in microseconds; None leaves it alone
    cpu_latency: int | None = None

    log_level: str = "warning"

    # Where an HTTP server offers the metrics, if anywhere
    metrics: ListenAddress | None = None

    # The user that the process becomes, and the last stage of what it gives up (docs/sandbox.md)
    user: User | None = None
    sandbox: Stage = Stage.SECCOMP

    # The value of each option that was given, by the option's name
    values: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.tun == "attach" and (self.address or self.route):
            raise UsageError(
                "--tun attach leaves addresses and routes to the administrator: leave --address and"
                f" --route out, and use `ip address add ... dev {self.name}`"
            )
        if self.user is not None and self.sandbox < Stage.CAPABILITIES:
            raise UsageError(
                f"--user {self.user.name} needs stage {Stage.CAPABILITIES:d} at least:"
                f" --sandbox {Stage.CAPABILITIES:d}"
            )
        mtu = self.endpoint.mtu
        if mtu is None or mtu >= IPV6_MIN_MTU:
            return
        ipv6: list[object] = [a for a in self.address if a.version == 6]
        ipv6 += [r for r in self.route if r.network.version == 6]
        if ipv6:
            raise UsageError(f"--mtu {mtu} is too small for {ipv6[0]}: IPv6 needs {IPV6_MIN_MTU}")

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def logging_level(self) -> int:
        return logging.getLevelNamesMapping()[self.log_level.upper()]

    @classmethod
    def build(
        cls, name: str, options: Mapping[str, str | Sequence[str]], file: Path | None = None
    ) -> Self:
        """Make a configuration of option texts by name, which override those of the TOML `file`;
        `UsageError` names option and place."""
        values: dict[str, object] = {}
        if file is not None:
            for key, value in read_file(file).items():
                values[key] = _read(key, value, f"{file}: {key}")
        values |= _read_options(options)
        if "device" not in values:
            raise UsageError(
                "no device given: use --device soft:NETDEV (any network device) or an RDMA device"
            )
        return cls._assemble(name, values)

    def child(self, pkey: PKey, options: Mapping[str, str | Sequence[str]]) -> Self:
        """Return the configuration of a child in the partition `pkey`, with these options of its own."""
        values = {key: value for key, value in self.values.items() if BY_NAME[key].is_inherited}
        values |= _read_options(options)
        name = f"{self.name}.{pkey.full:04x}"
        return self._assemble(name, values | {"pkey": pkey.full}, parent=self.name)

    @classmethod
    def _assemble(cls, name: str, values: Mapping[str, object], parent: str | None = None) -> Self:
        """Put each value where its option's `field` says."""
        parts: dict[str, dict[str, Any]] = {"": {}, "endpoint": {}, "mesh": {}}
        for key, value in values.items():
            part, _, place = BY_NAME[key].field.rpartition(".")
            parts[part][place] = value
        device, port = parts["endpoint"].pop("device")
        has_mesh = any(parts["mesh"].values())
        try:
            endpoint = EndpointConfig(
                name=check_name(name),
                device=device,
                port=port,
                parent=parent,
                mesh=MeshOptions(**parts["mesh"]) if has_mesh else None,
                **parts["endpoint"],
            )
        except Conflict as error:
            raise UsageError(error.naming(_FLAGS)) from error
        return cls(endpoint, **parts[""], values=values)


def _read_options(options: Mapping[str, str | Sequence[str]]) -> dict[str, object]:
    return {key: _read(key, text, f"--{key}") for key, text in options.items()}


def _read(key: str, value: str | Sequence[str], place: str) -> object:
    option = BY_NAME[key]
    try:
        if not option.several:
            if not isinstance(value, str):
                raise UsageError("one value is expected")
            return option.read(value)
        texts = [value] if isinstance(value, str) else value
        return tuple(option.read(text) for text in texts)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from error


def read_file(path: Path) -> dict[str, str | list[str]]:
    """Read the file's keys as option texts; `UsageError` names the file and the wrong key."""
    try:
        if os.stat(path).st_size > CONFIG_FILE_MAX_BYTES:
            raise UsageError(f"{path}: too large for a configuration file")
        content = path.read_text(encoding="utf-8")
    except PermissionError as error:
        raise NotPermitted(f"{path}: not readable for this user") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = os.strerror(error.errno or 0) if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path}: {reason}") from error
    try:
        table = tomllib.loads(content)
    except (ValueError, RecursionError) as error:  # also for a number of thousands of digits
        raise UsageError(f"{path}: not a TOML file: {error}") from error
    values: dict[str, str | list[str]] = {}
    for key, value in table.items():
        if key not in BY_NAME:
            raise UsageError(
                f"{path}: unknown key {key!r} (known: {', '.join(sorted(BY_NAME))})"
            ) from None
        is_key = key == "pkey" and type(value) is int and 0 < value <= 0xFFFF
        text = hex(value) if is_key else value  # a number of TOML is not ambiguous
        values[key] = _texts(text, f"{path}: {key}", BY_NAME[key])
    return values


def _texts(value: Any, place: str, option: Option) -> str | list[str]:
    if isinstance(value, bool) and option.metavar.startswith("on|off"):
        return "on" if value else "off"
    if isinstance(value, list) and option.several:
        return [_text(item, place) for item in value]
    return _text(value, place)


def _text(value: Any, place: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        return str(value)  # pkey = 0x8001, mtu = 2044
    raise UsageError(f"{place}: a string or a number is expected")
