# SPDX-License-Identifier: BSD-2-Clause
"""The images of packaging/container and docs/examples/pod, and the recipes of docs/use/rootless.md, under
podman.

The base is made by debootstrap, and pip gets its packages from a directory: nothing comes from a registry
of images. Containers are in the network namespaces of a lab.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ipoibu.lab import NamespaceLab
from ipoibu.lab.host import Host
from tests.doubles.certificate import certificate_of

pytestmark = [pytest.mark.nightly, pytest.mark.netns, pytest.mark.root, pytest.mark.timeout(1800)]

PROJECT: Final = Path(__file__).parents[2]
CONTAINER: Final = PROJECT / "packaging/container"
MIRROR: Final = "http://deb.debian.org/debian"
BASE: Final = "localhost/debian:bookworm-slim"
POD: Final = PROJECT / "docs/examples/pod"
PACKAGES: Final = ("cffi", "pyseccomp", "cython<3.2", "setuptools", "wheel", "aioquic")
# The least that a container may have, and the usual: a machine's own limits may be lower than podman's.
CONFIG: Final = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[engine]
runtime = "runc"
"""
POWERLESS: Final = ("--user", "1000", "--cap-drop=ALL", "--security-opt=no-new-privileges")
UNPRIVILEGED: Final = (*POWERLESS, "--device", "/dev/net/tun")


