# SPDX-License-Identifier: BSD-2-Clause
"""A virtual machine of QEMU, emulated without KVM, in the network namespace of a host."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from ipoibu.lab.host import Host

BUILD: Final = Path(__file__).parent / "build"
NETDEV: Final = "vm0"
MEMORY_MIB: Final = 128
ANSWER_S: Final = 150


def find_files() -> Path:
    """Return the directory of the kernel and the initrd, which are made where they are missing."""
    done = subprocess.run([BUILD], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())


class Machine:
    """A machine that runs. Its shell and its monitor (QMP) are sockets, so it belongs to one thread."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        log: Path,
        shell: socket.socket,
        monitor: socket.socket,
    ) -> None:
        self.process = process
        self._log = log
        self._shell = shell.makefile("rwb", buffering=0)
        self._monitor = monitor.makefile("rwb", buffering=0)

    def booted(self) -> None:
        """Wait for the shell."""
        assert self._answer() == (0, "")

    def run(self, command: str) -> tuple[int, str]:
        """Run a line of shell in the machine; return its exit status and its output."""
        assert "\n" not in command
        self._shell.write(command.encode() + b"\n")
        return self._answer()

    def sh(self, command: str) -> str:
        """Run a line of shell that must succeed; return its output."""
        status, output = self.run(command)
        assert status == 0, f"{command}: {output}"
        return output

    def reaches(self, target: str) -> bool:
        return self.run(f"ping -c1 -W1 {target}")[0] == 0

    def qmp(self, command: str, **arguments: object) -> Any:
        """Run a command of QEMU's monitor; return its answer."""
        request = {"execute": command, "arguments": arguments}
        self._monitor.write(json.dumps(request).encode() + b"\n")
        while True:
            line = self._monitor.readline()
            assert line, "QEMU has ended"
            answer = json.loads(line)
            assert "error" not in answer, answer
            if "return" in answer:
                return answer["return"]

    def _answer(self) -> tuple[int, str]:
        lines: list[str] = []
        while True:
            line = self._shell.readline().decode(errors="replace")
            assert line, f"the machine has ended: {lines} {self._log.read_text(errors='replace')}"
            if line.startswith("= "):
                return int(line[2:]), "".join(lines)
            lines.append(line)


@contextmanager
def machine(
    host: Host, files: Path, log: Path, mac: str, incoming: Path | None = None
) -> Iterator[Machine]:
    """Run a machine on a TAP in the host's bridge br0, or one that waits for another to migrate here by
    the socket `incoming`."""
    mtu = host.ask("show")["mtu"]
    for command in (
        f"ip tuntap add {NETDEV} mode tap vnet_hdr",
        f"ip link set {NETDEV} mtu {mtu} master br0 up",
    ):
        done = host.run(command.split())
        assert done.returncode == 0, done.stderr
    (shell, its_shell), (monitor, its_monitor) = socket.socketpair(), socket.socketpair()
    with closing(shell), closing(monitor):
        with its_shell, its_monitor, log.open("ab") as out:
            fds = its_shell.fileno(), its_monitor.fileno()
            process = host.namespace.popen(
                [
                    *["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-nographic"],
                    *["-machine", "q35", "-accel", "tcg", "-m", str(MEMORY_MIB), "-no-reboot"],
                    *["-kernel", str(files / "vmlinuz"), "-initrd", str(files / "initrd")],
                    # Its clocks count its own instructions: a busy host makes timers late, by which
                    # the kernel would measure the host's clock wrong, or take a timer for broken.
                    *["-icount", "shift=auto"],
                    *["-append", "console=ttyS0 quiet panic=-1"],
                    *["-netdev", f"tap,id=net,ifname={NETDEV},script=no,downscript=no"],
                    "-device",
                    f"virtio-net-pci,netdev=net,mac={mac},host_mtu={mtu},romfile=",
                    *["-chardev", "stdio,id=log", "-serial", "chardev:log"],
                    *["-chardev", f"socket,id=shell,fd={fds[0]}", "-serial", "chardev:shell"],
                    *["-chardev", f"socket,id=qmp,fd={fds[1]}", "-mon", "chardev=qmp,mode=control"],
                    *(["-incoming", f"unix:{incoming}"] if incoming else []),
                ],
                pass_fds=fds,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        try:
            for end in (shell, monitor):
                end.settimeout(ANSWER_S)
            running = Machine(process, log, shell, monitor)
            running.qmp("qmp_capabilities")
            yield running
        finally:
            process.kill()
            process.wait()
            host.run(["ip", "link", "del", NETDEV])
