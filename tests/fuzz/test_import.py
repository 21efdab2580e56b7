# SPDX-License-Identifier: BSD-2-Clause
"""Files of other programs under drawn text: each gives a file that `config check` accepts, or a
`UsageError` of one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.base.errors import UsageError
from ipoibu.daemon.config.interface_config import InterfaceConfig, faults
from ipoibu.importer.assembly import assemble
from ipoibu.importer.document import document
from ipoibu.importer.sources import read_files

HEADS = {
    "a.nmconnection": "[connection]\ntype=infiniband\n",
    "a.network": "[Match]\nName=ib0\n",
    "a.netdev": "[NetDev]\nKind=ipoib\n",
    "ifcfg-ib0": "TYPE=InfiniBand\n",
    "a.yml": "network_connections:\n- type: infiniband\n",
    "a.yaml": "network:\n  bonds: {bond0: {interfaces: [ib0, ib1]}}\n  ethernets:\n   ib0:\n",
    "a.json": "version: 1\nconfig:\n- type: infiniband\n",
    "a.cfg": "interfaces:\n- name: ib0\n  type: infiniband\n",
    "a.link": "[Match]\nOriginalName=ib*\n",
    "ifcfg-ib0.8001": "STARTMODE=auto\n",
    "ifcfg-bond0": "TYPE=Bond\nBONDING_SLAVE_0=ib0\n",
    "interfaces": "auto ib0\niface ib0 inet static\n",
    "openib.conf": "SET_IPOIB_CM=yes\n",
}
LINES = st.sampled_from(
    [
        *("[infiniband]", "mtu=2044", "mtu=\x00", "p-key=0x8001", "p-key=0", "parent=ib0"),
        *("[ipv4]", "address1=10.0.0.1/24,10.0.0.9", "address1=%", "route1=,,,", "route1=::/0,10.0.0.9"),
        *("[connection]", "interface-name=ib0", "interface-name=a b", "interface-name=\u2028"),
        *("[Network]", "Address=fd00::1/64", "Gateway=fd00::9", "IPoIB=ib0", "Address=\\", "Address="),
        *("[Link]", "MTUBytes=1000", "MTUBytes=9G", "AllMulticast=yes", "[IPoIB]", "PartitionKey=9"),
        *("interface-name=ib0.8001", "interface-name=ib0.5", "Name=ib0.0009", "DEVICE=ib0.8001"),
        *("[NetDev]", "Name=ib0.8001", "[Route]", "Destination=default", "Destination=10.0.0.0/0"),
        *("MTU=65520", "IPADDR=x", "IPADDR=10.0.0.1", "PREFIX=y", "PKEY=yes", "PKEY_ID=1", "PHYSDEV=z"),
        *("  mtu: 1000", "  ip: {address: [10.0.0.1/24, 'fd00::1/64']}", "  name: ib0", "  ip: *x"),
        *("  address 10.0.0.1", "  pre-up echo 0x9 > /sys/class/net/ib0/create_child", "iface ib1 inet dhcp"),
        *("  up ip route add %", "bond-mode 2", "bond-master bond0", "address fd00::1", "netmask x"),
        *("IPADDR_1=10.0.0.1/24", "BONDING_OPTS='mode=2 updelay=x'", "IPOIB_MTU=7", "IPADDR=fd00::1"),
        *("    mtu: 65520", "    addresses: [fd00::1/64]", "    routes: [{to: default}]", "    match: 5"),
        *("  subnets: [{type: static, address: 10.0.0.1, netmask: x}]", "  ipv4: {address: [{ip: 1}]}"),
        *("  infiniband: {base-iface: ib0, pkey: 5}", "  bond_interfaces: [ib0]", "  params: {bond-mode: 2}"),
        *("OriginalName=*", "Name=ib* !x", "Bond=bond0", "Kind=bond", "master=ib0", "slave-type=bond"),
        *("  infiniband: {p_key: 5}", "  parent: ib0", "  infiniband: []", "  ip: {route: [5]}", "- x"),
    ]
)  # fmt: skip
texts = st.lists(LINES | st.text(max_size=20), max_size=12).map("\n".join)


@pytest.mark.parametrize("name", sorted(HEADS))
@given(texts, texts)
def test_drawn_files_become_a_file_or_an_error_of_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, first: str, second: str
) -> None:
    directory = tmp_path_factory.getbasetemp() / f"import-{name}"
    second_name = f"b.{name[2:]}" if name.startswith("a.") else name.replace("ib0", "ib1")
    paths = [directory / name, directory / (second_name if second_name != name else "readme")]
    directory.mkdir(exist_ok=True)
    for path, text in zip(paths, (first, second), strict=True):
        path.write_text(HEADS[name] + text, encoding="utf-8", errors="surrogatepass")
    try:
        made = assemble(read_files(paths), {"": "mlx5_0"})
    except UsageError as error:
        text, made = str(error), []
    else:
        text = ""
    assert "\n" not in text
    for interface in made:
        written = directory / f"{interface.name}.toml"
        text = document(interface)
        for named in ("device =", "pkey =", "rail-primary ="):
            text = text.replace(f"# {named}", named)  # what the administrator adds
        written.write_text(text, encoding="utf-8")
        assert [str(fault) for fault in faults(written)] == []
        InterfaceConfig.build(interface.name, {}, written)
