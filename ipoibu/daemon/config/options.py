# SPDX-License-Identifier: BSD-2-Clause
"""Every option of an interface, in one table.

`OPTIONS` defines the command line, its completion, the configuration file, `child-add` on the control
socket and docs/reference/options.md. To add an option, add

1. its row here,
2. its field to `EndpointConfig` (`ipoibu/endpoint/config.py`), or to `InterfaceConfig`
   (`ipoibu/daemon/config/interface_config.py`) if it concerns only the kernel's side or the process,
3. the code that uses the field,

and run docs/make/list_options.py. If the option can change while the interface runs, the row's `change` names
the method that carries it out (`ipoibu/daemon/config/change.py`); `ipoibu set` and a reload need no more. A
`Conflict` in `EndpointConfig` expresses that an option excludes or needs others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ipoibu.base.addr import PKey
from ipoibu.base.bounds import Choice, Range
from ipoibu.base.device_name import parse_device
from ipoibu.base.interface_name import check_name
from ipoibu.base.limits import CPU_LATENCY_MAX_US, GUEST_QUEUE_PAIRS_MAX, OPEN_WAIT_MAX_S
from ipoibu.daemon.config.change import Change
from ipoibu.daemon.config.parsers import (
    clients_differ,
    parse_address,
    parse_busy_poll,
    parse_directory,
    parse_faults,
    parse_file,
    parse_guest,
    parse_metrics,
    parse_neighbour,
    parse_netns,
    parse_peer,
    parse_peer_key,
    parse_proxy,
    parse_route,
    parse_sandbox,
    parse_switch,
    parse_user,
    parse_vlan,
    show_busy_poll,
    show_guest,
    show_vlan,
    without_clients,
)
from ipoibu.endpoint.config import (
    CM_PROFILES,
    CONNECTION_IDLE,
    DAD_IPV4,
    DAD_IPV6,
    FRAMES,
    MODES,
    MTUS,
    QUEUES,
    RAIL_MODES,
    RAIL_UPDELAY,
)
from ipoibu.endpoint.dhcp_config import read_client_id, read_host_name
from ipoibu.proto.ethernet_config import EthernetConfig

LOG_LEVELS: Final = Choice("log level", ("debug", "info", "warning", "error"))
CPU_LATENCY: Final = Range(0, CPU_LATENCY_MAX_US, "microseconds")
TUNS: Final = Choice("TUN", ("create", "attach"))
WAIT: Final = Range(0, OPEN_WAIT_MAX_S, "seconds")
MESH_PORTS: Final = Range(1, 65535, noun="port")
GUEST_QUEUE_PAIRS: Final = Range(0, GUEST_QUEUE_PAIRS_MAX, "queue pairs")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `--NAME METAVAR` on the command line, the key NAME in the configuration file.

    `read` makes the value from a text. `field` says where the value belongs: `endpoint.X` is
    `EndpointConfig.X`, `mesh.X` is `MeshOptions.X`, `dhcp.X` is `DhcpConfig.X`, `ethernet.X` is
    `EthernetConfig.X`, and plain X is `InterfaceConfig.X`. An option with `several` may be repeated; the file
    has a list, the field a tuple. `commands` are those that have the option: `up`, `lab` (for all hosts),
    `child` (`child add`, for that child). A child gets its parent's value if `is_inherited`, and the default
    otherwise. An option with a `change` can change while the interface runs; others need another process.
    """

    name: str
    metavar: str
    read: Callable[[str], object]
    help: str
    field: str
    example: str
    several: bool = False
    commands: tuple[str, ...] = ("up",)
    is_inherited: bool = True
    alone: str | None = None  # the text for which the option without a value stands
    change: Change | None = None


