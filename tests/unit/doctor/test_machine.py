# SPDX-License-Identifier: BSD-2-Clause
from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from ipoibu import _core
from ipoibu.base.device_name import SoftName, parse_soft
from ipoibu.doctor import finding
from ipoibu.doctor import machine as checkup
from ipoibu.doctor.finding import Finding
from ipoibu.host.netlink import Link


@pytest.mark.parametrize(
    ("mask", "status"), [("000001ffffffffff", "ok"), ("0000000000000000", "fail"), ("x", "warn")]
)
def test_the_capability_is_read_from_the_effective_set(
    tmp_path: Path, mask: str, status: str
) -> None:
    file = tmp_path / "status"
    file.write_text(f"Name:\tx\nCapPrm:\t000001ffffffffff\nCapEff:\t{mask}\n")
    assert checkup.net_admin(file).status == status


def test_packets_of_a_tun_go_in_batches_where_there_is_an_io_uring() -> None:
    assert checkup.io_uring().status == "ok"


@pytest.mark.parametrize(
    ("number", "missing", "remedy"),
    [
        (errno.EPERM, None, "sysctl -w kernel.io_uring_disabled=0"),
        (errno.ENOSYS, None, None),
        (
            errno.ENOSYS,
            "built without liburing",
            "apt-get install liburing-dev, then build again",
        ),
        (errno.ENOSYS, "liburing.so.2: file too short", "apt-get install liburing2"),
    ],
)
def test_without_an_io_uring_it_says_why(
    number: int, missing: str | None, remedy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(_core, "TunRing", refuse)
    monkeypatch.setattr(_core, "URING_MISSING", missing)
    result = checkup.io_uring()
    assert (result.status, result.remedy) == ("info", remedy)
    assert (missing or os.strerror(number)) in result.detail


@pytest.mark.parametrize(
    ("mtu", "status", "word"),
    [
        (9000, "ok", "4092"),
        (4176, "ok", "4092"),
        (4175, "ok", "2044"),
        (2128, "ok", "2044"),
        (2127, "warn", "1020"),  # CONFORMANCE T3: no IPv6
        (1500, "warn", "1020"),
        (336, "warn", "252"),
        (335, "fail", "below 336"),
    ],
)
def test_the_device_mtu_decides_the_ip_mtu(mtu: int, status: str, word: str) -> None:
    result = finding.device_mtu(Link(2, "eth0", mtu, True, None))
    assert result.status == status
    assert word in result.detail
    assert (result.remedy is None) == (status == "ok")


@pytest.mark.parametrize(
    ("mtu", "status", "words"),
    [
        (9216, "ok", "an IP MTU of 9140; the default is 2044"),
        (65536, "ok", "an IP MTU of 9140; the default is 2044"),
        (9000, "ok", "an IP MTU of 8924; the default is 2044"),
        (2120, "ok", "an IP MTU of 2044; the default is 2044"),
        (2119, "ok", "an IP MTU of 2040; beside rxe, use --mtu 1020 on every host"),
        (1500, "ok", "an IP MTU of 1424; beside rxe, use --mtu 1020 on every host"),
        (1356, "ok", "an IP MTU of 1280"),
        (1355, "warn", "an IP MTU of 1276: no IPv6, which needs 1280"),
        (336, "warn", "an IP MTU of 260"),
        (335, "fail", "below 336"),
    ],
)
def test_the_built_in_hca_uses_the_whole_mtu_of_the_device(
    mtu: int, status: str, words: str
) -> None:
    result = finding.datagram_mtu(Link(2, "eth0", mtu, True, None))
    assert (result.status, words in result.detail) == (status, True)


def test_over_ipv4_a_datagram_is_20_bytes_longer() -> None:
    link = Link(2, "eth0", 1500, True, None)
    assert finding.datagram_mtu(link, over_ipv4=True).detail.endswith("an IP MTU of 1444")


TENTATIVE = 0x40


@pytest.mark.parametrize(
    ("flags", "status"),
    [
        ({"fe80::1": 0x80}, "ok"),
        ({"fe80::1": TENTATIVE, "fe80::2": 0}, "ok"),
        ({"fe80::1": TENTATIVE}, "fail"),
        ({"10.0.0.1": 0, "fd00::1": 0}, "fail"),
        ({}, "fail"),
    ],
)
def test_only_a_link_local_address_that_is_not_tentative_will_do(
    flags: dict[str, int], status: str
) -> None:
    result = checkup.device_link_local("eth0", flags)
    assert result.status == status
    assert (result.remedy is None) == (status == "ok")


FLAGS = {"127.0.0.1": 0, "2001:db8::1": 0, "192.0.2.1": 0, "fe80::1": 0, "fe80::2": TENTATIVE}


@pytest.mark.parametrize(
    ("name", "left_out", "ip", "status"),
    [
        ("soft:eth0", (), "fe80::1", None),
        ("soft:eth0", ("fe80::1",), "192.0.2.1", "ok"),
        ("soft:eth0", ("fe80::1", "192.0.2.1"), "2001:db8::1", "ok"),
        ("soft:eth0", ("fe80::1", "192.0.2.1", "2001:db8::1"), None, None),
        ("soft:eth0,ipv4", (), "192.0.2.1", "ok"),
        ("soft:eth0,ipv4", ("192.0.2.1",), None, "fail"),
        ("soft:eth0,ipv6", (), "2001:db8::1", "ok"),
        ("soft:eth0,ipv6", ("2001:db8::1",), None, "fail"),
        ("soft:eth0,2001:db8::1", (), "2001:db8::1", "ok"),
        ("soft:eth0,192.0.2.7", (), None, "fail"),
        ("soft:eth0,fe80::2", (), None, None),
    ],
)
def test_the_address_of_the_built_in_hca_is_the_one_that_the_device_has_for_it(
    name: str, left_out: tuple[str, ...], ip: str | None, status: str | None
) -> None:
    soft = parse_soft(name)
    chosen = checkup.chosen_address(soft, {a: it for a, it in FLAGS.items() if a not in left_out})
    assert (str(chosen) if chosen else None) == ip
    assert checkup.is_routed(soft, chosen) == (status is not None)
    if status is not None:
        result = checkup.device_address(soft, chosen)
        assert (result.status, result.remedy is None) == (status, status == "ok")


@pytest.mark.parametrize(
    ("capable", "limit", "status"),
    [
        (True, "212992", "ok"),
        (False, "212992", "warn"),
        (False, "16777216", "ok"),
        (False, "", "info"),
    ],
)
def test_without_root_a_small_receive_buffer_is_named(
    tmp_path: Path, capable: bool, limit: str, status: str
) -> None:
    (tmp_path / "status").write_text(f"CapEff:\t{1 << 12 if capable else 0:016x}\n")
    (tmp_path / "rmem_max").write_text(limit)
    result = checkup.receive_buffer(tmp_path / "status", tmp_path / "rmem_max")
    assert result.status == status
    if status == "warn":
        assert "212992" in result.detail
        assert result.remedy == "sysctl -w net.core.rmem_max=16777216"


def test_a_device_with_ipv6_switched_off_names_the_switch(tmp_path: Path) -> None:
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0" / "disable_ipv6").write_text("1\n")
    result = checkup.device_ipv6("eth0", tmp_path)
    assert result.status == "fail"
    assert result.remedy == "sysctl -w net.ipv6.conf.eth0.disable_ipv6=0"
    (tmp_path / "eth0" / "disable_ipv6").write_text("0\n")
    assert checkup.device_ipv6("eth0", tmp_path).status == "ok"
    assert checkup.device_ipv6("eth1", tmp_path).status == "fail"


def test_a_machine_without_ipv6_fails_and_one_with_it_switched_off_names_the_switch(
    tmp_path: Path,
) -> None:
    assert checkup.ipv6(tmp_path / "none").status == "fail"
    (tmp_path / "all").mkdir()
    (tmp_path / "all" / "disable_ipv6").write_text("1\n")
    assert checkup.ipv6(tmp_path).remedy == "sysctl -w net.ipv6.conf.all.disable_ipv6=0"


def test_a_taken_port_fails_and_names_how_to_see_by_whom() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as holder:
        holder.bind(("::1", 0))
        port = holder.getsockname()[1]
        result = checkup.roce_port("lo", port)
        assert result.status in ("fail", "warn")
        if os.geteuid() == 0:
            assert result.remedy == f"ss -lunp sport = :{port}"
    assert checkup.roce_port("lo", port).status in ("ok", "warn")


def test_rdma_is_needed_by_rdma_devices_only(tmp_path: Path) -> None:
    def nodes(findings: list[Finding]) -> Finding:
        return next(finding for finding in findings if finding.check == "rdma_nodes")

    missing = tmp_path / "infiniband"
    assert nodes(list(checkup.rdma_stack(needed=False, devices=missing))).status == "info"
    needed = nodes(list(checkup.rdma_stack(needed=True, devices=missing)))
    assert (needed.status, needed.remedy) == ("fail", "modprobe ib_uverbs")
    missing.mkdir()
    (missing / "uverbs0").touch()
    assert nodes(list(checkup.rdma_stack(needed=True, devices=missing))).status == "ok"


def test_an_rdma_device_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "rxe0").mkdir()
    assert checkup.rdma_device("rxe0", tmp_path).status == "ok"
    assert "rxe0" in checkup.rdma_device("mlx5_0", tmp_path).detail


def test_a_network_device_in_place_of_an_rdma_device_leads_to_the_built_in_hca() -> None:
    findings = checkup.checkup("lo")
    remedies = {finding.check: finding.remedy for finding in findings if finding.status == "fail"}
    assert remedies["device"] == "use --device soft:lo"
    assert "rdma_nodes" not in remedies


def test_an_unknown_network_device_fails_and_nothing_more_is_asked_of_it() -> None:
    (result,) = checkup.net_device(SoftName("ib-not-there"))
    assert (result.check, result.status, result.remedy) == ("device", "fail", "ip link show")


def test_every_check_has_a_name_of_its_own_and_every_failure_a_remedy() -> None:
    findings = checkup.checkup("soft:lo")
    names = [finding.check for finding in findings]
    assert len(set(names)) == len(names)
    assert all(finding.remedy for finding in findings if finding.status == "fail")
    assert {"tun", "cap_net_admin", "extension", "ipv6", "memlock", "pyverbs", "mtu"} <= set(names)
