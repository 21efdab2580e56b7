# SPDX-License-Identifier: BSD-2-Clause
"""Every key of networkd's files that concerns IPoIB: taken over, without effect, or left with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from ipoibu.base.addr import PKey
from ipoibu.importer import draft
from ipoibu.importer.assembly import assemble
from ipoibu.importer.draft import Draft
from ipoibu.importer.networkd import read_networkd
from ipoibu.importer.sources import read_files

HEAD = {".network": "[Match]\nName=ib0\n", ".netdev": "[NetDev]\nName=ib0.8001\nKind=ipoib\n"}


def unit(path: Path, text: str) -> Draft:
    path.write_text(HEAD[path.suffix] + text)
    (made,) = read_networkd(path).drafts
    return made


@pytest.mark.parametrize(
    ("suffix", "text", "expected"),
    [
        (".netdev", "MTUBytes=2044\n", ["mtu 2044"]),
        (".netdev", "MTUBytes=2K\n", ["mtu 2048"]),
        (".netdev", "[IPoIB]\nMode=connected\n", ["mode connected"]),
        (".netdev", "[IPoIB]\nMode=datagram\n", ["mode datagram"]),
        (".network", "[IPoIB]\nMode=connected\n", ["mode connected"]),
        (".network", "[Link]\nMTUBytes=65520\n", ["mtu 65520"]),
        (".network", "[Link]\nAllMulticast=yes\n", ["allmulticast on"]),
        (".network", "[Link]\nAllMulticast=no\n", ["allmulticast off"]),
        (".network", "[Network]\nAddress=10.0.0.1/24\n", ["address 10.0.0.1/24"]),
        (".network", "[DHCPv4]\nClientIdentifier=mac\n", ["dhcp-client-id guid"]),
        (".network", "[DHCP]\nClientIdentifier=mac\n", ["dhcp-client-id guid"]),
        (".network", "[DHCPv4]\nClientIdentifier=ff:1\n", ["dhcp-client-id ff:01"]),
        (".network", "[DHCPv4]\nHostname=node7\n", ["dhcp-host-name node7"]),
        (".network", "[Network]\nPrimarySlave=no\n", []),
        (".network", "[Network]\nAddress=10.0.0.1/24\nAddress=\n", []),
        (".network", "[Network]\nGateway=10.0.0.9\n", ["route default,via=10.0.0.9"]),
        (".network", "[Network]\nGateway=10.0.0.9\nGateway=\n", []),
        (".network", "[Address]\nAddress=10.0.0.1/24\n", ["address 10.0.0.1/24"]),
        (
            ".network",
            "[Address]\nAddress=10.0.0.1/24\nDuplicateAddressDetection=ipv4\n",
            ["address 10.0.0.1/24", "dad-ipv4 on"],
        ),
        (
            ".network",
            "[Address]\nAddress=fd00::1/64\nDuplicateAddressDetection=none\n",
            ["address fd00::1/64", "dad-ipv6 off"],
        ),
        (".network", "[Route]\nDestination=10.9.0.0/16\n", ["route 10.9.0.0/16"]),
        (".network", "[Route]\nGateway=fd00::9\n", ["route default,via=fd00::9"]),
        (
            ".network",
            "[Route]\nGateway=10.0.0.9\nDestination=10.9.0.0/16\n[Route]\nDestination=10.8.0.0/16\n",
            ["route 10.9.0.0/16,via=10.0.0.9", "route 10.8.0.0/16"],
        ),
        (".network", "[Network]\nDHCP=yes\n", ["address dhcp", "address dhcp6"]),
        (".network", "[Network]\nDHCP=ipv4\n", ["address dhcp"]),
        (".network", "[Network]\nDHCP=ipv6\n", ["address dhcp6"]),
        (".network", "[Network]\nDHCP=no\n", []),
    ],
)
def test_what_ipoibu_has_is_taken_over(
    tmp_path: Path, suffix: str, text: str, expected: list[str]
) -> None:
    made = unit(tmp_path / f"10-ib{suffix}", text)
    assert [f"{each.option} {each.text}" for each in made.settings] == expected
    assert made.notes == []


@pytest.mark.parametrize(
    ("suffix", "text", "why"),
    [
        (".netdev", "MACAddress=80:00:00:00:00:01\n", draft.BY_NAME_ONLY),
        (".netdev", "MTUBytes=5\n", "'5' is no MTU"),
        (".netdev", "[IPoIB]\nPartitionKey=0x8000\n", "'0x8000' is no P_Key"),
        (".netdev", "[IPoIB]\nMode=fast\n", "'fast' is no mode"),
        (".netdev", "[IPoIB]\nColour=red\n", draft.UNKNOWN),
        (".network", "[Match]\nPath=pci-0000*\n", draft.BY_NAME_ONLY),
        (
            ".network",
            "[Network]\nAddress=10.0.0.1\n",
            "no prefix length: it is /8 here, as of networkd 252",
        ),
        (".network", "[Network]\nAddress=192.0.2.4\n", "no prefix length: it is /24 here"),
        (".network", "[Network]\nAddress=fd00::1\n", "no prefix length: it is /128 here"),
        (".network", "[Link]\nMACAddress=80:00:00:00:00:01\n", draft.BY_NAME_ONLY),
        (".network", "[Link]\nActivationPolicy=manual\n", draft.START),
        (".network", "[Link]\nUnmanaged=yes\n", draft.START),
        (".network", "[Link]\nAllMulticast=maybe\n", "'maybe' is no switch: expected on or off"),
        (".network", "[Link]\nARP=no\n", draft.UNKNOWN),
        (".network", "[Network]\nDHCP=maybe\n", draft.UNKNOWN),
        (".network", "[Network]\nIPv6AcceptRA=no\n", draft.ADVERTISED),
        (".network", "[Network]\nLinkLocalAddressing=no\n", draft.LINK_LOCAL),
        (".network", "[Network]\nDNS=10.0.0.53\n", draft.RESOLVER),
        (".network", "[Network]\nDNSSEC=no\n", draft.RESOLVER),
        (".network", "[Network]\nDomains=example.org\n", draft.RESOLVER),
        (".network", "[Network]\nLLMNR=no\n", draft.RESOLVER),
        (".network", "[Network]\nMulticastDNS=no\n", draft.RESOLVER),
        (".network", "[Network]\nNTP=10.0.0.123\n", "ipoibu sets no time servers"),
        (".network", "[Network]\nBridge=br0\n", draft.SEVERAL_LINKS),
        (".network", "[Network]\nVRF=red\n", draft.SEVERAL_LINKS),
        (".network", "[Network]\nGateway=_ipv6ra\n", draft.ADVERTISED),
        (".network", "[Network]\nAddress=10.0.0.0/24\n", "is the address of the network"),
        (".network", "[Network]\nIPForward=yes\n", draft.UNKNOWN),
        (".network", "[DHCPv4]\nRouteMetric=5\n", draft.DHCP_OPTION),
        (".network", "[DHCPv4]\nClientIdentifier=duid\n", "the DUID is of the port's GUID here"),
        (".network", "[DHCPv4]\nClientIdentifier=duid-only\n", "is no client identifier here"),
        (".network", "[IPv6AcceptRA]\nUseDNS=no\n", draft.DHCP_OPTION),
        (".network", "[Address]\nAddress=10.0.0.1/24\nLabel=ib0:1\n", draft.UNKNOWN),
        (
            ".network",
            "[Address]\nAddress=10.0.0.1/24\nDuplicateAddressDetection=x\n",
            draft.UNKNOWN,
        ),
        (".network", "[Route]\nDestination=10.9.0.0/16\nMetric=5\n", draft.METRIC),
        (".network", "[Route]\nDestination=10.9.0.0/16\nScope=link\n", draft.ROUTE_OPTION),
        (".network", "[Route]\nDestination=nowhere\n", "'nowhere' is no network"),
        (".network", "[Route]\nGateway=_ipv6ra\n", draft.ADVERTISED),
        (".network", "[Route]\nGateway=_dhcp4\n", draft.DHCP_OPTION),
        (".network", "[RoutingPolicyRule]\nTable=5\n", draft.UNKNOWN),
        (".network", "[Neighbor]\nAddress=10.0.0.2\n", draft.UNKNOWN),
    ],
)
def test_what_ipoibu_lacks_is_left_with_its_place_and_a_reason(
    tmp_path: Path, suffix: str, text: str, why: str
) -> None:
    path = tmp_path / f"10-ib{suffix}"
    made = unit(path, text)
    (note,) = made.notes
    assert why in note.why
    line = path.read_text().split("\n")[note.place.line - 1]
    assert line.startswith(f"{note.place.key.rpartition('.')[2]}=")


def test_what_a_kernel_interface_needs_and_ours_does_not_is_no_loss(tmp_path: Path) -> None:
    netdev = unit(
        tmp_path / "10-ib.netdev",
        "Description=storage\n[IPoIB]\nPartitionKey=1\nIgnoreUserspaceMulticastGroups=yes\n",
    )
    assert (netdev.name, netdev.pkey) == ("ib0.8001", PKey(0x8001))
    network = unit(
        tmp_path / "10-ib.network",
        "Type=infiniband\n[Link]\nRequiredForOnline=no\n[Network]\nDescription=storage\nDHCP=no\n"
        "ConfigureWithoutCarrier=yes\nKeepConfiguration=yes\nLinkLocalAddressing=ipv6\n"
        "IPoIB=ib0.8001\nIPoIB=ib0.8002\n",
    )
    assert (network.name, network.children) == ("ib0", ["ib0.8001", "ib0.8002"])
    assert [*netdev.notes, *network.notes, *netdev.settings, *network.settings] == []


def test_drop_ins_follow_and_lines_are_joined(tmp_path: Path) -> None:
    directory = tmp_path / "10-ib.network.d"
    directory.mkdir()
    (directory / "a.conf").write_text("[Network]\nAddress=10.0.1.1/24\nDNS=10.0.0.53\n")
    made = unit(
        tmp_path / "10-ib.network",
        "[Network]\n# first\nAddress= \\\n; between\n10.0.0.1/24\nNTP=10.0.0.123\n",
    )
    assert [(each.text, each.place.line) for each in made.settings] == [
        ("10.0.0.1/24", 5),
        ("10.0.1.1/24", 2),
    ]
    assert [str(note.place) for note in made.notes] == [
        f"{tmp_path}/10-ib.network:8: Network.NTP",
        f"{directory}/a.conf:3: Network.DNS",
    ]


@pytest.mark.parametrize(
    ("name", "text", "is_ours"),
    [
        ("a.network", "[Match]\nName=eth0\n", False),
        ("a.network", "[Match]\nName=eth0\n[Network]\nIPoIB=ib0.8001\n", True),
        ("a.network", "[Match]\nType=infiniband\n", True),
        ("a.network", "[Match]\nName=storage\n[IPoIB]\nMode=connected\n", True),
        ("a.network", "[Match]\nName=ibp1s0\n", True),
        ("a.netdev", "[NetDev]\nName=br0\nKind=bridge\n", False),
    ],
)
def test_other_interfaces_are_noted(tmp_path: Path, name: str, text: str, is_ours: bool) -> None:
    (tmp_path / name).write_text(text)
    reading = read_networkd(tmp_path / name)
    assert (len(reading.drafts), len(reading.notes)) == (int(is_ours), int(not is_ours))


def files(directory: Path, **texts: str) -> list[Path]:
    """Write files by name, in which __ stands for a dot."""
    paths = [directory / name.replace("__", ".") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text)
    return paths


@pytest.mark.parametrize("match", ["Name=ib*", "Type=infiniband", "Name=!eth*", "Name=ib? ib1?"])
def test_a_file_with_patterns_is_for_the_interfaces_of_the_others(
    tmp_path: Path, match: str
) -> None:
    paths = files(
        tmp_path,
        a__netdev="[NetDev]\nName=ib7\nKind=ipoib\n[IPoIB]\nPartitionKey=1\n",
        b__network="[Match]\nName=ib9\n[Network]\nAddress=10.0.0.1/24\n",
        c__network=f"[Match]\nType=infiniband\n{match}\n[Network]\nDHCP=ipv4\n",
    )
    drafts = read_files(paths, ["ib8"]).drafts
    found = [(each.name, [it.text for it in each.settings]) for each in drafts]
    assert found == [("ib7", []), ("ib9", ["10.0.0.1/24"]), ("ib7", ["dhcp"]), ("ib8", ["dhcp"])]
    assert [each.notes for each in drafts] == [[]] * 4


def test_a_file_with_patterns_alone_is_for_one_interface(tmp_path: Path) -> None:
    (made,) = read_files(files(tmp_path, a__network="[Match]\nName=ib*\n")).drafts
    assert made.name == "ib0"
    assert "ib*: a file of ipoibu is for one interface, here ib0" in made.notes[0].why


def test_a_file_may_name_several_interfaces(tmp_path: Path) -> None:
    paths = files(tmp_path, a__network="[Match]\nName=ib0 ib1\n[Network]\nDHCP=ipv4\n")
    assert [each.name for each in read_files(paths).drafts] == ["ib0", "ib1"]


def test_a_link_file_has_an_mtu_and_perhaps_another_name(tmp_path: Path) -> None:
    paths = files(
        tmp_path,
        a__link="[Match]\nOriginalName=ib0\n[Link]\nMTUBytes=2000\nNamePolicy=keep\nRxChannels=2\n",
        b__link="[Match]\nOriginalName=ib1\n[Link]\nName=storage\nMTUBytes=2001\n",
        c__link="[Match]\nPath=pci*\n[Link]\nName=lan\nMTUBytes=2002\n",
        d__link="[Match]\nOriginalName=*\n[Link]\nNamePolicy=kernel database onboard slot path\n",
        e__network="[Match]\nName=storage\n[Network]\nDHCP=ipv4\n",
        f__link="[Match]\nType=infiniband\n[Link]\nMTUBytes=2003\n",
    )
    reading = read_files(paths)
    mtus = [(each.name, *each.texts("mtu")) for each in reading.drafts]
    assert sorted(mtus) == [("ib0", "2000"), ("storage",), ("storage", "2001")]
    assert [note.why for each in reading.drafts for note in each.notes] == [draft.UNKNOWN]
    assert [note.place.path.name for note in reading.notes] == ["c.link", "d.link"]


def test_a_link_file_for_all_counts_for_those_without_one(tmp_path: Path) -> None:
    paths = files(
        tmp_path,
        a__link="[Match]\nOriginalName=ib0\n[Link]\nMTUBytes=2000\n",
        b__link="[Match]\nOriginalName=ib*\n[Link]\nMTUBytes=2001\n",
        c__network="[Match]\nName=ib1\n",
    )
    mtus = [(each.name, each.texts("mtu")) for each in read_files(paths).drafts]
    assert mtus == [("ib1", []), ("ib0", ["2000"]), ("ib1", ["2001"])]
    (alone,) = read_files([tmp_path / "b.link"]).drafts
    assert alone.name == "ib0"


def test_what_netplan_leaves_in_run(tmp_path: Path) -> None:
    paths = files(
        tmp_path,
        a__link="[Match]\nOriginalName=ib0\n[Link]\nMTUBytes=65520\n",
        b__network="[Match]\nName=ib0\n[Network]\nAddress=192.0.2.10/24\n[IPoIB]\nMode=connected\n",
    )
    assert paths
    (made,) = assemble(read_files([tmp_path]), {"": "mlx5_0"})
    assert made.texts == {"mode": ["connected"], "mtu": ["65520"], "address": ["192.0.2.10/24"]}
    assert made.notes == []
