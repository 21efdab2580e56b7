# SPDX-License-Identifier: BSD-2-Clause
"""The configuration of one interface: from options, from a TOML file, or both (options win)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from ipoibu.base.addr import (
    DEFAULT_PKEY,
    IpAddress,
    IpInterface,
    IpNetwork,
    Mac,
    PKey,
    may_name_partition,
)
from ipoibu.base.device_name import DeviceKind
from ipoibu.base.errors import IpoibuError, UsageError
from ipoibu.base.interface_name import check_name
from ipoibu.base.limits import CHILDREN_MAX, ENCAP_LEN, IB_MTUS, IPV6_MIN_MTU, PROXY_NETWORKS_MAX
from ipoibu.daemon.config.config_file import ConfigFile, Fault, read_value
from ipoibu.daemon.config.lease_dir import default_lease_dir
from ipoibu.daemon.config.options import BY_NAME, OPTIONS, Option
from ipoibu.daemon.config.parsers import Dynamic, Proxied, lasting
from ipoibu.endpoint.config import Conflict, EndpointConfig
from ipoibu.endpoint.dhcp_config import DhcpConfig
from ipoibu.fabric.base import MeshOptions
from ipoibu.fabric.verbs.node_type import is_iwarp
from ipoibu.proto.ethernet_config import EthernetConfig
from ipoibu.sandbox.stages import Stage
from ipoibu.sandbox.user import User

if TYPE_CHECKING:
    from ipoibu.daemon.metrics.metrics_server import ListenAddress
    from ipoibu.host.kernel_interface import RouteSpec
    from ipoibu.host.netns import NetworkNamespace

_Config = TypeVar("_Config", bound="InterfaceConfig")

# The names of `EndpointConfig`'s fields in messages of the command line.
_FLAGS: Final = {
    option.field.removeprefix("endpoint."): f"--{option.name}"
    for option in OPTIONS
    if option.field.startswith("endpoint.")
} | {"mesh": "--peer"}


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """The configuration that `ipoibu up` needs."""

    endpoint: EndpointConfig

    # Addresses and routes that the kernel's interface gets
    address: tuple[IpInterface, ...] = ()
    route: tuple[RouteSpec, ...] = ()

    # What to answer for as a proxy, if the kernel routes it to another interface
    proxy: tuple[IpNetwork | Proxied, ...] = ()

    # The partitions of the VLANs in a TAP: children without TAPs of their own
    vlan: tuple[tuple[int, PKey], ...] = ()

    # Super-frames between the kernel and the data path, as far as the kernel supports them
    offload: bool = True

    # "create" makes a TUN; "attach" takes the administrator's, with its MTU, addresses and routes
    tun: str = "create"

    # The network namespace of the interface, if it is not that of the device
    netns: NetworkNamespace | None = None

    # Bound on the exit latency of idle CPUs, in microseconds; None leaves it alone
    cpu_latency: int | None = None

    log_level: str = "warning"

    # Seconds to wait for the device and its address; None: `OPEN_WAIT_S`, for the address alone
    wait: int | None = None

    # The address at which an HTTP server offers the metrics, if there is one
    metrics: ListenAddress | None = None

    # The user that the process becomes, and the last stage of its sandbox (docs/use/sandbox.md)
    user: User | None = None
    sandbox: Stage = Stage.SECCOMP

    # The children that the file names, which start with the interface
    children: tuple[InterfaceConfig, ...] = ()

    # The value of each option that was given, by the option's name
    values: Mapping[str, object] = field(default_factory=dict, repr=False)

    # The file that was read, and the values of options that override it
    file: Path | None = None
    given: Mapping[str, object] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        is_dynamic = self.endpoint.dhcp is not None or self.endpoint.dhcp6 is not None
        is_given = self.address or self.route or is_dynamic
        if self.tun == "attach" and is_given:
            raise UsageError(
                "--tun attach leaves addresses and routes to the administrator: leave --address and"
                f" --route out, and use `ip address add ... dev {self.name}`"
            )
        if self.endpoint.ethernet is not None:
            self._check_guests(is_given)
            self._check_vlans()
        elif self.vlan:
            raise UsageError("--vlan is for the guests behind a TAP: use --ethernet")
        if self.user is not None and self.sandbox < Stage.CAPABILITIES:
            raise UsageError(
                f"--user {self.user.name} needs stage {Stage.CAPABILITIES:d} at least:"
                f" --sandbox {Stage.CAPABILITIES:d}"
            )
        if len(self.proxy) > PROXY_NETWORKS_MAX:
            raise UsageError(f"more than {PROXY_NETWORKS_MAX} times --proxy: name larger networks")
        mtu = self.endpoint.mtu
        if mtu is None or mtu >= IPV6_MIN_MTU:
            return
        if (wish := self._ipv6_wish()) is not None:
            raise UsageError(f"--mtu {mtu} is too small for {wish}: IPv6 needs {IPV6_MIN_MTU}")

    def _check_guests(self, has_addresses: object) -> None:
        """The interface has no addresses: its guests have."""
        if has_addresses:
            raise UsageError(
                "--ethernet: the guests have the addresses and routes: leave --address and --route out, and"
                " give the host's own to the bridge"
            )
        if self.proxy:
            raise UsageError("--ethernet: the guests answer for themselves: leave --proxy out")
        if self.tun == "attach":
            raise UsageError("--ethernet makes a TAP of its own: leave --tun attach out")

    def _check_vlans(self) -> None:
        """Each VLAN has one partition, and each partition one VLAN."""
        vlans, pkeys = Counter(it for it, _ in self.vlan), Counter(it for _, it in self.vlan)
        for value, count in (*vlans.items(), *pkeys.items()):
            if count > 1:
                kind = "partition" if isinstance(value, PKey) else "VLAN"
                raise UsageError(f"--vlan: {kind} {value} is given {count} times")
        if self.endpoint.pkey.full in pkeys:
            raise UsageError(
                f"--vlan: {self.endpoint.pkey.full} is the partition of {self.name} itself, whose frames have"
                " no tag"
            )
        if len(pkeys) > CHILDREN_MAX:
            raise UsageError(f"more than {CHILDREN_MAX} times --vlan")

    @property
    def name(self) -> str:
        return self.endpoint.name

    @property
    def tap_vlan(self) -> int | None:
        """The VLAN in the parent's TAP that this child serves, None if it has a device of its own."""
        ethernet = self.endpoint.ethernet
        return None if ethernet is None else ethernet.vlan

    @property
    def logging_level(self) -> int:
        return logging.getLevelNamesMapping()[self.log_level.upper()]

    @classmethod
    def build(
        cls, name: str, options: Mapping[str, str | Sequence[str]], file: Path | None = None
    ) -> Self:
        """Make a configuration of option texts by name, which override those of the TOML `file`;
        `UsageError` names option and place."""
        check_name(name)
        given = _read_options(options)
        if file is None:
            return cls.from_values(name, given).with_vlans()
        return _of_file(cls, name, ConfigFile(file), given)

    def read_again(self) -> Self:
        """Read the file again, which the same options override; `UsageError` names file, line and key."""
        if self.file is None:
            raise UsageError(f"{self.name} has no configuration file: start it with --config")
        return _of_file(type(self), self.name, ConfigFile(self.file), self.given)

    def surroundings(self) -> Iterator[tuple[InterfaceConfig, str, IpoibuError]]:
        """Yield what is wrong with the files that options name, and with the MTU for the kind of device, each
        with the configuration, of a child too, and the option: what `up` would find out once its device is
        open. The sandbox of a running interface does not permit this."""
        mesh = self.endpoint.mesh
        if mesh is not None and mesh.key is not None:
            yield from self._errors("peer-key-file", lambda: mesh.key and mesh.key.secret)
        if mesh is not None and mesh.file is not None:
            from ipoibu.fabric.mesh.peer_list import read_peers  # few interfaces have such a file

            yield from self._errors("peers-file", partial(read_peers, mesh.file))
        everyone: tuple[InterfaceConfig, ...] = (self, *self.children)
        for config in everyone:
            yield from config._errors("partitions", config._check_link)
            yield from config._errors("mtu", config._check_rdma_mtu)

    def _errors(
        self, key: str, check: Callable[[], object]
    ) -> Iterator[tuple[InterfaceConfig, str, IpoibuError]]:
        try:
            check()
        except IpoibuError as error:
            yield self, key, error

    def check_surroundings(self) -> None:
        """Raise the first of `surroundings`."""
        for _, _, error in self.surroundings():
            raise error

    def _check_rdma_mtu(self) -> None:
        """Of RDMA devices, those of iWARP alone carry more than InfiniBand's largest MTU in a datagram. One
        that does not exist may be of iWARP if `up` waits for it; otherwise `up` refuses it anyway."""
        endpoint, largest = self.endpoint, IB_MTUS[-1] - ENCAP_LEN
        names = [it for it, _ in endpoint.places if DeviceKind.of(it) is DeviceKind.RDMA]
        mtu = endpoint.datagram_mtu
        if mtu is None or mtu <= largest or not names:
            return
        kinds = [is_iwarp(name) for name in names]
        if any(kinds) or (None in kinds and self.wait):
            return
        raise UsageError(
            f"--mtu {mtu} is too large for datagram mode: choose at most {largest}, or --mode connected"
        )

    def _check_link(self) -> None:
        """Check the partition against `--partitions`, as far as that does not depend on the port."""
        endpoint = self.endpoint
        if endpoint.partitions is None:
            return
        from ipoibu.fabric.partition.conf import load
        from ipoibu.fabric.partition.provision import link_group

        mtu = endpoint.datagram_mtu
        _, group = link_group(load(endpoint.partitions), endpoint.pkey, endpoint.qkey, mtu)
        mtu = min(group.mtu_bytes - ENCAP_LEN, mtu or group.mtu_bytes)
        if (wish := self._ipv6_wish()) is not None and mtu < IPV6_MIN_MTU:
            raise UsageError(
                f"{group.place}: the link carries an MTU of {mtu}, too small for {wish}: IPv6 needs"
                f" {IPV6_MIN_MTU}"
            )

    def _ipv6_wish(self) -> object | None:
        """The first IPv6 address or route that the interface is to have."""
        addresses = (each for each in self.address if each.version == 6)
        routes = (each for each in self.route if each.network.version == 6)
        wish = next(addresses, None) or next(routes, None)
        return "dhcp6" if wish is None and self.endpoint.dhcp6 is not None else wish

    def with_values(self, values: Mapping[str, object]) -> Self:
        """Return this configuration with these values by option name."""
        config = self._assemble(self.name, values, self.endpoint.parent)._in_vlan(self.tap_vlan)
        return replace(config, children=self.children, file=self.file, given=self.given)

    def with_children(self, children: Sequence[Self]) -> Self:
        return replace(self, children=tuple(children))

    @classmethod
    def from_values(cls, name: str, values: Mapping[str, object]) -> Self:
        """Make a configuration without children of values by option name."""
        if not values.get("device"):  # an empty list, too
            raise UsageError(
                "no device given: use --device soft:NETDEV (any network device) or an RDMA device"
            )
        return cls._assemble(name, values)

    def with_child(self, pkey: PKey, own: Mapping[str, object]) -> Self:
        """Return this configuration with one more child, whose own values are `own`."""
        if pkey == self.endpoint.pkey.full:
            raise UsageError(f"{pkey} is the partition of {self.name} itself")
        child = self._child(pkey, own)
        if child.name in (self.name, *(each.name for each in self.children)):
            raise UsageError(f"--name {child.name} is another interface of this file")
        return replace(self, children=(*self.children, child))

    def below(self, parent: str) -> Self:
        """Return this child's configuration under a parent that has another name now."""
        name = self.name if "name" in self.values else self.endpoint.pkey.child_of(parent)
        return replace(self, endpoint=replace(self.endpoint, name=check_name(name), parent=parent))

    def with_vlans(self) -> Self:
        """Return this configuration with a child for each VLAN whose partition has none yet."""
        known = {child.endpoint.pkey for child in self.children}
        missing = [self._child(pkey, {}) for _, pkey in self.vlan if pkey not in known]
        if len(known) + len(missing) > CHILDREN_MAX:
            raise UsageError(f"--vlan: more than {CHILDREN_MAX} partitions of VLANs and children")
        return replace(self, children=(*self.children, *missing))

    def _in_vlan(self, vlan: int | None) -> Self:
        """Return a child's configuration for a VLAN of its parent's TAP."""
        ethernet = self.endpoint.ethernet
        if vlan is None or ethernet is None:
            return self
        return replace(self, endpoint=replace(self.endpoint, ethernet=replace(ethernet, vlan=vlan)))

    def child(self, pkey: PKey, options: Mapping[str, str | Sequence[str]]) -> Self:
        """Return the configuration of a child in the partition `pkey`, with these options of its own."""
        return self._child(pkey, _read_options(options))

    def _child(self, pkey: PKey, own: Mapping[str, object]) -> Self:
        values = {key: value for key, value in self.values.items() if BY_NAME[key].is_inherited}
        name = str(own.get("name", pkey.child_of(self.name)))
        child = self._assemble(name, {**values, **own, "pkey": pkey.full}, parent=self.name)
        return child._in_vlan(next((it for it, of in self.vlan if of == pkey.full), None))

    @classmethod
    def _assemble(cls, name: str, values: Mapping[str, object], parent: str | None = None) -> Self:
        """Put each value where its option's `field` says."""
        parts: dict[str, dict[str, Any]] = {
            part: {} for part in ("", "endpoint", "mesh", "dhcp", "ethernet")
        }
        for key, value in values.items():
            part, _, place = BY_NAME[key].field.rpartition(".")
            parts[part][place] = value
        if "pkey" not in parts["endpoint"] and (pkey := _pkey_of(name)) is not None:
            parts["endpoint"]["pkey"] = pkey
        parts["endpoint"]["name"] = check_name(name)
        (device, port), *backups = parts["endpoint"].pop("device")
        is_ethernet = parts["endpoint"].pop("ethernet", False)
        given = parts[""].get("address", ())
        parts[""]["address"] = tuple(each for each in given if not isinstance(each, Dynamic))
        dhcp = DhcpConfig(**{"lease_dir": default_lease_dir(), **parts["dhcp"]})
        has_mesh = any(parts["mesh"].values())
        try:
            endpoint = EndpointConfig(
                device=device,
                port=port,
                backups=tuple(backups),
                parent=parent,
                mesh=MeshOptions(**parts["mesh"]) if has_mesh else None,
                ethernet=_ethernet(is_ethernet, **parts["ethernet"]),
                dhcp=dhcp if Dynamic.DHCP in given else None,
                dhcp6=dhcp if Dynamic.DHCP6 in given else None,
                **parts["endpoint"],
            )
        except Conflict as error:
            raise UsageError(error.naming(_FLAGS)) from error
        return cls(endpoint, **parts[""], values=values)