OPTIONS: Final = (
    Option(
        "device",
        "DEV[/PORT]",
        parse_device,
        "the device: soft:NETDEV (the built-in HCA on that net device; soft:NETDEV,ipv4, soft:NETDEV,ipv6 and"
        " soft:NETDEV,ADDRESS choose the address that it uses) or an RDMA device such as mlx5_0/1; of"
        " several, or of several ports of one, one carries the traffic, and another takes over when that one"
        " fails",
        field="endpoint.device",
        example="soft:eth0",
        several=True,
    ),
    Option(
        "rail-mode",
        "MODE",
        RAIL_MODES.read,
        "several devices: active-backup, the default, or balance-xor, which also spreads flows over all"
        " devices, to hosts that do the same",
        field="endpoint.rail_mode",
        example="balance-xor",
    ),
    Option(
        "rail-primary",
        "DEV[/PORT]",
        str,
        "several devices: the one that carries the traffic whenever it is up; by default a device"
        " carries the traffic until it fails",
        field="endpoint.rail_primary",
        example="soft:eth0",
    ),
    Option(
        "rail-updelay",
        "MS",
        RAIL_UPDELAY.read,
        "several devices: the milliseconds that the primary is up before it carries the traffic"
        " again; 0 by default",
        field="endpoint.rail_updelay_ms",
        example="5000",
    ),
    Option(
        "rail-monitor",
        "IP",
        parse_neighbour,
        "several devices: a neighbour on the link that ipoibu asks by ARP or ND; when none answers for"
        " 0.3 s, another device takes over",
        field="endpoint.rail_monitor",
        example="10.0.0.9",
        several=True,
        is_inherited=False,
    ),
    Option(
        "pkey",
        "P_KEY",
        PKey.parse,
        "partition, 0x0001 to 0xffff; by default 0x8001 for a name such as ib0.8001, and else 0xffff",
        field="endpoint.pkey",
        example="0x8001",
        commands=("up", "lab"),
    ),
    Option(
        "partitions",
        "FILE",
        parse_file,
        "OpenSM's partitions.conf, for a fabric without a subnet administrator",
        field="endpoint.partitions",
        example="/etc/opensm/partitions.conf",
    ),
    Option(
        "mode",
        "MODE",
        MODES.read,
        "sending mode: datagram, the default, or connected",
        field="endpoint.mode",
        example="connected",
        commands=("up", "lab", "child"),
        change=Change("endpoint.set_mode"),
    ),
    Option(
        "cm-profile",
        "PROFILE",
        CM_PROFILES.read,
        "connected mode: linux, the default, makes a connection for each direction, rfc makes one"
        " for both",
        field="endpoint.cm_profile",
        example="rfc",
        commands=("up", "lab"),
    ),
    Option(
        "connection-idle",
        "S",
        CONNECTION_IDLE.read,
        "connected mode: end a connection that carries no packet for S seconds; 512 by default",
        field="endpoint.connection_idle_s",
        example="60",
    ),
    Option(
        "dad-ipv4",
        "POLICY",
        DAD_IPV4.read,
        "duplicate detection of IPv4 addresses: warn, the default, uses them at once, on only once"
        " probes found no other owner, off does not probe",
        field="endpoint.dad_ipv4",
        example="on",
        commands=("up", "lab"),
    ),
    Option(
        "dad-ipv6",
        "POLICY",
        DAD_IPV6.read,
        "duplicate detection of IPv6 addresses: on, the default, warn or off, as for IPv4, or"
        " optimistic (RFC 4429), which answers other hosts while it probes",
        field="endpoint.dad_ipv6",
        example="optimistic",
        commands=("up", "lab"),
    ),
    Option(
        "mtu",
        "N",
        MTUS.read,
        "IP MTU in bytes, the same on every host; by default the link's (2044 where the port allows),"
        " or 65520 in connected mode",
        field="endpoint.mtu",
        example="2044",
        commands=("up", "lab", "child"),
        is_inherited=False,
        change=Change("interface.set_mtu"),
    ),
    Option(
        "address",
        "CIDR|dhcp|dhcp6",
        parse_address,
        "an address with its prefix length, dhcp for an IPv4 address by DHCP, or dhcp6 for an IPv6 address by"
        " DHCPv6",
        field="address",
        example="10.0.0.1/24",
        several=True,
        commands=("up", "child"),
        is_inherited=False,
        change=Change("interface.set_addresses", without_clients, needs_restart=clients_differ),
    ),
    Option(
        "dhcp-client-id",
        "FORM",
        read_client_id,
        "DHCP: who the client says that it is: duid, the default (RFC 4361, from P_Key and port GUID),"
        " guid (20:GUID, as NetworkManager), or bytes such as 20:00:02:c9:03:00:00:10:a5; DHCPv6 has DUID"
        " and IAID of it, or else of duid",
        field="dhcp.client_id",
        example="guid",
        commands=("up", "child"),
        is_inherited=False,
    ),
    Option(
        "dhcp-host-name",
        "NAME",
        read_host_name,
        "DHCP: the name that the client tells the server; none by default",
        field="dhcp.host_name",
        example="node7",
    ),
    Option(
        "dhcp-release",
        "on|off",
        parse_switch,
        "DHCP: give the address back at the end; off by default, so that a restart gets the same one",
        field="dhcp.is_released",
        example="on",
    ),
    Option(
        "lease-dir",
        "DIR",
        parse_directory,
        "DHCP: the directory that keeps the lease over restarts; by default /var/lib/ipoibu, or"
        " ~/.local/state/ipoibu for an ordinary user",
        field="dhcp.lease_dir",
        example="/var/lib/ipoibu",
    ),
    Option(
        "route",
        "DST[,via=GW]",
        parse_route,
        "a route to a network or `default`, on the link or via a gateway",
        field="route",
        example="10.1.0.0/16,via=10.0.0.9",
        several=True,
        commands=("up", "child"),
        is_inherited=False,
        change=Change("interface.set_routes"),
    ),
    Option(
        "proxy",
        "NET|routes",
        parse_proxy,
        "answer ARP and neighbour discovery for hosts of NET (a network or an address) that the kernel"
        " routes to another interface; routes: for all that it routes there, but not by the default route",
        field="proxy",
        example="10.1.0.0/16",
        several=True,
        commands=("up", "child"),
        is_inherited=False,
        change=Change("proxies.replace"),
    ),
    Option(
        "ethernet",
        "on|off",
        parse_switch,
        "make a TAP for a bridge, a virtual machine or a container: its guests have Ethernet addresses, and"
        " ipoibu translates between these and the link's; off by default",
        field="endpoint.ethernet",
        example="on",
        alone="on",
    ),
    Option(
        "guest",
        "MAC=IP[,IP]...",
        parse_guest,
        "with --ethernet: the guest of this MAC has these addresses and no others, and no other guest has"
        " them",
        field="ethernet.static",
        example="52:54:00:12:34:56=10.0.0.7",
        several=True,
        commands=("up", "child"),
        is_inherited=False,
        change=Change("endpoint.bind_guests", EthernetConfig.bound, show_guest),
    ),
    Option(
        "vlan",
        "VLAN=P_KEY",
        parse_vlan,
        "with --ethernet: frames of the TAP with this VLAN tag (802.1Q) belong to this partition, as a child"
        " interface",
        field="vlan",
        example="10=0x8001",
        several=True,
        is_inherited=False,
        change=Change(None, show=show_vlan),
    ),
    Option(
        "guest-queue-pairs",
        "N",
        GUEST_QUEUE_PAIRS.read,
        "with --ethernet on a soft: device, in datagram mode: N guests have a hardware address of their own"
        " on the link, by a queue pair each; the others share the interface's; 64 by default",
        field="ethernet.queue_pairs",
        example="16",
        commands=("up", "child"),
    ),
    Option(
        "faults",
        "SPEC",
        parse_faults,
        "for tests: impair the packets that the interface sends:"
        " loss=P,dup=P,reorder=P,corrupt=P,delay=P,seed=N with probabilities P",
        field="endpoint.faults",
        example="loss=0.01,seed=7",
        commands=("up", "lab"),
    ),
    Option(
        "offload",
        "on|off",
        parse_switch,
        "exchange TCP and UDP with the kernel in frames of up to 64 KiB; on by default",
        field="offload",
        example="off",
        commands=("up", "lab"),
    ),
    Option(
        "busy-poll",
        "US|auto",
        parse_busy_poll,
        "poll for the next packet for US microseconds before sleeping (lower latency, more CPU"
        " time); auto, the default: up to 300 where replies arrive that soon",
        field="endpoint.busy_poll_us",
        example="50",
        commands=("up", "lab"),
        change=Change("endpoint.set_busy_poll", show=show_busy_poll),
    ),
    Option(
        "cpu-latency",
        "US",
        CPU_LATENCY.read,
        "cap the exit latency of idle CPUs to US microseconds (uses more power); 0: idle CPUs do"
        " not sleep",
        field="cpu_latency",
        example="0",
        commands=("up", "lab"),
    ),
    Option(
        "queues",
        "N",
        QUEUES.read,
        "give the TUN N queues, each with a thread that sends; the first one's receives; a flow"
        " keeps to one queue; 1 by default",
        field="endpoint.queues",
        example="4",
        commands=("up", "lab"),
    ),
    Option(
        "frames",
        "N",
        FRAMES.read,
        "receive into N packet frames, and have others in proportion: fewer need less locked memory"
        " on an RDMA device; by default 1024, or as many as the limit of locked memory permits",
        field="endpoint.frames",
        example="256",
        commands=("up", "lab"),
    ),
    Option(
        "wait",
        "S",
        WAIT.read,
        "wait up to S seconds until the device exists, is up and has a usable address; by default 5 for"
        " the address, as just after `ip link set up`, and not for a device that does not exist",
        field="wait",
        example="30",
        is_inherited=False,
    ),
    Option(
        "tun",
        "create|attach",
        TUNS.read,
        "attach: use the persistent TUN of that name, whose MTU, addresses and routes the"
        " administrator sets; create, the default: make a TUN",
        field="tun",
        example="create",
        is_inherited=False,
    ),
    Option(
        "netns",
        "NAME|PATH|PID",
        parse_netns,
        "the network namespace for the interface: a name of `ip netns`, a file such as"
        " /proc/4711/ns/net, or a process; the device stays in the namespace of the start",
        field="netns",
        example="blue",
        is_inherited=False,
    ),
    Option(
        "allmulticast",
        "on|off",
        parse_switch,
        "receive every group of the link even if no multicast router asks; needs a subnet administrator",
        field="endpoint.allmulticast",
        example="on",
    ),
    Option(
        "peer",
        "HOST[:PORT]",
        parse_peer,
        "a host on a link without multicast, or a name of several hosts; each host introduces the"
        " others",
        field="mesh.peers",
        example="192.0.2.1",
        several=True,
        change=Change("endpoint.set_peers", needs_restart=lambda before, after: not after),
    ),
    Option(
        "peers-file",
        "FILE",
        parse_file,
        "a file with one peer a line; ipoibu reads it again when it changes",
        field="mesh.file",
        example="/etc/ipoibu/peers",
    ),
    Option(
        "peer-key-file",
        "FILE",
        parse_peer_key,
        "a file with a key of 64 hexadecimal digits, the same on every host: only hosts that know it"
        " become peers",
        field="mesh.key",
        example="/etc/ipoibu/peer-key",
    ),
    Option(
        "mesh-port",
        "PORT",
        MESH_PORTS.read,
        "the TCP port for the peers; 4792 by default",
        field="mesh.port",
        example="4792",
    ),
    Option(
        "user",
        "NAME",
        parse_user,
        "the user as whom the process runs after its start as root",
        field="user",
        example="nobody",
        commands=("up", "lab"),
    ),
    Option(
        "sandbox",
        "on|off|STAGE",
        parse_sandbox,
        "confine the process by the stages 1 to STAGE of docs/use/sandbox.md, by all of them (on, the"
        " default) or none (off)",
        field="sandbox",
        example="3",
        commands=("up", "lab"),
    ),
    Option(
        "metrics",
        "ADDR:PORT",
        parse_metrics,
        "serve the metrics of the interface and its children to Prometheus, over HTTP at ADDR:PORT;"
        " needs the library prometheus_client",
        field="metrics",
        example="127.0.0.1:9838",
        is_inherited=False,
    ),
    Option(
        "log-level",
        "LEVEL",
        LOG_LEVELS.read,
        "least level that is logged: debug, info, warning, the default, or error",
        field="log_level",
        example="info",
        change=Change("log.set_log_level"),
    ),
)

CHILD_NAME: Final = Option(
    "name",
    "NAME",
    check_name,
    "the child's name; by default the parent's with the P_Key, such as ib0.8001",
    field="endpoint.name",
    example="storage",
    commands=("child",),
    is_inherited=False,
)

BY_NAME: Final = {option.name: option for option in (*OPTIONS, CHILD_NAME)}


def options_of(command: str) -> tuple[Option, ...]:
    """Return the options of the command `up`, `lab` or `child`."""
    return tuple(option for option in BY_NAME.values() if command in option.commands)