class Podman:
    """podman with a store of its own."""

    def __init__(self, directory: Path, state: Path) -> None:
        (directory / "containers.conf").write_text(CONFIG)
        self._environment = {**os.environ, "CONTAINERS_CONF": str(directory / "containers.conf")}
        self._words = ["podman", "--root", f"{directory}/store", "--runroot", str(state)]

    def popen(self, *words: str, host: Host | None = None) -> subprocess.Popen[str]:
        """Start podman; `--network host` is then the network of `host`."""
        enter = [] if host is None else ["nsenter", f"--net={host.namespace.path}"]
        return subprocess.Popen(
            [*enter, *self._words, *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def save(self, archive: Path, *images: str) -> None:
        """Write images for another store."""
        self("save", "--multi-image-archive", "-o", str(archive), *images)

    def __call__(self, *words: str, host: Host | None = None) -> str:
        process = self.popen(*words, host=host)
        output, _ = process.communicate()
        assert process.returncode == 0, output
        return output

    def start(self, *words: str, host: Host) -> subprocess.Popen[str]:
        """Start a container of the image."""
        return self.popen("run", "--rm", "--network", "host", *words, host=host)


class OrdinaryPodman(Podman):
    """podman of an ordinary user with subordinate ids, which a copy of /etc gives it: the machine's own
    /etc stays as it is."""

    UID: Final = 61234
    _ENTER: Final = """\
mount --bind "$1/etc" /etc && cd "$1/home" && shift
exec setpriv --reuid {uid} --regid {uid} --clear-groups --inh-caps=-all "$@"
"""

    def __init__(self, directory: Path, state: Path) -> None:
        super().__init__(directory, state)
        for place in (directory / "home", state):
            place.mkdir(exist_ok=True)
            os.chown(place, self.UID, self.UID)
        etc = directory / "etc"
        shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
        with (etc / "passwd").open("a", encoding="ascii") as file:
            file.write(f"pod:x:{self.UID}:{self.UID}::{directory}/home:/bin/sh\n")
        for name in ("subuid", "subgid"):
            (etc / name).write_text("pod:700000:65536\n")
        self._environment |= {"HOME": f"{directory}/home", "XDG_RUNTIME_DIR": str(state)}
        self._words = [
            *("unshare", "--mount", "--propagation", "slave", "sh", "-ec"),
            *(self._ENTER.format(uid=self.UID), "sh", str(directory)),
            *("podman", "--root", f"{directory}/home/store", "--runroot", f"{state}/run"),
            *("--cgroup-manager", "cgroupfs"),
        ]


@pytest.fixture(scope="module")
def ordinary(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OrdinaryPodman]:
    """podman of an ordinary user, which has the images, too."""
    with (
        tempfile.TemporaryDirectory(prefix="ordinary-") as place,
        tempfile.TemporaryDirectory(prefix="podman-") as state,
    ):
        directory = Path(place)
        directory.chmod(0o755)
        archive = directory / "image.tar"
        podman.save(archive, "localhost/ipoibu", "localhost/http3")
        archive.chmod(0o644)
        ordinary = OrdinaryPodman(directory, Path(state))
        ordinary("load", "-q", "-i", str(archive))
        archive.unlink()
        yield ordinary
        ordinary("rmi", "--all", "--force")
        ordinary("system", "migrate")  # ends the process that holds its namespaces


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """podman, which has the images `localhost/ipoibu` and `localhost/http3`."""
    directory = tmp_path_factory.mktemp("podman")
    base, archive, wheels = (directory / name for name in ("base", "base.tar", "wheels"))
    for command in (
        ["debootstrap", "--variant=minbase", "bookworm", str(base), MIRROR],
        ["tar", "-C", str(base), "-cf", str(archive), "."],
        [sys.executable, "-m", "pip", "download", "-q", "-d", str(wheels), *PACKAGES],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (directory / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    # podman takes no path of more than 50 characters for its state.
    with tempfile.TemporaryDirectory(prefix="podman-") as state:
        podman = Podman(directory, Path(state))
        podman("import", str(archive), BASE)
        volumes = ["-v", f"{wheels}:/wheels:ro", "-v", f"{directory}/pip.conf:/etc/pip.conf:ro"]
        file = ["-f", str(CONTAINER / "Containerfile"), "--build-arg", f"BASE={BASE}"]
        podman(
            "build", "--network", "host", *volumes, *file, "-t", "localhost/ipoibu", str(PROJECT)
        )
        podman("build", "--network", "host", *volumes, "-t", "localhost/http3", str(POD))
        yield podman
        podman("rmi", "--all", "--force")


@pytest.fixture
def tls() -> Iterator[Path]:
    """A directory that any user reaches."""
    with tempfile.TemporaryDirectory(prefix="tls-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.fixture
def hosts() -> Iterator[list[Host]]:
    with NamespaceLab(start=False) as lab:
        yield lab.hosts


@pytest.mark.parametrize("whose", ["podman", "ordinary"])
def test_containers_without_any_privilege_reach_each_other(
    request: pytest.FixtureRequest, hosts: list[Host], whose: str
) -> None:
    """Under podman as root, and as an ordinary user."""
    podman: Podman = request.getfixturevalue(whose)
    first, second = hosts
    run = ("localhost/ipoibu", "run", "--device", "soft:eth0", "--address")
    waiting = podman.start(*UNPRIVILEGED, *run, "10.0.0.1/24", "--", "sleep", "60", host=first)
    script = "grep CapEff /proc/self/status; ping -c 3 -i 0.3 -W 10 10.0.0.1"
    asking = podman.start(*UNPRIVILEGED, *run, "10.0.0.2/24", "--", "sh", "-c", script, host=second)
    output, _ = asking.communicate(timeout=60)
    waiting.terminate()
    waited, _ = waiting.communicate(timeout=60)
    assert asking.returncode == 0, output + waited
    assert "CapEff:\t0000000000003400" in output  # over the network of its own namespace
    assert " 0% packet loss" in output


@pytest.mark.parametrize("whose", ["podman", "ordinary"])
def test_a_container_without_a_tun_speaks_http3(
    request: pytest.FixtureRequest, hosts: list[Host], tls: Path, whose: str
) -> None:
    """docs/examples/pod: no capability, no further privilege, and no device but those of every
    container."""
    podman: Podman = request.getfixturevalue(whose)
    for file in certificate_of("10.0.0.1", tls):
        file.chmod(0o644)
    image = ("-v", f"{tls}:/tls:ro", "--entrypoint", "sh", "localhost/http3", "-c")
    serve = "exec python3 /http3.py serve 10.0.0.1/24 /tls/cert.pem /tls/key.pem"
    serving = podman.start("--name", "serving", *POWERLESS, *image, serve, host=hosts[0])
    try:
        get = "grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; ls /dev/net/tun; "
        get += "python3 /http3.py get 10.0.0.2/24 /tls/cert.pem 10.0.0.1"
        asking = podman.start(*POWERLESS, *image, get, host=hosts[1])
        output, _ = asking.communicate(timeout=120)
    finally:
        podman("kill", "serving")
        served, _ = serving.communicate(timeout=60)
    assert asking.returncode == 0, output + served
    assert output.splitlines() == [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "ls: cannot access '/dev/net/tun': No such file or directory",
        "9999 lines: HTTP/3 over InfiniBand",
    ]


def test_the_pods_of_the_manifest_reach_each_other(
    podman: Podman, hosts: list[Host], tmp_path: Path
) -> None:
    """podman takes Kubernetes manifests; each pod is on a host of its own."""
    manifests = (CONTAINER / "pods.yaml").read_text().split("---\n")
    files = [tmp_path / f"{number}.yaml" for number in range(len(manifests))]
    assert len(files) == len(hosts)
    try:
        for file, manifest, host in zip(files, manifests, hosts, strict=True):
            file.write_text(manifest)
            podman("play", "kube", "--network", "host", str(file), host=host)
        _await(podman, "ipoibu-up-application", "10.0.0.2/24", hosts[1])
        _await(podman, "ipoibu-run-ipoibu", "state up", hosts[0], "ipoibu", "show")
        join = ("ipoibu", "run", "--join", "ib0", "--", "ping", "-c", "3", "-W", "10", "10.0.0.2")
        assert " 0% packet loss" in podman("exec", "ipoibu-run-ipoibu", *join, host=hosts[0])
    finally:
        for file in files:
            podman("play", "kube", "--down", str(file))


def _await(podman: Podman, container: str, text: str, host: Host, *words: str) -> None:
    """Wait until the output of a command in a container has the text."""
    deadline = time.monotonic() + 30
    command = words or ("ip", "-brief", "address")
    while text not in (seen := podman("exec", container, *command, host=host)):
        assert time.monotonic() < deadline, seen
        time.sleep(0.3)