def default_of(option: Option) -> object:
    """The value of an option that nobody gives."""
    if option.several:
        return ()
    part, _, name = option.field.rpartition(".")
    kind = EndpointConfig if part == "endpoint" else InterfaceConfig
    return next(it.default for it in fields(kind) if it.name == name)


def _pkey_of(name: str) -> PKey | None:
    """The P_Key that the name says. An interface in the default partition in place of a tenant's would
    be on another link without a word, so a name that may say one does not come up without `--pkey`."""
    pkey = PKey.of_name(name)
    if pkey is None and may_name_partition(name):
        raise UsageError(
            f"the name {name} may mean a partition: give --pkey ({DEFAULT_PKEY} for the default one), or a"
            " name such as ib0.8001"
        )
    return pkey


def _ethernet(
    is_on: bool,
    static: Sequence[tuple[Mac, Sequence[IpAddress]]] = (),
    queue_pairs: int | None = None,
) -> EthernetConfig | None:
    if not is_on:
        if static or queue_pairs is not None:
            option = "guest" if static else "guest-queue-pairs"
            raise UsageError(f"--{option} is for the guests behind a TAP: use --ethernet")
        return None
    if queue_pairs is None:
        return EthernetConfig.bound(static)
    return EthernetConfig.bound(static, queue_pairs)


