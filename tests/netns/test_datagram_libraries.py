# SPDX-License-Identifier: BSD-2-Clause
"""Libraries that speak UDP by asyncio run over an endpoint without a TUN, against themselves over the
kernel's sockets behind `ipoibu up`, in both directions."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host

pytestmark = pytest.mark.netns

PROGRAM: Final = Path(__file__).with_name("datagram_library.py")
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
    """Make a certificate of example.test that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "example.test")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("example.test")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    directory = tmp_path_factory.mktemp("certificate")
    files = directory / "cert.pem", directory / "key.pem"
    files[0].write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return [f"cert={files[0]}", f"key={files[1]}"]


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
