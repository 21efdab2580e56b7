# SPDX-License-Identifier: BSD-2-Clause
"""Files of other programs under drawn text: each gives a file that `config check` accepts, or a
`UsageError` of one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipoibu.daemon.config import InterfaceConfig, faults
from ipoibu.errors import UsageError
from ipoibu.migration.assembly import assemble
from ipoibu.migration.document import document
from ipoibu.migration.sources import read_files

HEADS = {
    "a.nmconnection": "[connection]\ntype=infiniband\n",
    "a.network": "[Match]\nName=ib0\n",
    "a.netdev": "[NetDev]\nKind=ipoib\n",
    "ifcfg-ib0": "TYPE=InfiniBand\n",
    "a.yml": "network_connections:\n- type: infiniband\n",
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
    paths = [directory / name, directory / name.replace("a.", "b.").replace("ib0", "ib1")]
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
        for named in ("device =", "pkey =") if interface.needs_pkey else ("device =",):
            text = text.replace(f"# {named}", named)  # what the administrator adds
        written.write_text(text, encoding="utf-8")
        assert [str(fault) for fault in faults(written)] == []
        InterfaceConfig.build(interface.name, {}, written)