def _read_options(options: Mapping[str, str | Sequence[str]]) -> dict[str, object]:
    return {key: _read(key, text) for key, text in options.items()}


def _read(key: str, value: str | Sequence[str]) -> object:
    try:
        return read_value(BY_NAME[key], value)
    except UsageError as error:
        raise UsageError(f"--{key}: {error}") from error


def faults(path: Path) -> list[Fault]:
    """Return every fault for which `up` would refuse a configuration file before it opens a device;
    `UsageError` if it is not readable, or not TOML."""
    file = ConfigFile(path)
    config = _examine(InterfaceConfig, _name_of(path), file, {})
    if config is not None:
        for own, key, error in config.surroundings():
            file.add_at(key, error, None if own is config else own.endpoint.pkey)
    return file.faults


def _of_file(
    kind: type[_Config], name: str, file: ConfigFile, given: Mapping[str, object]
) -> _Config:
    config = _examine(kind, name, file, given)
    if file.faults or config is None:
        raise file.faults[0].error()
    path = None if file.path.is_fifo() else lasting(file.path)  # a pipe cannot be read again
    return replace(config, file=path, given=given)


def _examine(
    kind: type[_Config], name: str, file: ConfigFile, given: Mapping[str, object]
) -> _Config | None:
    """Make a configuration of a file and of the values that override it, and add what contradicts itself to
    the faults of the file. None if a fault leaves nothing to go on with."""
    if file.faults:
        return None
    try:
        config = kind.from_values(name, {**file.values, **given})
    except UsageError as error:
        file.add_contradiction(error)
        return None
    for pkey, own in file.children.items():
        try:
            config = config.with_child(pkey, own)
        except UsageError as error:
            file.add_contradiction(error, pkey)
    try:
        return config.with_vlans()
    except UsageError as error:
        file.add_contradiction(error)
        return config


def _name_of(path: Path) -> str:
    """The interface that `ipoibu@NAME.service` makes of the file, or a short name."""
    try:
        return check_name(path.stem)
    except UsageError:
        return "ib0"
