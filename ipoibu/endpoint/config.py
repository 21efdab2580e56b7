# SPDX-License-Identifier: BSD-2-Clause
"""The configuration of an endpoint, with every check that needs no open port."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ipoibu.base.addr import DEFAULT_PKEY, IpAddress, PKey
from ipoibu.base.bounds import Choice, Range
from ipoibu.base.device_name import (
    DeviceKind,
    GidKind,
    SoftName,
    device_text,
    parse_device,
    parse_soft,
)
from ipoibu.base.errors import UsageError
from ipoibu.base.limits import (
    BUSY_POLL_MAX_US,
    CONNECTED_MTU,
    CONNECTION_IDLE_MAX_S,
    CONNECTION_IDLE_MIN_S,
    CONNECTION_IDLE_S,
    DHCP_LINK_MTU,
    ENCAP_LEN,
    FRAMES_MAX,
    FRAMES_MIN,
    IB_MTUS,
    IPV4_MIN_MTU,
    IPV6_MIN_MTU,
    QUEUES_MAX,
    RAIL_TARGETS_MAX,
    RAIL_UPDELAY_MAX_MS,
    RAILS_JOINED_MAX,
    SOFT_DATAGRAM_MAX_BYTES,
)
from ipoibu.endpoint.dhcp_config import DhcpConfig
from ipoibu.fabric.base import MeshOptions
from ipoibu.proto.ethernet_config import EthernetConfig

if TYPE_CHECKING:  # the command line reads the bounds below even if the C core does not load
    from ipoibu.fabric.faults import FaultSpec

PORTS: Final = Range(1, 255)
QKEYS: Final = Range(0, 0xFFFFFFFF)
MODES: Final = Choice("mode", ("datagram", "connected"))
CM_PROFILES: Final = Choice("profile of connected mode", ("linux", "rfc"))
DAD_IPV4: Final = Choice("policy of duplicate address detection", ("off", "warn", "on"))
DAD_IPV6: Final = Choice(
    "policy of duplicate address detection", ("off", "warn", "optimistic", "on")
)
MTUS: Final = Range(IPV4_MIN_MTU, CONNECTED_MTU, "bytes", noun="MTU")
CONNECTION_IDLE: Final = Range(
    int(CONNECTION_IDLE_MIN_S), int(CONNECTION_IDLE_MAX_S), "seconds", whole=False
)
BUSY_POLL: Final = Range(0, BUSY_POLL_MAX_US, "microseconds")
QUEUES: Final = Range(1, QUEUES_MAX, "queues")
RAIL_MODES: Final = Choice("mode of several devices", ("active-backup", "balance-xor"))
RAIL_UPDELAY: Final = Range(0, RAIL_UPDELAY_MAX_MS, "milliseconds")
FRAMES: Final = Range(FRAMES_MIN, FRAMES_MAX, "frames")


class Conflict(UsageError):
    """Fields of an `EndpointConfig` exclude each other.

    `template` has the fields' names in braces, so that the command line can name its options instead.
    """

    def __init__(self, template: str) -> None:
        super().__init__(re.sub(r"[{}]", "", template))
        self.template = template

    def naming(self, names: Mapping[str, str]) -> str:
        """The message, with `names` in place of the fields' names."""
        return re.sub(r"\{(\w+)\}", lambda match: names.get(match[1], match[1]), self.template)


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """The configuration of one endpoint; `UsageError` for values that cannot be."""

    name: str

    # soft:NETDEV for the built-in HCA, or an RDMA device
    device: str
    port: int = 1

    # Further devices and their ports, one of which takes over when the device fails (docs/use/rails.md)
    backups: tuple[tuple[str, int], ...] = ()

    # "active-backup": one of several devices carries the traffic; "balance-xor": flows to hosts that have
    # several, too, are spread over all of them
    rail_mode: str = "active-backup"

    # The device that becomes active whenever it has been up for `rail_updelay_ms`, as DEV or DEV/PORT; None:
    # none is preferred
    rail_primary: str | None = None
    rail_updelay_ms: int = 0

    # Neighbours of whom one has to answer over the active device; without an answer another takes over
    rail_monitor: tuple[IpAddress, ...] = ()

    pkey: PKey = DEFAULT_PKEY

    # It must not contradict the link's Q_Key; None: that of `partitions`, or OpenSM's default
    qkey: int | None = None

    # IP MTU in bytes; None: 2044, or less where the port carries less, and 65520 in connected mode.
    # An ICMP error answers packets that are too large for their neighbour.
    mtu: int | None = None

    # "connected" reaches hosts in connected mode by RC connections (RFC 4755), others by datagram
    mode: str = "datagram"

    # "linux" makes a connection for each direction, "rfc" one for both (C6); all hosts on the link
    # should use the same profile
    cm_profile: str = "linux"

    # A connection that carries no packet for so long ends (C10)
    connection_idle_s: float = CONNECTION_IDLE_S

    # Faults on the datagrams that this interface sends, for tests
    faults: FaultSpec | None = None

    # OpenSM's partitions.conf: defines the link of `pkey`
    partitions: Path | None = None

    # The parent of this interface, if it is a child
    parent: str | None = None

    # After the last packet the data path polls for this time before it sleeps, which costs CPU time and
    # saves a wake-up. None: adaptive, for 300 us after a short request (8 packets, 16 KiB) if the replies
    # to such requests came that soon.
    busy_poll_us: int | None = None

    # The places of the peers where multicast does not find them (docs/use/unicast.md, docs/use/mesh.md)
    mesh: MeshOptions | None = None

    # Hand-off to guests behind a TAP: the device is a `TapDevice`, and the guests have the addresses
    ethernet: EthernetConfig | None = None

    # Duplicate address detection: "on": an address is ours once probes found no other owner, and we
    # defend it; "optimistic": likewise, but we answer for it from the start (RFC 4429); "warn": it is ours
    # at once, and another owner causes a warning; "off": without probes
    dad_ipv4: str = "warn"
    dad_ipv6: str = "on"

    # Get an IPv4 address by DHCP, as the interface's only or a further one
    dhcp: DhcpConfig | None = None

    # Get an IPv6 address by DHCPv6, likewise; without a device the application adds a link-local address
    dhcp6: DhcpConfig | None = None

    # Receive every group of the link that the subnet administrator lists (M7), for multicast routers
    allmulticast: bool = False

    # TX queues of the TUN, each with a thread of its own; more than one in datagram mode only
    queues: int = 1

    # Receives of datagrams, rounded down to a power of two; the pump's other frames are in proportion.
    # An RDMA device pins them all; where the limit of locked memory is too small, the pump takes fewer
    frames: int = FRAMES_MAX

    def __post_init__(self) -> None:
        self._check_types()
        for _, port in self.places:
            PORTS.check("port", port)
        if self.qkey is not None:
            QKEYS.check("qkey", self.qkey)
        MODES.check(self.mode)
        CM_PROFILES.check(self.cm_profile)
        DAD_IPV4.check(self.dad_ipv4)
        DAD_IPV6.check(self.dad_ipv6)
        CONNECTION_IDLE.check("connection_idle_s", self.connection_idle_s)
        QUEUES.check("queues", self.queues)
        FRAMES.check("frames", self.frames)
        if self.busy_poll_us is not None:
            BUSY_POLL.check("busy_poll_us", self.busy_poll_us)
        if self.mtu is not None and not MTUS.least <= self.mtu <= MTUS.most:
            raise UsageError(f"MTU {self.mtu} does not fit: choose {MTUS}")
        named = PKey.of_name(self.name)
        if named not in (None, self.pkey.full):
            raise Conflict(
                f"the name {self.name} says partition {named}, but {{pkey}} is {self.pkey}: give {{pkey}}"
                f" {named}, or another name"
            )
        if self.dhcp is not None and self.mtu is not None and self.mtu < DHCP_LINK_MTU:
            raise Conflict(
                f"DHCP needs an MTU of {DHCP_LINK_MTU}: raise {{mtu}}, or give an address"
            )
        if self.dhcp6 is not None and self.mtu is not None and self.mtu < IPV6_MIN_MTU:
            raise Conflict(
                f"DHCPv6 needs an MTU of {IPV6_MIN_MTU}: raise {{mtu}}, or leave dhcp6 out"
            )
        if self.queues > 1 and self.is_connected:
            raise Conflict(
                "{queues} is for datagram mode, not connected mode:"
                " a connection belongs to one thread; leave {queues} out"
            )
        if self.queues > 1 and self.mesh is not None:
            raise Conflict(
                "{queues} is not for links with peers: one thread knows the peers; leave {queues} out"
            )

        if self.ethernet is not None:
            if self.queues > 1:
                raise Conflict(
                    "{ethernet} has one queue: one thread knows the guests; leave {queues} out"
                )
            if self.dhcp is not None or self.dhcp6 is not None:
                raise Conflict("{ethernet}: the guests have the addresses; leave DHCP out")
        self._check_rails()
        self._check_soft()

    @property
    def is_connected(self) -> bool:
        """Return whether the sending mode is connected."""
        return self.mode == "connected"

    @property
    def is_spreading(self) -> bool:
        """Return whether flows are spread over several devices."""
        return self.rail_mode != "active-backup"

    @property
    def places(self) -> tuple[tuple[str, int], ...]:
        """Every device with its port, the first one first."""
        return ((self.device, self.port), *self.backups)

    @property
    def primary(self) -> int | None:
        """The index of the place that `rail_primary` names, None without one; `UsageError` if it names none
        of them."""
        text, places = self.rail_primary, self.places
        if text is None:
            return None
        place = parse_device(text)
        if place in places:
            return places.index(place)
        devices = [device for device, _ in places]
        if devices.count(text) == 1:  # without a port, which no other place makes necessary
            return devices.index(text)
        known = ", ".join(device_text(*place) for place in places)
        raise UsageError(f"{text} is none of the devices {known}")

    @property
    def datagram_mtu(self) -> int | None:
        """The MTU that the link has to carry; in connected mode `mtu` is not that of the link."""
        return None if self.is_connected else self.mtu

    def _check_soft(self) -> None:
        """Check what the names of built-in HCAs tell before they are opened; RDMA devices have to be open."""
        devices = [device for device, _ in self.places]
        softs = [device for device in devices if DeviceKind.of(device) is DeviceKind.SOFT]
        names = [parse_soft(device) for device in softs]
        for device, port in self.places:
            if device in softs and port != 1:
                raise Conflict(
                    f"{{device}} {device}/{port}: the built-in HCA has port 1 only, not {port}"
                )
        if len(names) < len(devices):
            return
        umads = [bool(name.umad) for name in names]
        if any(umads) and not all(umads):
            with_sa, without = devices[umads.index(True)], devices[umads.index(False)]
            raise Conflict(
                f"rails {with_sa} and {without}: the links differ: {with_sa} has a subnet administrator, and"
                f" {without} has none; choose another {{device}}"
            )
        self._check_datagrams(SOFT_DATAGRAM_MAX_BYTES if not any(umads) else IB_MTUS[-1])
        if any(umads):
            self._check_administered(devices[0])
        else:
            self._check_unadministered(devices[0], names)

    def _check_datagrams(self, largest_bytes: int) -> None:
        mtu, largest = self.datagram_mtu, largest_bytes - ENCAP_LEN
        if mtu is not None and mtu > largest:
            raise Conflict(
                f"{{mtu}} {mtu} is too large for datagram mode: choose at most {largest}, or {{mode}}"
                " connected"
            )

    def _check_administered(self, device: str) -> None:
        """Check an interface on a link whose parameters a subnet administrator gives."""
        if self.partitions is not None:
            raise Conflict(
                f"{{partitions}}: the subnet administrator of {device} sets the link's parameters, not"
                f" {self.partitions}: leave {{partitions}} out"
            )
        if self.mesh is not None:
            raise Conflict(
                f"{{mesh}} is for links without a subnet administrator; that of {device} knows the groups:"
                " leave {mesh} out"
            )
        if self.is_spreading:
            raise Conflict(
                f"{{rail_mode}} {self.rail_mode} is for links without a subnet administrator: leave"
                " {rail_mode} out"
            )

    def _check_unadministered(self, device: str, names: Sequence[SoftName]) -> None:
        if self.allmulticast:
            raise Conflict(
                f"{{allmulticast}} needs a subnet administrator, which {device} has not: nothing else knows"
                " which groups there are"
            )
        if self.mesh is None and all(name.kind is GidKind.IPV4 for name in names):
            raise Conflict(
                f"{{device}} {device}: IPv4 carries no multicast: name another host of the link with"
                " {mesh}, on every host, or have the device use an IPv6 address"
            )

    def _check_rails(self) -> None:
        RAIL_MODES.check(self.rail_mode)
        if self.is_spreading:
            self._check_spreading(len(self.places))
        for number, place in enumerate(self.places):
            if place in self.places[:number]:
                raise UsageError(
                    f"{device_text(*place)} is given twice: each rail needs a port of its own"
                )
        RAIL_UPDELAY.check("rail_updelay_ms", self.rail_updelay_ms)
        _ = self.primary  # raises if it is none of the places
        if len(self.rail_monitor) > RAIL_TARGETS_MAX:
            raise UsageError(
                f"{len(self.rail_monitor)} neighbours to monitor, {RAIL_TARGETS_MAX} at most"
            )

    def _check_spreading(self, devices: int) -> None:
        if devices > RAILS_JOINED_MAX:
            raise Conflict(
                f"{{rail_mode}} {self.rail_mode} is for {RAILS_JOINED_MAX} devices at most, not {devices}"
            )
        if self.is_connected:
            raise Conflict(
                f"{{rail_mode}} {self.rail_mode} needs datagram mode: a connection has one rail"
            )
        if self.mesh is not None:
            raise Conflict(
                f"{{rail_mode}} {self.rail_mode} is not for links with peers: leave {{rail_mode}} out"
            )
        for field, is_set in (("queues", self.queues > 1), ("ethernet", self.ethernet is not None)):
            if is_set:
                raise Conflict(f"{{rail_mode}} {self.rail_mode}: leave {{{field}}} out")

    def _check_types(self) -> None:
        """Raise `TypeError` for a value that later checks would refuse in riddles."""
        for field, (kind, words) in _KINDS.items():
            value = getattr(self, field)
            if value is None and field not in _NEEDED:
                continue
            if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
                raise TypeError(f"{field} is {words}, not {value!r}")
        if self.faults is not None:
            from ipoibu.fabric.faults import FaultSpec

            if not isinstance(self.faults, FaultSpec):
                raise TypeError(f"faults is a FaultSpec, not {self.faults!r}")
        for place in self.backups:
            if not (isinstance(place, tuple) and [type(it) for it in place] == [str, int]):
                raise TypeError(f"a backup is a pair of a device and a port, not {place!r}")
        for target in self.rail_monitor:
            if not isinstance(target, (IPv4Address, IPv6Address)):
                raise TypeError(f"rail_monitor is a tuple of IP addresses, not of {target!r}")


_KINDS: Final[dict[str, tuple[type, str]]] = {
    "name": (str, "the text of a name such as ib0"),
    "device": (str, "the text of a device such as soft:eth0"),
    "port": (int, "the number of a port"),
    "backups": (tuple, "a tuple of pairs of a device and a port"),
    "rail_mode": (str, "the text of a mode"),
    "rail_primary": (str, "the text of a device"),
    "rail_monitor": (tuple, "a tuple of IP addresses"),
    "pkey": (PKey, "a PKey"),
    "qkey": (int, "a number"),
    "mtu": (int, "a number of bytes"),
    "partitions": (Path, "the Path of a file"),
    "parent": (str, "the name of an interface"),
    "ethernet": (EthernetConfig, "an EthernetConfig"),
    "mesh": (MeshOptions, "a MeshOptions"),
    "allmulticast": (bool, "True or False"),
    "dhcp": (DhcpConfig, "a DhcpConfig"),
    "dhcp6": (DhcpConfig, "a DhcpConfig"),
}
_NEEDED: Final = ("name", "device", "port", "backups", "rail_monitor", "pkey", "allmulticast")
