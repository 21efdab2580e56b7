# SPDX-License-Identifier: BSD-2-Clause
"""Makes a userland from Debian packages: without privileges, and without a package's own scripts.

apt gets a state of its own with one source and Debian's keyring, so the host's packages do not matter.
The same packages give the same bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ipoibu.lab.artefacts import cache_directory, digests, pack, write_digest
from ipoibu.lab.errors import LabError
from ipoibu.lab.userland.image import (
    ARCHIVE,
    FORMAT,
    INIT,
    KIND,
    KMOD,
    MANIFEST,
    SUMS,
    load,
    verify,
)

SUITE: Final = "bookworm"  # of a host that is no Debian
MIRROR: Final = "http://deb.debian.org/debian"
SECURITY: Final = "http://deb.debian.org/debian-security"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# What a machine's scripts may expect; apt adds what these need.
PACKAGES: Final = """
    base-files base-passwd bash busybox-static coreutils dash debianutils diffutils ethtool findutils grep
    gzip ibverbs-providers ibverbs-utils infiniband-diags iperf3 iproute2 iptables iputils-arping iputils-ping
    mawk mount netbase nftables opensm perftest procps psmisc python3 python3-cffi python3-pyverbs
    python3-seccomp rdma-core rdmacm-utils sed socat strace tar tcpdump util-linux
    """
# Packages that apt adds and a machine does without: what only their own scripts or Perl need.
WITHOUT: Final = re.compile(
    r"adduser|debconf|dpkg|init-system-helpers|libdebconfclient0|libsemanage.*|libsepol.*|.*-perl"
    r"|libgdbm.*|libperl.*|lsb-base|media-types|passwd|pci\.ids|perl.*|readline-common|sysvinit-utils"
    r"|udev|usrmerge"
)
# Directories of packages that a machine does without. Each package's licence stays.
_PRUNED: Final = re.compile(
    r"usr/share/(?!doc/|libc-bin|misc|perftest|python3|terminfo|base-files|base-passwd|iproute2|xtables)"
    r"|usr/share/doc/[^/]+/(?!copyright$)"
    r"|usr/lib/(?:systemd|udev|modules-load\.d|tmpfiles\.d|sysusers\.d|dracut|pkgconfig)/"
    r"|usr/lib/python3\.\d+/(?:test|idlelib|tkinter|lib2to3|ensurepip|pydoc_data|turtledemo)/"
    r"|usr/lib/python3/dist-packages/pyverbs/providers/(?:mlx5|efa)/"
    r"|usr/lib/x86_64-linux-gnu/(?:engines-3|gconv|krb5|perl|perl-base|security)/"
    r"|usr/bin/(?:raw_ethernet_\w+|perlivp)$"
    r"|etc/(?:apparmor\.d|apt|bash_completion\.d|cron\..*|default|dpkg|init\.d|rc.\.d|logrotate\.d|modprobe\.d|pam\.d|security|skel|sysctl\.d|ufw|update-motd\.d)/"
    r"|(?:boot|dev|home|media|mnt|opt|proc|root|run|srv|sys|tmp)/|var/(?:cache|lib/dpkg|lib/pam)/"
)
MERGED: Final = ("bin", "lib", "lib64", "sbin")
MOUNT_POINTS: Final = ("dev", "etc", "mnt", "proc", "run", "sys", "tmp", "usr", "var")
_CONF: Final = """\
Dir "{work}";
Dir::State "state";
Dir::State::status "{work}/status";
Dir::Cache "cache";
Dir::Etc "etc";
Dir::Etc::sourcelist "sources.list";
Dir::Etc::sourceparts "parts";
Dir::Etc::parts "parts";
Dir::Etc::preferencesparts "parts";
Dir::Etc::trustedparts "parts";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Sandbox::User "";
Acquire::Languages "none";
"""
_LAUNCHER: Final = """\
#!/usr/bin/python3
import sys

from ipoibu.cli.main import main

