# SPDX-License-Identifier: BSD-2-Clause
"""Programs of Debian that people run on an IPoIB interface; the table of docs/use/software.md names them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.netns.conftest import Until
from tests.netns.programs import enter, running

pytestmark = pytest.mark.netns


@pytest.fixture(scope="module")
def three() -> Iterator[NamespaceLab]:
    with NamespaceLab(3) as lab:
        yield lab


def test_nginx_serves_curl_over_both_families(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    server, client, _ = three.hosts
    (tmp_path / "page").write_bytes(os.urandom(1 << 20))
    tmp_path.chmod(0o755)
    config = tmp_path / "nginx.conf"
    config.write_text(
        "user root; daemon off; events {} "
        f"http {{ access_log off; server {{ listen 80; listen [::]:80; root {tmp_path}; }} }}"
    )
    fetched = tmp_path / "fetched"
    with running(server, tmp_path, "nginx", "-c", str(config)):
        for address in (str(server.ipv4.ip), f"[{server.ipv6.ip}]"):
            get = ["curl", "-sfo", str(fetched), f"http://{address}/page"]
            until(lambda get=get: client.run(get).returncode == 0)
            assert fetched.read_bytes() == (tmp_path / "page").read_bytes()


def test_chrony_follows_a_server_on_the_link(
    three: NamespaceLab, tmp_path: Path, until: Until
) -> None:
    """Without touching the clock: `-x`."""
    server, client, _ = three.hosts
    for host, line in (
        (server, "local stratum 3\nallow 10.77.0.0/24"),
        (client, f"server {server.ipv4.ip} iburst"),
    ):
        text = f"cmdport 0\nbindcmdaddress /\npidfile /run/chronyd.pid\n{line}\n"
        (tmp_path / f"{host.name}.conf").write_text(text)

    def chronyd(host: Host) -> list[str]:
        return ["chronyd", "-d", "-x", "-u", "root", "-f", str(tmp_path / f"{host.name}.conf")]

    log = tmp_path / f"{client.name}.log"
    with running(server, tmp_path, *chronyd(server)), running(client, tmp_path, *chronyd(client)):
        until(lambda: f"Selected source {server.ipv4.ip}" in log.read_text(), 120)


def test_avahi_finds_a_host_by_its_name(three: NamespaceLab, tmp_path: Path, until: Until) -> None:
    """On a point-to-point interface only where it is told to."""
    one, two, _ = three.hosts
    daemons = (
        "dbus-daemon --system --nofork --nopidfile --nosyslog & "
        "until [ -S /run/dbus/system_bus_socket ]; do sleep 0.05; done; "
        "exec avahi-daemon --no-drop-root --no-chroot -f {config}"
    )

    def avahi(host: Host) -> list[str]:
        config = tmp_path / f"{host.name}.avahi"
        config.write_text(
            f"[server]\nhost-name={host.name}\nallow-interfaces=ib0\nallow-point-to-point=yes\n"
        )
        return ["sh", "-c", daemons.format(config=config)]

    with (
        running(one, tmp_path, *avahi(one)) as first,
        running(two, tmp_path, *avahi(two)) as second,
    ):

        def resolved(family: str) -> str:
            return enter(two, second, "avahi-resolve", family, "-n", f"{one.name}.local")

        until(lambda: str(one.ipv4.ip) in resolved("-4"))
        until(lambda: ":" in resolved("-6"))
        for daemon in (first, second):  # where its D-Bus ends first, Avahi 0.8 may run in a circle
            daemon.terminate()
            daemon.wait(60)
