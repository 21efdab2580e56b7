# SPDX-License-Identifier: BSD-2-Clause
"""`ipoibu up --tun attach`: ordinary users with the persistent TUN that root made for them."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator

import pytest

from ipoibu.lab.host import NETDEV
from tests.netns.ordinary_user import OrdinaryUser
from tests.netns.streams import mss_of

pytestmark = [pytest.mark.netns, pytest.mark.root]

Until = Callable[..., object]


class Owner(OrdinaryUser):
    """The ordinary user of one host, to whom root gives a TUN."""

    def root(self, command: str) -> str:
        done = self.host.run(command.split())
        assert done.returncode == 0, done
        return done.stdout

    @contextlib.contextmanager
    def tun(self, *more: str) -> Iterator[None]:
        self.root(" ".join(("ip tuntap add ib0 mode tun user", str(self.uid), *more)))
        try:
            self.root("ip link set ib0 up mtu 2044")
            self.root(f"ip address add {self.host.ipv4} dev ib0")
            self.root(f"ip address add {self.host.ipv6} dev ib0")
            yield
        finally:
            self.root(" ".join(("ip tuntap del ib0 mode tun", *more)))

    def output(self, *words: str) -> tuple[int, str]:
        """Run `ipoibu WORDS...`; return its status, and both outputs together."""
        done = self.run(*words)
        return done.returncode, done.stdout + done.stderr

    @contextlib.contextmanager
    def up(self, *options: str) -> Iterator[subprocess.Popen[bytes]]:
        process = self.popen(
            "up",
            "ib0",
            "--device",
            f"soft:{NETDEV}",
            "--tun",
            "attach",
            *options,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            assert line.startswith(b"ib0: up"), process.stderr.read()
            yield process
        finally:
            process.terminate()
            process.wait(60)
            process.stdout.close()
            process.stderr.close()


@pytest.fixture(scope="module")
def owners() -> Iterator[tuple[Owner, Owner]]:
    with Owner.pair() as owners:
        yield owners


def _loses_none(owner: Owner, target: str) -> bool:
    """Whether three pings are answered; the first one may wait for a busy machine too long."""
    done = owner.host.run(["ping", "-q", "-c", "3", "-i", "0.2", "-W", "10", target])
    return " 0% packet loss" in done.stdout


def test_owners_without_capabilities_reach_each_other_and_follow_addresses(
    owners: tuple[Owner, Owner], until: Until
) -> None:
    first, second = owners
    with first.tun(), second.tun(), first.up(), second.up():
        for target in (first.host.ipv4.ip, first.host.ipv6.ip):
            until(lambda to=target: _loses_none(second, str(to)))
        # The limits that make a frame of TCP one train belong to interfaces of ipoibu's own.
        mss = 2044 - 52
        assert mss_of(second.host, first.host, str(first.host.ipv4.ip)) == (mss, mss)
        first.root("ip address add 10.88.0.1/24 dev ib0")
        second.root("ip address add 10.88.0.2/24 dev ib0")
        until(lambda: _loses_none(second, "10.88.0.1"))
        first.root("ip address del 10.88.0.1/24 dev ib0")
        until(lambda: "10.88.0.1" not in first.output("show", "ib0")[1])


def test_the_interface_stays_with_its_settings_and_is_attached_again(
    owners: tuple[Owner, Owner],
) -> None:
    first, _ = owners
    with first.tun():
        for _ in range(2):
            with first.up() as process:
                pass
            assert process.returncode == 0
            state = first.root("ip address show ib0")
            assert "mtu 2044" in state
            assert str(first.host.ipv4) in state


@pytest.mark.parametrize("queues", [2])
def test_a_multi_queue_tun_takes_as_many_queues_as_asked_for(
    owners: tuple[Owner, Owner], queues: int
) -> None:
    first, _ = owners
    with first.tun("multi_queue"), first.up("--queues", str(queues)):
        pass


def test_what_is_not_the_users_persistent_tun_is_refused_with_the_remedy(
    owners: tuple[Owner, Owner],
) -> None:
    first, _ = owners
    attach = "--device", f"soft:{NETDEV}", "--tun", "attach"
    code, text = first.output("up", "ib0", *attach)
    assert (code, "ip tuntap add ib0 mode tun user" in text) == (3, True), text
    code, text = first.output("up", NETDEV, *attach)
    assert (code, "is not a TUN" in text) == (2, True), text
    first.root("ip tuntap add ib0 mode tun user 1")
    code, text = first.output("up", "ib0", *attach)
    first.root("ip tuntap del ib0 mode tun")
    assert (code, "belongs to another user" in text) == (4, True), text
    with first.tun("multi_queue"):
        code, text = first.output("up", "ib0", *attach)
        assert (code, "multi_queue" in text) == (2, True), text
    with first.tun(), first.up():
        code, text = first.output("up", "ib0", *attach)
        assert (code, "another process" in text) == (1, True), text
    code, text = first.output("up", "ib0", *attach, "--address", "10.0.0.1/24")
    assert (code, "leave --address" in text) == (2, True), text


def test_the_mtu_is_the_administrators(owners: tuple[Owner, Owner]) -> None:
    first, _ = owners
    with first.tun(), first.up():
        code, text = first.output("set", "ib0", "mtu", "1500")
        assert (code, "ip link set ib0 mtu 1500" in text) == (1, True), text