sys.exit(main())
"""
Say = Callable[[str], object]


def build(
    directory: Path,
    package: Path,
    version: str,
    *,
    suite: str | None = None,
    further: Sequence[str] = (),
    mirror: str = MIRROR,
    say: Say = print,
) -> Path:
    """Make the archive and its digest in `directory`; return the archive.

    `package` is the directory of ipoibu, of `version`: the userland gets it if it is compiled for the
    userland's Python. `further` names more Debian packages.
    """
    suite = suite or _own_suite()
    lacking = [each for each in ("apt-get", "dpkg-deb") if shutil.which(each) is None]
    if lacking or not KEYRING.exists():
        detail = f"lacks {lacking[0] if lacking else KEYRING}"
        raise LabError(f"a userland is built where Debian's apt is, this host {detail}: fetch one")
    cache = cache_directory(KIND)
    cache.mkdir(parents=True, exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=cache) as place:
        work = Path(place)
        files = _download(work, suite, further, mirror, say)
        root = work / "root"
        _skeleton(root)
        say(f"unpacking {len(files)} packages")
        for file in files:
            _unpack(file, root)
        own = _add_ipoibu(root, package, version)
        _finish(root)
        say("compiling Python's library")
        _compile(root)
        manifest = {
            "format": FORMAT,
            "suite": suite,
            "ipoibu": version if own else None,
            "packages": {name: each for file in files for name, each in _described(file)},
        }
        (root / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
        (root / SUMS).write_text("".join(f"{digest}  {name}\n" for name, digest in digests(root)))
        assert not verify(load(root))
        say("packing")
        pack(root, work / ARCHIVE)
        shutil.move(work / ARCHIVE, directory / ARCHIVE)
    write_digest(directory / ARCHIVE)
    return directory / ARCHIVE


def _own_suite() -> str:
    try:
        text = Path("/etc/os-release").read_text("utf-8")
    except OSError:
        return SUITE
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return values.get("VERSION_CODENAME", SUITE) if values.get("ID") == "debian" else SUITE


def _download(work: Path, suite: str, further: Sequence[str], mirror: str, say: Say) -> list[Path]:
    """Return the files of PACKAGES, of `further` ones and of what they need, sorted by name."""
    for part in ("state/lists/partial", "cache/archives/partial", "etc/parts"):
        (work / part).mkdir(parents=True)
    (work / "status").touch()
    source = f"deb [signed-by={KEYRING}]"
    (work / "etc/sources.list").write_text(
        f"{source} {mirror} {suite} main\n{source} {SECURITY} {suite}-security main\n"
    )
    (work / "apt.conf").write_text(_CONF.format(work=work))
    say(f"asking {mirror} for the packages of {suite}")
    _apt(work, "update")
    wanted = {name for name in _needed(work, PACKAGES.split()) if not WITHOUT.fullmatch(name)}
    if further:  # their programs may have libraries of the ones that others do without
        needed = _needed(work, further)
        wanted |= {it for it in needed if it.startswith("lib") or not WITHOUT.fullmatch(it)}
    say(f"downloading {len(wanted)} packages")
    downloads = work / "cache/archives"
    _apt(work, "download", *sorted(wanted), cwd=downloads)
    return sorted(downloads.glob("*.deb"))


def _needed(work: Path, packages: Sequence[str]) -> list[str]:
    """Return the names of the packages and of all that they depend on."""
    words = _apt(work, "install", "--yes", "--print-uris", *packages)
    return re.findall(r"^'\S+' (\S+?)_\S+ \d+ ", words, re.MULTILINE)


def _apt(work: Path, *words: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        ["apt-get", "-qq", *words],
        cwd=cwd,
        env={**os.environ, "APT_CONFIG": str(work / "apt.conf"), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LabError(f"apt-get {words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _described(file: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Return the name of a package, its version, and the version of its source."""
    form = "${Package}\t${Version}\t${source:Package}\t${source:Version}\n"
    words = ["dpkg-deb", "--showformat", form, "--show", str(file)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()
    name, version, source, source_version = shown.split("\t")
    yield name, {"version": version, "source": f"{source} {source_version}"}


def _skeleton(root: Path) -> None:
    for name in MOUNT_POINTS:
        (root / name).mkdir(parents=True)
    for name in MERGED:
        (root / "usr" / name).mkdir()
        (root / name).symlink_to(f"usr/{name}")


def _unpack(file: Path, root: Path) -> None:
    """Unpack a package's files, less what a machine does without."""
    with (
        subprocess.Popen(["dpkg-deb", "--fsys-tarfile", file], stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as tar,
    ):
        for member in tar:
            name = member.name.removeprefix("./").strip("/")
            if name in MERGED:
                continue  # base-files may have these links
            if name.split("/")[0] in MERGED:
                name = f"usr/{name}"
            if name and not _PRUNED.match(f"{name}/" if member.isdir() else name):
                _place(tar, member, root, name)
    if process.returncode != 0:
        raise LabError(f"dpkg-deb cannot read {file.name}")


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, root: Path, name: str) -> None:
    target = root / name
    if member.isdir():
        if not target.is_symlink():
            target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        shutil.copy(root / _merged(member.linkname), target)
    elif member.isreg():
        content = tar.extractfile(member)
        assert content is not None
        with content, target.open("wb") as output:
            shutil.copyfileobj(content, output)
        target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _merged(name: str) -> str:
    name = name.removeprefix("./").strip("/")
    return f"usr/{name}" if name.split("/")[0] in MERGED else name


def _finish(root: Path) -> None:
    """Do what the packages' own scripts do in an installation, as far as machines need it."""
    etc = root / "etc"
    masters = root / "usr/share/base-passwd"
    for name in ("passwd", "group"):
        shutil.copy(masters / f"{name}.master", etc / name)
    (etc / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n")
    (etc / "hostname").write_text("machine\n")
    (etc / "resolv.conf").write_text("")
    (etc / "nsswitch.conf").write_text(
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
        "networks: files\nprotocols: files\nservices: files\n"
    )
    for link, target in (
        ("usr/bin/sh", "dash"),
        ("usr/bin/awk", "mawk"),
        ("usr/bin/python", "python3"),
        ("usr/sbin/iptables", "xtables-nft-multi"),
        ("usr/sbin/ip6tables", "xtables-nft-multi"),
        ("etc/mtab", "/proc/self/mounts"),
        ("var/run", "/run"),
        ("var/lock", "/run/lock"),
    ):
        path = root / link
        if not path.is_symlink() and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(target)
    (root / KMOD.lstrip("/")).touch(0o755)
    for name in ("modprobe", "lsmod", "modinfo", "rmmod", "insmod", "depmod"):
        (root / "usr/sbin" / name).symlink_to(f"../bin/{Path(KMOD).name}")
    _add_applets(root)
    for name in (
        "usr/local/bin",
        "usr/local/lib",
        "usr/local/sbin",
        "var/lib",
        "var/log",
        "var/cache",
        "var/tmp",
        "var/spool",
    ):
        (root / name).mkdir(parents=True, exist_ok=True)
    init = root / INIT.lstrip("/")
    init.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).with_name("init"), init)
    init.chmod(0o755)


