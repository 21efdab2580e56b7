# SPDX-License-Identifier: BSD-2-Clause
"""Libraries that speak UDP by asyncio run over an endpoint without a TUN, against themselves over the
kernel's sockets behind `ipoibu up`, in both directions."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.doubles.certificate import certificate_of

pytestmark = pytest.mark.netns

PROGRAM: Final = Path(__file__).with_name("datagram_library.py")
POD: Final = Path(__file__).parents[2] / "docs/examples/pod"
SAYS: Final = {
    "plain": "echoed",
    "quic": "both ways",
    "http3": "1048576 bytes",
    "webrtc": "both ways",
    "dns": "15 texts",
    "coap": "in blocks",
}
NIGHTLY_QUIC, NIGHTLY_HTTP3, NIGHTLY_WEBRTC = (
    pytest.param(it, marks=pytest.mark.nightly) for it in ("quic", "http3", "webrtc")
)
Pair = tuple[Host, Host]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    certificate, key = certificate_of("example.test", tmp_path_factory.mktemp("certificate"))
    return [f"cert={certificate}", f"key={key}"]


@contextmanager
def pair_of(*options: str) -> Iterator[Pair]:
    """Return a host with the kernel's stack behind `ipoibu up`, and one for an endpoint."""
    with NamespaceLab(options=list(options), start=False) as lab:
        lab.hosts[0].start()
        yield lab.hosts[0], lab.hosts[1]


@pytest.fixture(scope="module")
def datagram_pair() -> Iterator[Pair]:
    with pair_of() as pair:
        yield pair


def exchange(
    pair: Pair, library: str, *, is_server_ours: bool, family: int, options: list[str]
) -> str:
    """Run the server on one stack and the client on the other; return what the client says."""
    kernel, ours = pair
    stacks = (
        (("aio", ours), ("kernel", kernel))
        if is_server_ours
        else (("kernel", kernel), ("aio", ours))
    )
    (server_stack, server), (client_stack, client) = stacks

    def command(role: str, stack: str, own: Host, peer: Host) -> list[str]:
        ends = [str(it.ipv4 if family == 4 else it.ipv6) for it in (own, peer)]
        peer_ip = ends[1].partition("/")[0]
        return [sys.executable, str(PROGRAM), library, role, stack, ends[0], peer_ip, *options]

    serving = server.namespace.popen(
        command("server", server_stack, server, client),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with serving:
        assert serving.stdin is not None
        assert serving.stdout is not None
        assert serving.stderr is not None
        try:
            first = str(serving.stdout.readline())
            assert first == "ready\n", serving.stderr.read()
            done = client.run(command("client", client_stack, client, server), timeout_s=150)
        finally:
            serving.stdin.close()
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("is_server_ours", [False, True], ids=["client", "server"])
@pytest.mark.parametrize(
    ("library", "family"),
    [
        ("plain", 4),
        ("plain", 6),
        ("quic", 6),
        ("http3", 4),
        ("webrtc", 4),
        ("webrtc", 6),
        ("dns", 4),
        ("coap", 6),
    ],
)
def test_a_library_meets_itself_over_the_kernel(
    datagram_pair: Pair, certificate: list[str], library: str, family: int, is_server_ours: bool
) -> None:
    said = exchange(
        datagram_pair, library, is_server_ours=is_server_ours, family=family, options=certificate
    )
    assert said == SAYS[library]


@pytest.fixture(scope="module")
def connected_pair() -> Iterator[Pair]:
    with pair_of("--mode", "connected") as pair:
        yield pair


@pytest.fixture(scope="module")
def lossy_pair() -> Iterator[Pair]:
    with pair_of("--faults", "loss=0.01") as pair:
        yield pair


@pytest.mark.parametrize("is_server_ours", [False, True], ids=["client", "server"])
@pytest.mark.parametrize("library", ["plain", NIGHTLY_HTTP3, NIGHTLY_WEBRTC])
def test_a_library_uses_connections(
    connected_pair: Pair, certificate: list[str], library: str, is_server_ours: bool
) -> None:
    options = [*certificate, "mode=connected"]
    said = exchange(
        connected_pair, library, is_server_ours=is_server_ours, family=4, options=options
    )
    assert said == SAYS[library]


@pytest.mark.parametrize("is_server_ours", [False, True], ids=["client", "server"])
@pytest.mark.parametrize("library", ["http3", NIGHTLY_QUIC, NIGHTLY_WEBRTC])
def test_a_library_crosses_a_link_that_loses_datagrams(
    lossy_pair: Pair, certificate: list[str], library: str, is_server_ours: bool
) -> None:
    options = [*certificate, "loss=0.01"]
    said = exchange(lossy_pair, library, is_server_ours=is_server_ours, family=6, options=options)
    assert said == SAYS[library]


def test_the_example_of_a_pod_speaks_http3(tmp_path: Path) -> None:
    """tests/package/test_container.py runs it in containers without capabilities."""
    certificate, key = certificate_of("10.0.0.1", tmp_path)
    program = [sys.executable, str(POD / "http3.py")]
    with NamespaceLab(start=False) as lab:
        serve = ("serve", "10.0.0.1/24", str(certificate), str(key))
        serving = lab.hosts[0].namespace.popen([*program, *serve])
        try:
            get = ("get", "10.0.0.2/24", str(certificate), "10.0.0.1")
            done = lab.hosts[1].run([*program, *get], timeout_s=120)
        finally:
            serving.terminate()
            serving.wait()
    assert done.stdout == "9999 lines: HTTP/3 over InfiniBand\n", done.stderr
    assert len((POD / "http3.py").read_text().splitlines()) <= 60