def _add_applets(root: Path) -> None:
    """Link what no package has, such as vi and nc, to busybox."""
    listed = subprocess.run([root / "usr/bin/busybox", "--list"], capture_output=True, check=True)
    for name in listed.stdout.decode("ascii").split():
        if not any(os.path.lexists(root / f"usr/{place}/{name}") for place in ("bin", "sbin")):
            (root / "usr/bin" / name).symlink_to("busybox")


def _add_ipoibu(root: Path, package: Path, version: str) -> bool:
    """Add ipoibu if it is compiled for the userland's Python; return whether it is."""
    (library,) = (root / "usr/lib").glob("python3.*")
    tag = f"cpython-{library.name.removeprefix('python').replace('.', '')}-x86_64-linux-gnu.so"
    if not list(package.glob(f"_core/*.{tag}")):
        return False
    home = root / "usr/lib/python3/dist-packages"
    left = shutil.ignore_patterns("__pycache__", "*.pyi", "kernel")
    shutil.copytree(package, home / "ipoibu", ignore=left)
    for path in (home / "ipoibu").rglob("*"):
        if path.suffix == ".so" and not path.name.endswith(tag):
            path.unlink()
        elif path.is_file():
            path.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
    data = home / f"ipoibu-{version}.dist-info"
    data.mkdir()
    (data / "METADATA").write_text(f"Metadata-Version: 2.1\nName: ipoibu\nVersion: {version}\n")
    launcher = root / "usr/bin/ipoibu"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)
    return True


def _compile(root: Path) -> None:
    """Compile the userland's Python files by its own interpreter: in a machine that takes long.

    With -B, or it would write what it imports itself, with the time of the source.
    """
    (library,) = (root / "usr/lib").glob("python3.*")
    places = f"{root}/usr/lib/x86_64-linux-gnu"
    words = [f"{root}/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "--library-path", places]
    words += [f"{root}/usr/bin/{library.name}", "-S", "-B", "-m", "compileall", "-q"]
    words += ["-s", str(root), "-p", "/"]
    words += ["--invalidation-mode", "unchecked-hash", str(root / "usr/lib")]
    environment = {"PATH": os.defpath, "PYTHONHOME": f"{root}/usr", "PYTHONHASHSEED": "0"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"compileall: {done.stdout}{done.stderr}")
